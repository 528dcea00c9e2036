"""Prefix beam search (Graves & Jaitly 2014; Hannun et al. 2014) over the probable symbols of slots.

An output's probability is the sum over its alignments. The search goes through the slots and keeps the best prefixes,
each with the probability of its alignments that end in a blank and of those that end in its last symbol.

This is plain Python on numbers: a slot has few symbols, and small tensors would be slower. A prefix is a number, an
index into lists of its properties, because objects would take as long as the search. `compiled` has the same steps for
Numba, which is faster. This module is its reference in tests, and is used where Numba is missing or the language model
is no n-gram model.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from math import inf, log
from typing import Any, NamedTuple

import numpy as np

from workflow_src.errors import ConfigError
from workflow_src.searches.ctc_beam import slots
from workflow_src.searches.ctc_beam.slots import Row
from workflow_src.types import EOS, LanguageModel

# Maximum number of continuations that are cached across sentences: some 40 MB.
CACHED = 2**17
# Below this, probabilities are scaled before they vanish.
SMALLEST = 1e-100


def vanished() -> ConfigError:
    """The error for a sentence in which all prefixes have the probability 0."""
    problem = "no translation has a probability any more"
    return ConfigError("lm_weight", problem=problem, hint="use smaller values of lm_weight and word_bonus")


class Slot(NamedTuple):
    """The probable symbols of a slot, with probabilities relative to its best symbol.

    `blank` is the blank's log-probability and probability (-inf and 0 where it is not probable enough); `symbols` are
    (symbol, log-probability, probability) of all others, the best first.
    """

    blank: tuple[float, float]
    symbols: Sequence[tuple[int, float, float]]


NO_BLANK = (-inf, 0.0)
BLANK_ALONE = Slot((0.0, 1.0), ())

# Score and subwords.
Output = tuple[float, tuple[int, ...]]


def slots_of(row: Row, blank: int) -> list[Slot]:
    """The slots of a sentence, their symbols sorted by probability (stable)."""
    probabilities = np.exp(row.values).tolist()
    entries = zip(row.symbols.tolist(), row.values.tolist(), probabilities, strict=True)
    slots_of_row = []
    for count in row.counts.tolist():
        first = next(entries)
        if count > 1:
            slots_of_row.append(_slot([first, *itertools.islice(entries, count - 1)], blank))
        else:
            slots_of_row.append(Slot(NO_BLANK, [first]) if first[0] != blank else BLANK_ALONE)
    return slots_of_row


_VALUE = operator.itemgetter(1)


def _slot(symbols: list[tuple[int, float, float]], blank: int) -> Slot:
    symbols.sort(key=_VALUE, reverse=True)
    for place, (symbol, value, probability) in enumerate(symbols):
        if symbol == blank:
            del symbols[place]
            return Slot((value, probability), symbols)
    return Slot(NO_BLANK, symbols)


class ScoreNode(dict[int, tuple[float, "ScoreNode"]]):
    """Word -> (its score after a state of the language model, the node after it); filled on demand."""

    __slots__ = ("state", "word_scores")

    def __init__(self, word_scores: WordScores, state: Any):
        super().__init__()
        self.word_scores, self.state = word_scores, state

    def __missing__(self, word: int) -> tuple[float, ScoreNode]:
        step = self[word] = self.word_scores.step(self, word)
        return step


class WordScores:
    """Scores of words, which add up to lm_weight log p_LM(y) + word_bonus |y| for a prefix y.

    One object serves many sentences and caches results of the language model.
    """

    def __init__(self, language_model: LanguageModel | None, lm_weight: float, word_bonus: float):
        self.language_model, self.lm_weight, self.word_bonus = language_model, lm_weight, word_bonus
        self._clear_cache()

    def _clear_cache(self) -> None:
        state = self.language_model.start if self.language_model else None
        self._start = ScoreNode(self, state)
        self._states = {state: self._start}
        self._count = 0

    def start(self) -> ScoreNode:
        """The continuations of the empty prefix."""
        if self._count > CACHED:
            self._clear_cache()
        return self._start

    def step(self, node: ScoreNode, word: int) -> tuple[float, ScoreNode]:
        """The score of one more word, and the node after it. Without a language model there is one node."""
        self._count += 1
        if self.language_model is None:
            return self.word_bonus, node
        value, state = self.language_model.step(node.state, word)
        next_node = self._states.get(state)
        if next_node is None:
            next_node = self._states[state] = ScoreNode(self, state)
        return self.word_bonus + self.lm_weight * value, next_node

    def end(self, node: ScoreNode) -> float:
        """The score of the end of an output."""
        return self.lm_weight * self.language_model.step(node.state, EOS)[0] if self.language_model else 0.0


class Prefixes:
    """A tree of all prefixes that were ever in the beam of a sentence, by number; 0 is the empty prefix.

    For each prefix there are the prefix without its last symbol (`parent`), that symbol (`last`), the score of its
    words (`extra`), their continuations, and its `children`, the prefixes of one more symbol (None: no children).
    """

    def __init__(self, word_scores: WordScores):
        self.parent, self.last, self.extra = [-1], [-1], [0.0]
        self.nodes = [word_scores.start()]
        self.children: list[dict[int, int] | None] = [None]

    def add(self, parent: int, symbol: int, extra: float, node: ScoreNode) -> int:
        number = len(self.last)
        self.parent.append(parent)
        self.last.append(symbol)
        self.extra.append(extra)
        self.nodes.append(node)
        self.children.append(None)
        children = self.children[parent]
        if children is None:
            self.children[parent] = {symbol: number}
        else:
            children[symbol] = number
        return number

    def tokens(self, prefix: int) -> tuple[int, ...]:
        words = []
        while prefix:
            words.append(self.last[prefix])
            prefix = self.parent[prefix]
        return tuple(reversed(words))


class PrefixBeam:
    """`prefix_beam` for the row of a sentence; scores of the language model are cached across sentences."""

    probable = staticmethod(slots.probable)

    def __init__(
        self,
        blank: int,
        width: int,
        threshold: float | None,
        language_model: LanguageModel | None,
        lm_weight: float,
        word_bonus: float,
    ):
        self.blank, self.width, self.threshold = blank, width, threshold
        self.word_scores = WordScores(language_model, lm_weight, word_bonus)

    def __call__(self, row: Row) -> list[Output]:
        return prefix_beam(slots_of(row, self.blank), self.width, self.word_scores, self.threshold)

    def best(self, row: Row) -> tuple[Output, int]:
        """The best output, and the number of outputs."""
        outputs = self(row)
        return outputs[0], len(outputs)


# Score, prefix, and the probabilities of its alignments that end in a blank and in its last symbol.
Beam = list[tuple[float, int, float, float]]
# Score, prefix, the symbol that it grows by (-1: none), and the probability of alignments that end in the last symbol.
# The last element is the symbol's (score, continuations), or without one the probability of alignments that end in a
# blank.
Continuation = tuple[float, int, int, float, Any]


def prefix_beam(
    slots: Sequence[Slot], width: int, word_scores: WordScores, threshold: float | None = None
) -> list[Output]:
    """(score, output) of the best prefixes after all slots, best first, at most `width`.

    Scores are log p(y|x), relative to the best symbol of every slot, plus scores of words. Continuations whose score is
    more than `threshold` below the best of their slot are dropped.
    """
    prefixes = Prefixes(word_scores)
    beam: Beam = [(0.0, 0, 1.0, 0.0)]
    scale, certain, gap, most = 0.0, -1, inf if threshold is None else threshold, max(0.0, word_scores.word_bonus)
    for blank, symbols in slots:
        if not symbols:
            # The blank alone: no prefix grows.
            beam = [(score, prefix, ended + open_, 0.0) for score, prefix, ended, open_ in beam]
            certain = -1
            continue
        alone = len(symbols) == 1 and blank is NO_BLANK
        # The same certain symbol again merges with the one before it.
        if alone and symbols[0][0] == certain:
            continue
        certain = symbols[0][0] if alone else -1
        if beam[0][2] + beam[0][3] < SMALLEST:
            beam, scale = _scaled(beam, scale)
        grown = _one_more(certain, beam, prefixes) if alone and threshold is None else None
        beam = grown or _after(blank, symbols, beam, prefixes, width, gap, most)
    ranked = [(score + scale + word_scores.end(prefixes.nodes[prefix]), prefix) for score, prefix, _, _ in beam]
    return [(score, prefixes.tokens(prefix)) for score, prefix in sorted(ranked, reverse=True)]


def _scaled(beam: Beam, scale: float) -> tuple[Beam, float]:
    """Divide all probabilities by the largest where that is too small; its logarithm is added to `scale`."""
    largest = max(ended + open_ for _, _, ended, open_ in beam)
    if largest >= SMALLEST:
        return beam, scale
    if not largest:
        raise vanished()
    log_largest = log(largest)
    return [
        (score - log_largest, prefix, ended / largest, open_ / largest) for score, prefix, ended, open_ in beam
    ], scale + log_largest


def _one_more(symbol: int, beam: Beam, prefixes: Prefixes) -> Beam | None:
    """The beam after a slot of this symbol alone: every prefix grows by it, and nothing is dropped.

    None where a prefix already ends in the symbol: it may stay unchanged.
    """
    lasts, extras, nodes, trees = prefixes.last, prefixes.extra, prefixes.nodes, prefixes.children
    grown = []
    for score, prefix, ended, open_ in beam:
        if lasts[prefix] == symbol:
            return None
        children = trees[prefix]
        child = children.get(symbol) if children else None
        added, node = nodes[prefix][symbol]
        if child is None:
            child = prefixes.add(prefix, symbol, extras[prefix] + added, node)
        grown.append((score + added, child, 0.0, ended + open_))
    return grown


def _after(
    blank: tuple[float, float],
    symbols: Sequence[tuple[int, float, float]],
    beam: Beam,
    prefixes: Prefixes,
    width: int,
    gap: float,
    most: float,
) -> Beam:
    """The beam after a slot. A continuation by one word adds at most `most` to a score: log p_LM is at most 0."""
    continued, opens = _longer(symbols, beam, prefixes, max(beam)[0] + blank[0] - gap, most)
    continued += _unchanged(blank, beam, prefixes, opens)
    if not continued:
        raise vanished()
    if gap < inf:
        least = max(continued)[0] - gap
        continued = [continuation for continuation in continued if continuation[0] >= least]
    if len(continued) > width:
        continued.sort(reverse=True)
        del continued[width:]
    after = []
    for score, prefix, symbol, probability, step in continued:
        if symbol < 0:
            after.append((score, prefix, step, probability))
        else:
            added, node = step
            number = prefixes.add(prefix, symbol, prefixes.extra[prefix] + added, node)
            after.append((score, number, 0.0, probability))
    return after


def _longer(
    symbols: Sequence[tuple[int, float, float]], beam: Beam, prefixes: Prefixes, least: float, most: float
) -> tuple[list[Continuation], dict[int, float]]:
    """New prefixes of one more symbol with a score of at least `least`; and for existing prefixes, the probability of
    alignments that end in their last symbol at this slot."""
    lasts, extras, nodes, trees = prefixes.last, prefixes.extra, prefixes.nodes, prefixes.children
    opens: dict[int, float] = {}
    longer: list[Continuation] = []
    for parent_score, prefix, ended, open_ in beam:
        total, last_symbol, children, node = ended + open_, lasts[prefix], trees[prefix], nodes[prefix]
        for symbol, value, p in symbols:
            score, probability = parent_score + value, total * p
            if score + most < least:
                break
            if symbol == last_symbol:
                # The last symbol repeated: the same prefix, or, after a blank, one more symbol.
                if open_:
                    opens[prefix] = opens.get(prefix, 0.0) + open_ * p
                probability = ended * p
                if not probability:
                    continue
                score = log(probability) + extras[prefix]
            if children:
                child = children.get(symbol)
                if child is not None:
                    opens[child] = opens.get(child, 0.0) + probability
                    continue
            step = node[symbol]
            score += step[0]
            if score >= least and probability:
                longer.append((score, prefix, symbol, probability, step))
    return longer, opens


def _unchanged(
    blank: tuple[float, float], beam: Beam, prefixes: Prefixes, opens: dict[int, float]
) -> list[Continuation]:
    """Existing prefixes after a blank or their last symbol; removes those of the beam from `opens`."""
    log_blank, p_blank = blank
    extras, unchanged = prefixes.extra, []
    for score, prefix, ended, open_ in beam:
        new_open = opens.pop(prefix, 0.0)
        if new_open:
            ended = (ended + open_) * p_blank
            unchanged.append((log(ended + new_open) + extras[prefix], prefix, -1, new_open, ended))
        elif p_blank:
            unchanged.append((score + log_blank, prefix, -1, 0.0, (ended + open_) * p_blank))
    for prefix, open_ in opens.items():
        if open_:
            unchanged.append((log(open_) + extras[prefix], prefix, -1, open_, 0.0))
    return unchanged
