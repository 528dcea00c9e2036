"""What searches that Numba compiles share: look-ups of n-grams, and selection of the probable symbols of slots.

A search is a compiled function of arrays, in a module of its own. One that scores words has the argument
`Words.arguments`, with which it calls `word_score`. Where Numba is missing or does not work, and for a language model
that is no n-gram model, the same functions run uncompiled (`interpreted`), many times as slowly.

Numba caches compiled code on disk until the file of a function changes; other files do not count. So constants of
other modules are arguments, and `usable` deletes what is older than this file. No class is an argument: a cached file
that names a class cannot be read after the class is renamed. Nor are slices assigned: for its error of unequal shapes,
such a line takes a second to compile.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import itertools
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from workflow_src.decoding import slots
from workflow_src.decoding.ngram import NgramModel
from workflow_src.decoding.slots import LEAST, Probable, below
from workflow_src.types import UNK, LanguageModel

logger = logging.getLogger("continuum")

# Number of logits that are compared at once; few such parts hold a probable symbol.
PART = 256
# Average number of symbols of a slot for which there is room at first.
ROOM = 16
# Number of continuations that are cached across sentences, a power of two; later ones replace earlier ones.
CACHED = 2**15
SPREAD = 7919
# Columns of a node: integers, and numbers.
FIRST, SUFFIX = range(2)
LOGP, BACKOFF = range(2)
# First columns of a prefix.
PARENT, LAST = range(2)
# Number of states of a language model that is no n-gram model from which on they are forgotten.
STATES = 2**17


def warn(failure: Exception) -> None:
    """Log a warning that searches are not compiled."""
    reason = " ".join(str(failure).split())[:200]
    logger.warning(
        "warning: Numba cannot be used (%s: %s), and searches take longer; a folder in NUMBA_CACHE_DIR that can be "
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


compiled = _decorator()
# For functions that allocate nothing: counting references to arrays would take most of their time.
plain = _decorator(_nrt=False)


# `words`, which add to scores, is one argument: a trie, a cache of its probabilities, their weight, and the bonus.
Trie = tuple[np.ndarray, np.ndarray, np.ndarray, int, int, int]


@functools.lru_cache(maxsize=1)
def trie_of(model: NgramModel | None) -> tuple[Trie, int]:
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


@plain
def step(trie, node, word):
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


@plain
def word_score(words, node, word):
    """The score of a word after a node, and the node after it."""
    trie, (keys, gains), weight, bonus = words
    # No lock: compiled code runs alone, because it holds Python's own (no `nogil`). Uncompiled, Python changes threads
    # at calls and loops alone, and there is none between reading and writing an entry.
    place = (node * SPREAD + word) & (len(keys) - 1)
    if keys[place, 0] != node or keys[place, 1] != word:
        value, next_node = step(trie, node, word)
        keys[place, 0], keys[place, 1], keys[place, 2] = node, word, next_node
        gains[place] = bonus + weight * value
    return gains[place], keys[place, 2]


@plain
def _many(logits, floor):
    """Number of logits that are at least `floor`. Compilers vectorise only such a plain loop."""
    count = 0
    for i in range(logits.shape[0]):
        count += logits[i] >= floor
    return count


@plain
def probable(logits, best, below, least, counts, symbols, values):
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


@plain
def comes_before(scores, primary, secondary, i, j):
    """Whether entry i is before j in descending order of (score, primary, secondary)."""
    if scores[i] != scores[j]:
        return scores[i] > scores[j]
    return primary[i] > primary[j] if primary[i] != primary[j] else secondary[i] > secondary[j]


@compiled
def best_entries(scores, primary, secondary, count):
    """The indices of the `count` largest (score, primary, secondary), the largest first."""
    order = np.empty(min(count, len(scores)), np.int64)
    filled = 0
    for i in range(len(scores)):
        if filled < len(order):
            filled += 1
        elif not comes_before(scores, primary, secondary, i, order[filled - 1]):
            continue
        place = filled - 1
        while place and comes_before(scores, primary, secondary, i, order[place - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    return order


@compiled
def roomy(array, rows):
    """A copy of the array with room for at least `rows` rows."""
    larger = np.empty((max(2 * len(array), rows), array.shape[1]), array.dtype)
    for i in range(len(array)):
        for column in range(array.shape[1]):
            larger[i, column] = array[i, column]
    return larger


@compiled
def outputs_of(tree, prefix, order):
    """The symbols of prefixes in an order, concatenated, and the offset of each, with the end of the last.

    Prefix 0 is empty; the first columns of `tree` are the prefix before the last symbol, and this symbol.
    """
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


def interpreted(function: Callable, **replaced: Any) -> Callable:
    """A compiled function as plain Python, with those of its module and of this one; `replaced` are others by name."""
    own = sys.modules[function.__module__]
    names = {**globals(), **vars(own)}
    for name, value in dict(names).items():
        python_function = getattr(value, "py_func", value)
        if isinstance(python_function, FunctionType) and python_function.__module__ in (__name__, own.__name__):
            code = python_function.__code__
            names[name] = FunctionType(code, names, name, python_function.__defaults__)
    names.update(replaced)
    return names[function.__name__]


class Words:
    """What a language model and a bonus add to the scores of words; probabilities are cached across sentences.

    `start` is the node before the first word, and `compiled` says whether searches run compiled: not without `fast`,
    and not with a language model that is no n-gram model.
    """

    def __init__(self, language_model: LanguageModel | None, lm_weight: float, word_bonus: float, fast: bool = True):
        self._weights = float(lm_weight), float(word_bonus)
        model: Any
        self.start = 0
        if language_model is None or isinstance(language_model, NgramModel):
            model, self.start = trie_of(language_model)
            self.compiled = fast and NUMBA is not None
        else:
            model, self.compiled = States(language_model), False
        self._remember(model)

    def _remember(self, model: Any) -> None:
        """Begin with a model and an empty cache of its probabilities."""
        self.cache = np.full((CACHED, 3), -1), np.zeros(CACHED)
        self._arguments = model, self.cache, *self._weights

    @property
    def arguments(self) -> tuple:
        """The argument of searches: a model, a cache of its probabilities, their weight, and the bonus."""
        model = self._arguments[0]
        if isinstance(model, States) and len(model.states) > STATES:
            # Searches of other threads go on with what they began with.
            self._remember(States(model.model))
        return self._arguments

    def runs(self, search: Callable) -> Callable:
        """The search as it runs with these words."""
        if self.compiled:
            return search
        replaced = {"step": States.step} if isinstance(self._arguments[0], States) else {}
        return interpreted(search, **replaced)

    def probable(self, logits: np.ndarray, min_ratio: float) -> Probable:
        """As `slots.probable`."""
        if not self.compiled:
            return slots.probable(logits, min_ratio)
        kind, best_logits = logits.dtype.type, logits.max(-1)
        counts, room = np.empty(len(logits), np.int64), ROOM * len(logits)
        while True:
            symbols, values = np.empty(room, np.int64), np.empty(room)
            total = probable(logits, best_logits, kind(below(min_ratio)), kind(LEAST), counts, symbols, values)
            if total >= 0:
                return counts, symbols[:total], values[:total]
            room = logits.size


def cached_files(function: Any) -> list[Path]:
    """Files of code that earlier processes compiled of the module of a function, perhaps on another processor or of
    another version. Functions that it calls have files of their own, with code of this module inlined."""
    stem = Path(sys.modules[function.__module__].__file__ or "").stem
    return list(Path(function.stats.cache_path).glob(f"{stem}.*.nbi"))


@functools.cache
def usable(search: Any, try_out: Callable[[], None]) -> bool:
    """Whether Numba (the extra `fast`) is installed and compiles a search, or has compiled it before."""
    if NUMBA is None:
        return False
    try:
        changed = Path(__file__).stat().st_mtime
        for file in cached_files(search):
            # Another process may delete it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_mtime < changed:
                    file.unlink()
        if not cached_files(search):
            logger.info("compiling a search; this takes some ten seconds, once")
        try_out()
    except Exception as failure:
        # An error of Numba, LLVM, or their cache; translations are the same without them.
        warn(failure)
        return False
    return True
