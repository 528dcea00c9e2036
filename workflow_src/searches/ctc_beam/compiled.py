"""Prefix beam search (Graves & Jaitly 2014; Hannun et al. 2014) over the probable symbols of slots, for Numba.

An output's probability is the sum over its alignments. The search goes through the slots and keeps the best prefixes,
each with the probability of its alignments that end in a blank and of those that end in its last symbol. A prefix is a
row of two arrays, a state of the language model a node of its trie.

Where Numba is missing or does not work, and for a language model that is no n-gram model, the same functions run
uncompiled (`interpreted`), many times as slowly.

Numba caches compiled code on disk until this file changes; other files do not count. So constants of other modules are
arguments here. No class is an argument: a cached file that names a class cannot be read after the class is renamed.
Nor are slices assigned: for its error of unequal shapes, such a line takes a second to compile.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import logging
from collections.abc import Callable
from math import inf, log
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from workflow_src.decoding.ngram import NgramModel
from workflow_src.errors import ConfigError
from workflow_src.searches.ctc_beam import slots
from workflow_src.searches.ctc_beam.slots import LEAST, Probable, Row, below
from workflow_src.types import EOS, UNK, LanguageModel

logger = logging.getLogger("continuum")

# Score and subwords.
Output = tuple[float, tuple[int, ...]]
# Below this, probabilities are scaled before they vanish.
SMALLEST = 1e-100
# Number of logits that are compared at once; few such parts hold a probable symbol.
PART = 256
# Average number of symbols of a slot for which there is room at first.
ROOM = 16
# With more symbols per slot on average, NumPy sorts them first.
FEW = 64
# Number of continuations that are cached across sentences, a power of two; later ones replace earlier ones.
CACHED = 2**15
SPREAD = 7919
# Columns of a node: integers, and numbers.
FIRST, SUFFIX = range(2)
LOGP, BACKOFF = range(2)
# Columns of a prefix: integers, and numbers.
PARENT, LAST, NODE, CHILD, SIBLING, OPENED = range(6)
EXTRA, MASS = range(2)
# Columns of the beam.
SCORE, ENDED, OPEN = range(3)
# Further columns of continuations: a prefix, the symbol that it grows by (-1: none), and the node after that. For a
# prefix that grows, ENDED holds the score of the symbol.
GROWS, BY, AFTER = range(3)
# Number of states of a language model that is no n-gram model from which on they are forgotten.
STATES = 2**17
# The start of counts that are arguments: for the literal 0, functions would be compiled once more.
ZERO = np.int64(0)


def warn(failure: Exception) -> None:
    """Log a warning that searches are not compiled."""
    reason = " ".join(str(failure).split())[:200]
    logger.warning(
        "warning: Numba cannot be used (%s: %s), and beams take longer; a folder in NUMBA_CACHE_DIR that can be "
        "written to may help",
        type(failure).__name__,
        reason,
    )


def _numba() -> ModuleType | None:
    """Numba (the extra `fast`), where it is installed and can be imported."""
    if importlib.util.find_spec("numba") is None:
        return None
    try:
        return importlib.import_module("numba")
    except Exception as failure:
        # An error of LLVM.
        warn(failure)
        return None


NUMBA = _numba()


def _decorator(**options: Any) -> Callable:
    """Compiles functions where there is Numba, else leaves them as they are.

    Calls raise RuntimeError where no folder can be a cache: compiling in every process takes longer than Python.
    """
    return NUMBA.njit(cache=True, error_model="numpy", **options) if NUMBA else lambda function: function


_compiled = _decorator()
# For functions that allocate nothing: counting references to arrays would take most of their time.
_plain = _decorator(_nrt=False)


# `words`, which add to scores, is one argument: a trie, a cache of its probabilities, their weight, and the bonus.
Trie = tuple[np.ndarray, np.ndarray, np.ndarray, int, int, int]


@functools.lru_cache(maxsize=1)
def _trie(model: NgramModel | None) -> tuple[Trie, int]:
    """An n-gram model as a trie (last_words, nodes, logs, size, longest, unknown), and the start node of sentences.

    Node 0 is the empty context, the n-grams of each order follow. `last_words` has their last words; `nodes` the first
    child (children end before the first child of the next node) and the node of the n-gram without its first word;
    `logs` log p(last word | words before it) and the logarithm of the backoff weight. Nodes from `longest` on have no
    children. `size` is the number of words, 0 where there is no model: then log p is 0. Ids that are no words count as
    the word `unknown`.
    """
    if model is None:
        return (np.zeros(UNK + 2, np.int32), np.zeros((UNK + 2, 2), np.int32), np.zeros((UNK + 2, 2)), 0, 0, UNK), 0
    tables = model.tables
    offsets = np.cumsum([1, *map(len, tables)])
    last_words, nodes = np.zeros(offsets[-1], np.int32), np.zeros((offsets[-1] + 1, 2), np.int32)
    logs = np.zeros((offsets[-1], 2))
    nodes[0, FIRST] = 1
    nodes[offsets[-2] :, FIRST] = offsets[-1]
    for order, table in enumerate(tables):
        rows = slice(offsets[order], offsets[order + 1])
        last_words[rows], logs[rows, LOGP], logs[rows, BACKOFF] = table.words, table.logp, table.backoff
        if order:
            nodes[rows, SUFFIX] = offsets[order - 1] + table.suffix
        if order + 1 < len(tables):
            children = np.searchsorted(tables[order + 1].context, np.arange(len(table)))
            nodes[rows, FIRST] = offsets[order + 1] + children
    length, row = model.start
    start = int(offsets[length - 1] + row) if length else 0
    return (last_words, nodes, logs, model.size, int(offsets[-2]), UNK), start


@_plain
def _step(trie, node, word):
    """log p(word | node), and the node after it, as `NgramModel.step`."""
    last_words, nodes, logs, size, longest, unknown = trie
    if not 0 <= word < size:
        word = unknown
    total = 0.0
    while node:
        low, end = nodes[node, FIRST], nodes[node + 1, FIRST]
        high = end
        while low < high:
            middle = (low + high) // 2
            if last_words[middle] < word:
                low = middle + 1
            else:
                high = middle
        if low < end and last_words[low] == word:
            return total + logs[low, LOGP], nodes[low, SUFFIX] if low >= longest else low
        total += logs[node, BACKOFF]
        node = nodes[node, SUFFIX]
    place = 1 + word
    return total + logs[place, LOGP], nodes[place, SUFFIX] if place >= longest else place


@_plain
def _added(words, node, word):
    """The score of a word after a node, and the node after it."""
    trie, (keys, gains), weight, bonus = words
    # No lock: compiled code runs alone, because it holds Python's own (no `nogil`). Uncompiled, Python changes threads
    # at calls and loops alone, and there is none between reading and writing an entry.
    place = (node * SPREAD + word) & (len(keys) - 1)
    if keys[place, 0] != node or keys[place, 1] != word:
        value, next_node = _step(trie, node, word)
        keys[place, 0], keys[place, 1], keys[place, 2] = node, word, next_node
        gains[place] = bonus + weight * value
    return gains[place], keys[place, 2]


@_plain
def _many(logits, floor):
    """Number of logits that are at least `floor`. Compilers vectorise only such a plain loop."""
    count = 0
    for i in range(logits.shape[0]):
        count += logits[i] >= floor
    return count


@_plain
def _probable(logits, best, below, least, counts, symbols, values):
    """Fill the fields of `slots.Row`; returns the number of symbols, or -1 where there is no room for them."""
    total = 0
    for slot in range(logits.shape[0]):
        floor, previous_total = max(best[slot] + below, least), total
        for begin in range(0, logits.shape[1], PART):
            end = min(logits.shape[1], begin + PART)
            count = _many(logits[slot, begin:end], floor)
            if not count:
                continue
            if total + count > len(symbols):
                return -1
            for i in range(begin, end):
                if logits[slot, i] >= floor:
                    symbols[total], values[total] = i, logits[slot, i] - best[slot]
                    total += 1
        counts[slot] = total - previous_total
    return total


@_compiled
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


@_plain
def _before(scores, primary, secondary, i, j):
    """Whether entry i is before j in descending order of (score, primary, secondary)."""
    if scores[i] != scores[j]:
        return scores[i] > scores[j]
    return primary[i] > primary[j] if primary[i] != primary[j] else secondary[i] > secondary[j]


@_compiled
def _best(scores, primary, secondary, count):
    """The indices of the `count` largest (score, primary, secondary), the largest first."""
    order = np.empty(min(count, len(scores)), np.int64)
    filled = 0
    for i in range(len(scores)):
        if filled < len(order):
            filled += 1
        elif not _before(scores, primary, secondary, i, order[filled - 1]):
            continue
        place = filled - 1
        while place and _before(scores, primary, secondary, i, order[place - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    return order


@_compiled
def _roomy(array, rows):
    """A copy of the array with room for at least `rows` rows."""
    larger = np.empty((max(2 * len(array), rows), array.shape[1]), array.dtype)
    for i in range(len(array)):
        for column in range(array.shape[1]):
            larger[i, column] = array[i, column]
    return larger


@_plain
def _child(tree, prefix, symbol):
    """The existing prefix of one more symbol, or 0."""
    child = tree[prefix, CHILD]
    while child and tree[child, LAST] != symbol:
        child = tree[child, SIBLING]
    return child


@_plain
def _add(tree, masses, number, parent, symbol, extra, node):
    tree[number, PARENT], tree[number, LAST], tree[number, NODE] = parent, symbol, node
    tree[number, CHILD], tree[number, SIBLING], tree[number, OPENED] = 0, tree[parent, CHILD], -1
    tree[parent, CHILD] = number
    masses[number, EXTRA] = extra


@_plain
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


@_compiled
def _one_more(symbol, prefix, beam, tree, masses, size, words):
    """Extend all prefixes by the symbol unless one ends in it; returns (extended, number of prefixes)."""
    grown, added = np.empty(len(prefix), np.int64), np.empty(len(prefix))
    for i in range(len(prefix)):
        parent = prefix[i]
        if tree[parent, LAST] == symbol:
            return False, size
        grown[i] = _child(tree, parent, symbol)
        added[i], node = _added(words, tree[parent, NODE], symbol)
        if not grown[i]:
            _add(tree, masses, size, parent, symbol, masses[parent, EXTRA] + added[i], node)
            grown[i] = size
            size += 1
    for i in range(len(prefix)):
        prefix[i] = grown[i]
        beam[i, SCORE] += added[i]
        beam[i, OPEN] += beam[i, ENDED]
        beam[i, ENDED] = 0.0
    return True, size


@_plain
def _opened(tree, masses, opened, reached, slot, prefix, probability):
    """Add to the probability of alignments that end in the last symbol of a prefix at this slot."""
    if tree[prefix, OPENED] != slot:
        tree[prefix, OPENED], masses[prefix, MASS] = slot, 0.0
        opened[reached] = prefix
        reached += 1
    masses[prefix, MASS] += probability
    return reached


@_plain
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
            added, node = _added(words, tree[parent, NODE], symbol)
            score += added
            if score >= least and probability:
                entries[number, SCORE], entries[number, ENDED], entries[number, OPEN] = score, added, probability
                places[number, GROWS], places[number, BY], places[number, AFTER] = parent, symbol, node
                number += 1
    return _unchanged(slot, log_blank, p_blank, prefix, beam, tree, masses, opened[:reached], entries, places, number)


@_plain
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


@_plain
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


@_compiled
def _chosen(entries, places, number, gap, width):
    """The indices of the `width` best continuations that are within the gap."""
    if gap < inf:
        number = _within(entries, places, number, gap)
    if number > width:
        return _best(entries[:number, SCORE], places[:number, GROWS], places[:number, BY], width)
    return np.arange(number)


@_plain
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


@_compiled
def _outputs(tree, prefix, order):
    """The symbols of prefixes, concatenated, and the offset of each, with the end of the last."""
    ends = np.zeros(len(order) + 1, np.int64)
    for i in range(len(order)):
        ends[i + 1], at = ends[i], prefix[order[i]]
        while at:
            ends[i + 1] += 1
            at = tree[at, PARENT]
    symbols = np.empty(ends[-1], np.int64)
    for i in range(len(order)):
        place, at = ends[i + 1], prefix[order[i]]
        while at:
            place -= 1
            symbols[place] = tree[at, LAST]
            at = tree[at, PARENT]
    return symbols, ends


@_compiled
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
            tree, masses = _roomy(tree, size + most), _roomy(masses, size + most)
        if alone and gap == inf:
            grown, size = _one_more(certain, prefix, beam, tree, masses, size, words)
            if grown:
                continue
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
        scores[i] += weight * _step(trie, tree[prefix[i], NODE], end_of_sentence)[0]
    order = _best(scores, prefix, prefix, len(scores))
    return scores[order], *_outputs(tree, prefix, order[:limit])


def vanished() -> ConfigError:
    """The error for a sentence in which all prefixes have the probability 0."""
    problem = "no translation has a probability any more"
    return ConfigError("lm_weight", problem=problem, hint="use smaller values of lm_weight and word_bonus")


class States:
    """Any language model as a trie of the words that searches met, with its states; for the uncompiled search alone."""

    def __init__(self, model: LanguageModel):
        self.model = model
        self.states: dict[int, Any] = {0: model.start}
        self._numbers = itertools.count(1)
        # By node and word: log p(word | node), and the node after it.
        self._steps: dict[tuple[int, int], tuple[float, int]] = {}

    def step(self, node: int, word: int) -> tuple[float, int]:
        """log p(word | node), and the node after it."""
        key = node, int(word)
        if key not in self._steps:
            value, state = self.model.step(self.states[node], key[1])
            # No lock: a thread takes a number of its own, and keeps its state before others can read the number.
            number = next(self._numbers)
            self.states[number] = state
            self._steps.setdefault(key, (value, number))
        return self._steps[key]


def _state_step(states: States, node: int, word: int) -> tuple[float, int]:
    return states.step(node, word)


def interpreted(step: Callable | None = None) -> Callable:
    """`search` as plain Python, with another function for the steps of the language model, if one is given."""
    names = dict(globals())
    for name, function in globals().items():
        python_function = getattr(function, "py_func", function)
        if isinstance(python_function, FunctionType) and python_function.__module__ == __name__:
            names[name] = FunctionType(python_function.__code__, names, name, python_function.__defaults__)
    if step is not None:
        names["_step"] = step
    return names["search"]


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
        self._blank, self._width, self._gap = blank, width, inf if threshold is None else float(threshold)
        self._weights = float(lm_weight), float(word_bonus)
        words: Any
        if language_model is None or isinstance(language_model, NgramModel):
            words, self._start = _trie(language_model)
            self._compiled = fast and installed()
            self._find = search if self._compiled else interpreted()
        else:
            words, self._start, self._compiled = States(language_model), 0, False
            self._find = interpreted(_state_step)
        self._remember(words)

    def _remember(self, words: Any) -> None:
        """Begin with a trie and an empty cache of its probabilities."""
        self.cache = np.full((CACHED, 3), -1), np.zeros(CACHED)
        self._words = words, self.cache, *self._weights

    def probable(self, logits: np.ndarray, min_ratio: float) -> Probable:
        """As `slots.probable`."""
        if not self._compiled:
            return slots.probable(logits, min_ratio)
        kind, best = logits.dtype.type, logits.max(-1)
        counts, room = np.empty(len(logits), np.int64), ROOM * len(logits)
        while True:
            symbols, values = np.empty(room, np.int64), np.empty(room)
            total = _probable(logits, best, kind(below(min_ratio)), kind(LEAST), counts, symbols, values)
            if total >= 0:
                return counts, symbols[:total], values[:total]
            room = logits.size

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
        model = self._words[0]
        if isinstance(model, States) and len(model.states) > STATES:
            # Searches of other threads go on with what they began with.
            self._remember(States(model.model))
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
            self._words,
            self._start,
            EOS,
            SMALLEST,
            limit,
        )
        if not len(outputs[0]):
            raise vanished()
        return outputs


def try_out() -> None:
    """Compile the search, or read it from the cache, and run it."""
    beam = PrefixBeam(1, 1, None, None, 0.0, 0.0)
    beam.best(Row(*beam.probable(np.zeros((1, 2), np.float32), 0.5), 0.0))


def installed() -> bool:
    """Whether functions of this module are compiled."""
    return NUMBA is not None


def is_cached() -> bool:
    """Whether an earlier process has cached compiled code, perhaps on another processor or of another version."""
    return any(Path(search.stats.cache_path).glob(f"{Path(__file__).stem}.search-*.nbi"))
