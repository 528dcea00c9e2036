"""Prefix beam search (Graves & Jaitly 2014; Hannun et al. 2014) over the probable symbols of slots, for Numba.

An output's probability is the sum over its alignments. The search goes through the slots and keeps the best prefixes,
each with the probability of its alignments that end in a blank and of those that end in its last symbol. A prefix is a
row of two arrays, a state of the language model a node of its trie. `decoding/compiled.py` has the rules of such code.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from workflow_src.decoding.compiled import (
    LAST,
    PARENT,
    Words,
    best_entries,
    compiled,
    outputs_of,
    plain,
    roomy,
    step,
    word_score,
)
from workflow_src.decoding.slots import Row
from workflow_src.errors import ConfigError
from workflow_src.types import EOS, LanguageModel

# Score and subwords.
Output = tuple[float, tuple[int, ...]]
# Below this, probabilities are scaled before they vanish.
SMALLEST = 1e-100
# With more symbols per slot on average, NumPy sorts them first.
FEW = 64
# Further columns of a prefix, and numbers of it.
NODE, CHILD, SIBLING, OPENED = range(2, 6)
EXTRA, MASS = range(2)
# Columns of the beam.
SCORE, ENDED, OPEN = range(3)
# Further columns of continuations: a prefix, the symbol that it grows by (-1: none), and the node after that. For a
# prefix that grows, ENDED holds the score of the symbol.
GROWS, BY, AFTER = range(3)
# The start of counts that are arguments: for the literal 0, functions would be compiled once more.
ZERO = np.int64(0)


@compiled
def _sorted(symbols, values, probabilities, blank):
    """The symbols of a slot but the blank, their logarithms and probabilities, sorted by these (stable); and the
    logarithm and the probability of the blank, -inf and 0 where it is not probable enough."""
    size = len(symbols)
    sorted_symbols, logs, shares = np.empty(size, np.int64), np.empty(size), np.empty(size)
    log_blank, p_blank, count = -inf, 0.0, 0
    for i in range(size):
        if symbols[i] == blank:
            log_blank, p_blank = values[i], probabilities[i]
            continue
        place = count
        while place and logs[place - 1] < values[i]:
            sorted_symbols[place], logs[place], shares[place] = (
                sorted_symbols[place - 1],
                logs[place - 1],
                shares[place - 1],
            )
            place -= 1
        sorted_symbols[place], logs[place], shares[place] = symbols[i], values[i], probabilities[i]
        count += 1
    return sorted_symbols[:count], logs[:count], shares[:count], log_blank, p_blank


@plain
def _child(tree, prefix, symbol):
    """The existing prefix of one more symbol, or 0."""
    child = tree[prefix, CHILD]
    while child and tree[child, LAST] != symbol:
        child = tree[child, SIBLING]
    return child


@plain
def _add(tree, masses, number, parent, symbol, extra, node):
    tree[number, PARENT], tree[number, LAST], tree[number, NODE] = parent, symbol, node
    tree[number, CHILD], tree[number, SIBLING], tree[number, OPENED] = 0, tree[parent, CHILD], -1
    tree[parent, CHILD] = number
    masses[number, EXTRA] = extra


@plain
def _scaled(beam, scale, smallest):
    largest = 0.0
    for i in range(len(beam)):
        largest = max(largest, beam[i, ENDED] + beam[i, OPEN])
    if largest >= smallest:
        return scale
    if not largest:
        return -inf
    for i in range(len(beam)):
        beam[i, SCORE] -= log(largest)
        beam[i, ENDED] /= largest
        beam[i, OPEN] /= largest
    return scale + log(largest)


@plain
def _opened(tree, masses, opened, reached, slot, prefix, probability):
    """Add to the probability of alignments that end in the last symbol of a prefix at this slot."""
    if tree[prefix, OPENED] != slot:
        tree[prefix, OPENED], masses[prefix, MASS] = slot, 0.0
        opened[reached] = prefix
        reached += 1
    masses[prefix, MASS] += probability
    return reached


@plain
def _continued(
    slot,
    symbols,
    values,
    probabilities,
    log_blank,
    p_blank,
    prefix,
    beam,
    tree,
    masses,
    opened,
    entries,
    places,
    gap,
    words,
):
    """Fill `entries` and `places` with the continuations after a slot that are within the gap; returns their number."""
    beams, choices, number, reached = len(prefix), len(symbols), ZERO, ZERO
    best, most = beam[0, SCORE], max(0.0, words[3])
    for i in range(1, beams):
        best = max(best, beam[i, SCORE])
    least = best + log_blank - gap
    for i in range(beams):
        parent, parent_score, ended, open_ = prefix[i], beam[i, SCORE], beam[i, ENDED], beam[i, OPEN]
        for j in range(choices):
            score, probability, symbol = parent_score + values[j], (ended + open_) * probabilities[j], symbols[j]
            if score + most < least:
                break
            if symbol == tree[parent, LAST]:
                if open_:
                    reached = _opened(tree, masses, opened, reached, slot, parent, open_ * probabilities[j])
                probability = ended * probabilities[j]
                if not probability:
                    continue
                score = log(probability) + masses[parent, EXTRA]
            child = _child(tree, parent, symbol)
            if child:
                reached = _opened(tree, masses, opened, reached, slot, child, probability)
                continue
            added, node = word_score(words, tree[parent, NODE], symbol)
            score += added
            if score >= least and probability:
                entries[number, SCORE], entries[number, ENDED], entries[number, OPEN] = score, added, probability
                places[number, GROWS], places[number, BY], places[number, AFTER] = parent, symbol, node
                number += 1
    return _unchanged(slot, log_blank, p_blank, prefix, beam, tree, masses, opened[:reached], entries, places, number)


@plain
def _unchanged(slot, log_blank, p_blank, prefix, beam, tree, masses, opened, entries, places, number):
    """Add existing prefixes, after a blank or their last symbol, to `number` continuations; returns their number."""
    for i in range(len(prefix)):
        parent, new_open, ended = prefix[i], 0.0, (beam[i, ENDED] + beam[i, OPEN]) * p_blank
        if tree[parent, OPENED] == slot:
            new_open, tree[parent, OPENED] = masses[parent, MASS], -1
        if new_open:
            entries[number, SCORE] = log(ended + new_open) + masses[parent, EXTRA]
        elif p_blank:
            entries[number, SCORE] = beam[i, SCORE] + log_blank
        else:
            continue
        entries[number, ENDED], entries[number, OPEN] = ended, new_open
        places[number, GROWS], places[number, BY] = parent, -1
        number += 1
    for i in range(len(opened)):
        child = opened[i]
        if tree[child, OPENED] == slot and masses[child, MASS]:
            entries[number, SCORE] = log(masses[child, MASS]) + masses[child, EXTRA]
            entries[number, ENDED], entries[number, OPEN] = 0.0, masses[child, MASS]
            places[number, GROWS], places[number, BY] = child, -1
            number += 1
    return number


@plain
def _within(entries, places, number, gap):
    """Move the entries that are within the gap of the best to the front; returns their number."""
    best, count = -inf, 0
    for i in range(number):
        best = max(best, entries[i, SCORE])
    for i in range(number):
        if entries[i, SCORE] >= best - gap:
            for column in range(entries.shape[1]):
                entries[count, column], places[count, column] = entries[i, column], places[i, column]
            count += 1
    return count


@compiled
def _chosen(entries, places, number, gap, width):
    """The indices of the `width` best continuations that are within the gap."""
    if gap < inf:
        number = _within(entries, places, number, gap)
    if number > width:
        return best_entries(entries[:number, SCORE], places[:number, GROWS], places[:number, BY], width)
    return np.arange(number)


@plain
def _next(entries, places, order, prefix, beam, tree, masses, size):
    """Fill the beam with the chosen entries; returns the number of prefixes."""
    for i in range(len(order)):
        place = order[i]
        parent, symbol = places[place, GROWS], places[place, BY]
        beam[i, SCORE], beam[i, OPEN] = entries[place, SCORE], entries[place, OPEN]
        if symbol < 0:
            prefix[i], beam[i, ENDED] = parent, entries[place, ENDED]
        else:
            _add(
                tree, masses, size, parent, symbol, masses[parent, EXTRA] + entries[place, ENDED], places[place, AFTER]
            )
            prefix[i], beam[i, ENDED] = size, 0.0
            size += 1
    return size


@compiled
def search(counts, symbols, values, probabilities, blank, width, gap, words, start, end_of_sentence, smallest, limit):
    """The prefixes after all slots, best first: scores, and for the first `limit`, concatenated symbols and offsets.
    Empty where all prefixes have the probability 0."""
    tree, masses = np.zeros((256, 6), np.int64), np.zeros((256, 2))
    tree[0, PARENT], tree[0, LAST], tree[0, NODE], tree[0, OPENED] = -1, -1, start, -1
    prefix, beam = np.zeros(1, np.int64), np.zeros((1, 3))
    beam[0, ENDED] = 1.0
    scale, certain, size, end = 0.0, -1, ZERO + 1, 0
    for slot in range(len(counts)):
        begin, end = end, end + counts[slot]
        alone = counts[slot] == 1
        if alone and symbols[begin] == blank:
            for i in range(len(beam)):
                beam[i, ENDED] += beam[i, OPEN]
                beam[i, OPEN] = 0.0
            certain = -1
            continue
        if alone and symbols[begin] == certain:
            continue
        certain = symbols[begin] if alone else -1
        if beam[0, ENDED] + beam[0, OPEN] < smallest:
            scale = _scaled(beam, scale, smallest)
            if scale == -inf:
                return beam[:0, SCORE], symbols[:0], counts[:0]
        # The largest number of continuations, all of which may be new.
        most = len(prefix) * (counts[slot] + 1)
        if size + most > len(tree):
            tree, masses = roomy(tree, size + most), roomy(masses, size + most)
        sorted_symbols, logs, shares, log_blank, p_blank = _sorted(
            symbols[begin:end], values[begin:end], probabilities[begin:end], blank
        )
        entries, places, opened = np.empty((most, 3)), np.empty((most, 3), np.int64), np.empty(most, np.int64)
        arguments = log_blank, p_blank, prefix, beam, tree, masses, opened, entries, places, gap, words
        number = _continued(slot, sorted_symbols, logs, shares, *arguments)
        if not number:
            return beam[:0, SCORE], symbols[:0], counts[:0]
        order = _chosen(entries, places, number, gap, width)
        if len(order) != len(prefix):
            prefix, beam = np.empty(len(order), np.int64), np.empty((len(order), 3))
        size = _next(entries, places, order, prefix, beam, tree, masses, size)
    scores, (trie, _, weight, _) = beam[:, SCORE] + scale, words
    for i in range(len(scores)):
        scores[i] += weight * step(trie, tree[prefix[i], NODE], end_of_sentence)[0]
    order = best_entries(scores, prefix, prefix, len(scores))
    return scores[order], *outputs_of(tree, prefix, order[:limit])


class PrefixBeam:
    """The search for the row of a sentence; probabilities of the language model are cached across sentences.

    `threshold`: continuations whose score is further below the best of their slot are dropped. Without `fast`, nothing
    is compiled.
    """

    def __init__(
        self,
        blank: int,
        width: int,
        threshold: float | None,
        language_model: LanguageModel | None,
        lm_weight: float,
        word_bonus: float,
        fast: bool = True,
    ):
        self._blank = blank
        self._width = width
        self._gap = inf if threshold is None else float(threshold)
        self.words = Words(language_model, lm_weight, word_bonus, fast)
        self._find = self.words.runs(search)

    def __call__(self, row: Row) -> list[Output]:
        scores, words, ends = self._search(row, self._width)
        words, ends = words.tolist(), ends.tolist()
        return [
            (score, tuple(words[begin:end])) for score, begin, end in zip(scores.tolist(), ends, ends[1:], strict=False)
        ]

    def best(self, row: Row) -> tuple[Output, int]:
        """The best output, and the number of outputs."""
        scores, words, _ = self._search(row, 1)
        return (scores.item(0), tuple(words.tolist())), len(scores)

    def _search(self, row: Row, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        counts, symbols, values, _ = row
        if len(values) > FEW * len(counts):
            order = np.lexsort((-values, np.repeat(np.arange(len(counts)), counts)))
            symbols, values = symbols[order], values[order]
        outputs = self._find(
            counts,
            symbols,
            values,
            np.exp(values),
            self._blank,
            self._width,
            self._gap,
            self.words.arguments,
            self.words.start,
            EOS,
            SMALLEST,
            limit,
        )
        if not len(outputs[0]):
            problem = "no translation has a probability any more"
            raise ConfigError("lm_weight", problem=problem, hint="use smaller values of lm_weight and word_bonus")
        return outputs


def try_out() -> None:
    """Compile the search, or read it from the cache, and run it."""
    beam = PrefixBeam(1, 1, None, None, 0.0, 0.0)
    beam.best(Row(*beam.words.probable(np.zeros((1, 2), np.float32), 0.5), 0.0))
