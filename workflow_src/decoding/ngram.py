"""N-gram language models of subwords: estimation, storage as arrays, and scoring word by word.

Interpolated modified Kneser-Ney smoothing (Chen & Goodman 1999, section 3): of an n-gram h w with count c,
    p(w|h) = max(c - D(c), 0) / c(h) + g(h) p(w|h'),    g(h) = (D1 N1(h) + D2 N2(h) + D3 N3(h)) / c(h)
where h' is h without its first word, and N_i(h) counts the words that follow h i times (3: three times or more). Counts
of all but the longest n-grams are the numbers of different words before them. Unigrams are interpolated with 1 / V.

The n-grams of one order are sorted by (node of their first n-1 words, last word), so that the words after one context
are consecutive: the arrays are a trie. Logarithms are natural.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from workflow_src.errors import InputError
from workflow_src.types import BOS, EOS, PAD, UNK

# The least probability, which symbols have that no text holds.
NEVER = 1e-99


@dataclasses.dataclass(frozen=True)
class Table:
    """The n-grams of one order, sorted by context and word; `backoff`, `first` and `suffix` have an entry for each.

    context   (n,) int64, row of the first n-1 words in the table below; 0 for unigrams
    words     (n,) int64, last words
    logp      (n,) float64, log p(word | context)
    backoff   (n,) float64, log g of the n-gram as a context; 0 for the longest
    suffix    (n,) int64, row of the n-gram without its first word in the table below; 0 for unigrams
    """

    context: np.ndarray
    words: np.ndarray
    logp: np.ndarray
    backoff: np.ndarray
    suffix: np.ndarray

    def __len__(self) -> int:
        return len(self.words)


class NgramModel:
    """Scores sentences of subword ids. Unknown words share the probability of UNK.

    Every unigram of the vocabulary has a row, at the row of its id.
    """

    def __init__(self, tables: Sequence[Table]):
        self.tables = list(tables)
        self.order = len(self.tables)
        self.size = len(self.tables[0])
        # Plain sequences: one look-up in a NumPy array takes as long as a step without NumPy.
        self._words = [np.ascontiguousarray(table.words).data for table in self.tables]
        self._logp = [np.ascontiguousarray(table.logp).data for table in self.tables]
        self._backoff = [np.ascontiguousarray(table.backoff).data for table in self.tables]
        self._suffix = [np.ascontiguousarray(table.suffix).data for table in self.tables]
        # Children of row r of order n are rows first[n][r] … first[n][r + 1] of order n + 1.
        self._first = [
            np.searchsorted(above.context, np.arange(len(below) + 1)).data
            for below, above in zip(self.tables, self.tables[1:], strict=False)
        ]

    @property
    def start(self) -> tuple[int, int]:
        """The state at the beginning of a sentence: (length of the context, its row)."""
        return (1, BOS) if self.order > 1 else (0, 0)

    def step(self, state: tuple[int, int], word: int) -> tuple[float, tuple[int, int]]:
        """log p(word | state) in nats, and the state after it. EOS ends a sentence.

        Results are not cached; searches cache them.
        """
        length, row = state
        if not 0 <= word < self.size:
            word = UNK
        total = 0.0
        while length:
            first_rows = self._first[length - 1]
            end = first_rows[row + 1]
            place = bisect.bisect_left(self._words[length], word, first_rows[row], end)
            if place < end and self._words[length][place] == word:
                total += self._logp[length][place]
                length += 1
                if length == self.order:
                    length, place = length - 1, self._suffix[length - 1][place]
                return total, (length, place)
            total += self._backoff[length - 1][row]
            row, length = (self._suffix[length - 1][row] if length > 1 else 0), length - 1
        return total + self._logp[0][word], (1, word) if self.order > 1 else (0, 0)

    def log_probability(self, sentence: Sequence[int]) -> float:
        """log p of a sentence and its end, in nats."""
        total, state = 0.0, self.start
        for word in (*sentence, EOS):
            value, state = self.step(state, word)
            total += value
        return total

    def perplexity(self, sentences: Iterable[Sequence[int]]) -> float:
        """exp of the mean negative log-probability of a word, ends of sentences counted."""
        total, words = 0.0, 0
        for sentence in sentences:
            total += self.log_probability(sentence)
            words += len(sentence) + 1
        return math.exp(-total / max(1, words))


def estimate(tokens: np.ndarray, offsets: np.ndarray, size: int, order: int) -> NgramModel:
    """A model of `order` from sentences tokens[offsets[i]:offsets[i+1]] of ids below `size`.

    Raises InputError where there is no text.
    """
    if len(tokens) == 0:
        raise InputError("the training text", "is empty, and a language model needs text", "give one with sentences")
    levels = _count(tokens, offsets, size, order)
    probabilities = np.zeros(0)
    tables: list[Table] = []
    for n, level in enumerate(levels):
        discounts = _discounts(level.counts)
        # The discounted mass of each context, which shorter n-grams get; all unigrams have the empty context.
        discounted = discounts[np.minimum(level.counts, 3)]
        totals = np.bincount(level.context, level.counts)
        backoffs = np.bincount(level.context, discounted) / np.maximum(totals, 1)
        shorter = probabilities[level.suffix] if n else _uniform(size)
        probabilities = np.maximum(level.counts - discounted, 0) / np.maximum(totals, 1)[level.context]
        probabilities = probabilities + backoffs[level.context] * shorter
        if n:
            below = tables[-1]
            weights = np.ones(len(below))
            weights[: len(backoffs)] = np.where(totals > 0, backoffs, 1.0)
            tables[-1] = dataclasses.replace(below, backoff=np.log(weights))
        logp = np.log(np.maximum(probabilities, NEVER))
        nothing = np.zeros(len(level.counts))
        tables.append(Table(level.context, level.words, logp, nothing, level.suffix))
    return NgramModel(tables)


@dataclasses.dataclass(frozen=True)
class _Level:
    """The n-grams of one order, sorted, with the counts that smoothing works on."""

    context: np.ndarray
    words: np.ndarray
    suffix: np.ndarray
    counts: np.ndarray


def _count(tokens: np.ndarray, offsets: np.ndarray, size: int, order: int) -> list[_Level]:
    text, sentence = _marked(tokens.astype(np.int64), offsets)
    ids = np.arange(size)
    nothing = np.zeros(size, dtype=np.int64)
    # Row of the n-gram that begins at each place, -1 where the sentence ends before it does.
    rows = text
    orders = [(nothing, ids, nothing, np.bincount(text, minlength=size))]
    for n in range(2, order + 1):
        begins = np.flatnonzero(sentence[: -(n - 1)] == sentence[n - 1 :])
        keys = rows[begins] * size + text[begins + n - 1]
        unique, indices, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        suffix = rows[begins[indices] + 1]
        orders.append((unique // size, unique % size, suffix, counts))
        rows = np.full(len(text), -1)
        rows[begins] = inverse
    levels = []
    starts = ids == BOS
    for n, (context, words, suffix, counts) in enumerate(orders):
        if n:
            starts = starts[context]
        if n + 1 < len(orders):
            # The number of different words before each n-gram; there are none before the start of a sentence.
            predecessors = np.bincount(orders[n + 1][2], minlength=len(words))
            counts = np.where(starts, counts, predecessors)
        if n == 0:
            counts = np.where(ids == BOS, 0, counts)
        levels.append(_Level(context, words, suffix, counts))
    return levels


def _marked(tokens: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The text with BOS before and EOS after each sentence, and the number of each word's sentence."""
    lengths = np.diff(offsets)
    sentence = np.repeat(np.arange(len(lengths)), lengths + 2)
    text = np.empty(len(tokens) + 2 * len(lengths), dtype=np.int64)
    begins = offsets[:-1] + 2 * np.arange(len(lengths))
    ends = begins + lengths + 1
    inside = np.ones(len(text), dtype=bool)
    inside[begins] = inside[ends] = False
    text[begins], text[ends], text[inside] = BOS, EOS, tokens
    return text, sentence


def _discounts(counts: np.ndarray) -> np.ndarray:
    """Discounts of counts of 0, 1, 2, and 3 or more (Chen & Goodman 1999, equation 26).

    Where a text is so small that the formula gives no discount, 0.5, 1 and 1.5 are taken off.
    """
    # n[i]: number of n-grams with the count i, as in the equation.
    n = np.bincount(np.minimum(counts, 5), minlength=5).astype(float)
    share = n[1] / max(1.0, n[1] + 2 * n[2])
    discounts = [i - (i + 1) * share * n[i + 1] / n[i] if n[i] else -1.0 for i in (1, 2, 3)]
    usable = all(0 < value <= i for i, value in enumerate(discounts, 1))
    return np.array([0.0, *(discounts if usable else (0.5, 1.0, 1.5))])


def _uniform(size: int) -> np.ndarray:
    """1 / V for each word: all ids but padding and the start symbol."""
    share = np.full(size, 1.0 / max(1, size - 2))
    share[[PAD, BOS]] = 0
    return share
