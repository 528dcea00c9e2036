"""Beam search over the prefixes of a directed acyclic graph, for Numba.

A prefix holds p(prefix, its last word is put out by vertex j) of every vertex j: the sum over all paths. One more word
is a product with the transitions, and one with the probabilities of the word. Prefixes of the same length compete by
the sums over vertices. `decoding/compiled.py` has the rules of such code.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from workflow_src.decoding.compiled import LAST, PARENT, best_entries, compiled, outputs_of, plain, step, word_score

# Further columns of a prefix: the node of the language model, and the number of words.
NODE, LENGTH = range(2, 4)


@plain
def _moved(before, moves, after):
    """Fill `after` (L,) with probabilities of the next vertex, from those of the last one."""
    for j in range(len(after)):
        after[j] = 0.0
    for i in range(len(before)):
        share = before[i]
        if share:
            for j in range(i + 1, len(after)):
                after[j] += share * moves[i, j]


@plain
def _summed(after, begins, symbols, probabilities, masses, reached):
    """Add p(prefix, word) of every word to `masses`; returns the number of words, which are in `reached`."""
    number = 0
    for j in range(1, len(after) - 1):
        if after[j]:
            for k in range(begins[j], begins[j + 1]):
                word = symbols[k]
                if not masses[word]:
                    reached[number] = word
                    number += 1
                masses[word] += after[j] * probabilities[k]
    return number


@plain
def _put_out(after, word, begins, symbols, probabilities, mass, row):
    """Fill `row` with the probability of each vertex to have put out the word, divided by their sum."""
    for j in range(len(row)):
        row[j] = 0.0
    for j in range(1, len(row) - 1):
        for k in range(begins[j], begins[j + 1]):
            if symbols[k] == word:
                row[j] = after[j] * probabilities[k] / mass


@compiled
def search(counts, symbols, probabilities, moves, width, gap, words, start, end_of_sentence, classes, penalty):
    """The `width` best outputs: scores, concatenated symbols and offsets.

    counts (L,) of the probable words of each vertex, these (K,) and their probabilities, probabilities of transitions
    (L, L). Symbols are below `classes`.
    """
    size, number = len(counts), 1
    begins = np.zeros(size + 1, np.int64)
    for j in range(size):
        begins[j + 1] = begins[j] + counts[j]
    trie, _, weight, bonus = words
    tree, extra = np.zeros((1 + width * size, 4), np.int64), np.zeros(1 + width * size)
    ended, most = np.full(1 + width * size, -inf), max(0.0, bonus)
    tree[0, PARENT], tree[0, LAST], tree[0, NODE] = -1, -1, start
    prefix, scales, shares = np.zeros(1, np.int64), np.zeros(1), np.zeros((1, size))
    shares[0, 0] = 1.0
    masses, reached = np.zeros(classes), np.empty(len(symbols), np.int64)
    best = -inf
    for length in range(1, size):
        after = np.empty((len(prefix), size))
        for i in range(len(prefix)):
            at = prefix[i]
            _moved(shares[i], moves, after[i])
            if after[i, size - 1]:
                ends = weight * step(trie, tree[at, NODE], end_of_sentence)[0]
                ended[at] = log(after[i, size - 1]) + scales[i] + extra[at] + ends
                best = max(best, ended[at] / (tree[at, LENGTH] + 1) ** penalty)
        # The score that comes within `gap` of the best output at the length that suits it most: division by a larger
        # length raises scores below 0, and lowers others.
        within = best - gap
        least = within * (size - 1 if within < 0 else length + 1) ** penalty
        room = len(prefix) * min(len(symbols), classes)
        scores, mass_of, node_of = np.empty(room), np.empty(room), np.empty(room, np.int64)
        rows, word_of, entries = np.empty(room, np.int64), np.empty(room, np.int64), 0
        for i in range(len(prefix)):
            at = prefix[i]
            word_count = _summed(after[i], begins, symbols, probabilities, masses, reached)
            for k in range(word_count):
                word = reached[k]
                mass = masses[word]
                masses[word] = 0.0
                if not mass:
                    continue
                score = log(mass) + scales[i] + extra[at]
                if score + most < least:
                    continue
                added, node = word_score(words, tree[at, NODE], word)
                if score + added < least:
                    continue
                scores[entries], mass_of[entries], node_of[entries] = score + added, mass, node
                rows[entries], word_of[entries] = i, word
                entries += 1
        if not entries:
            break
        order = best_entries(scores[:entries], rows[:entries], word_of[:entries], width)
        next_prefix, next_scales = np.empty(len(order), np.int64), np.empty(len(order))
        next_shares = np.empty((len(order), size))
        for i in range(len(order)):
            place = order[i]
            row, word = rows[place], word_of[place]
            parent = prefix[row]
            tree[number, PARENT], tree[number, LAST] = parent, word
            tree[number, NODE], tree[number, LENGTH] = node_of[place], length
            next_scales[i] = scales[row] + log(mass_of[place])
            extra[number] = scores[place] - next_scales[i]
            _put_out(after[row], word, begins, symbols, probabilities, mass_of[place], next_shares[i])
            next_prefix[i] = number
            number += 1
        prefix, scales, shares = next_prefix, next_scales, next_shares
    for at in range(number):
        ended[at] /= (tree[at, LENGTH] + 1) ** penalty
    ids = np.arange(number)
    order = best_entries(ended[:number], ids, ids, width)
    while len(order) > 1 and ended[order[-1]] == -inf:
        order = order[:-1]
    return ended[order], *outputs_of(tree, ids, order)
