"""Translations with scores, further hypotheses, and where their subwords come from."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence

from workflow_src.serving.sentences import Part, join
from workflow_src.types import Ranked


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation of a line, or of a sentence.

    score     what the search ranks by; of a line, the sum over its sentences
    subwords  as the search put them out, before repetitions are removed
    origins   for each of these the place in `Translation.source` that it was read off, from 0; None where the search
              does not know, or was not asked
    """

    text: str
    score: float
    subwords: tuple[str, ...] = ()
    origins: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Translation:
    """The hypotheses of a line with different texts, best first, and the subwords that the model reads.

    Each sentence's end is one of these. `family: ctranslate2` has its model's own, with `source_prefix` and
    `source_suffix` around each sentence, and no end that CTranslate2 itself adds.
    """

    hypotheses: tuple[Hypothesis, ...]
    source: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        return self.hypotheses[0].score


@dataclasses.dataclass(frozen=True)
class Extras:
    """What callers get beside text: so many hypotheses, scores, and the source subwords that outputs were read off."""

    n_best: int | None = None
    scores: bool = False
    origins: bool = False

    @property
    def details(self) -> bool:
        return self.n_best is not None or self.scores or self.origins


PLAIN = Extras()


def distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses, best first, without those whose text a better one has, or whose score is not finite.

    The first always stays: it is the translation.
    """
    by_text: dict[str, Hypothesis] = {}
    for hypothesis in hypotheses:
        if not by_text or math.isfinite(hypothesis.score):
            by_text.setdefault(hypothesis.text, hypothesis)
    return list(by_text.values())


def of_sentences(
    ranked: Sequence[Ranked],
    texts: Sequence[str],
    origins: Sequence[Sequence[Sequence[int]]] | None,
    sources: Sequence[Sequence[str]],
    pieces_of: Callable[[list[int]], Sequence[str]] | None,
) -> list[Translation]:
    """The translations of sentences from all their hypotheses.

    `texts` are those of all hypotheses, one after another, `origins` the source positions of their subwords, which
    `pieces_of` names, `sources` the subwords of the sources by name.
    """
    following = iter(texts)
    translations = []
    for number, (own, source) in enumerate(zip(ranked, sources, strict=True)):
        hypotheses = []
        for place, (score, tokens) in enumerate(own):
            pieces = tuple(pieces_of(tokens)) if pieces_of else ()
            read_off = None if origins is None else tuple(origins[number][place])
            hypotheses.append(Hypothesis(next(following), score, pieces, read_off))
        translations.append(Translation(tuple(distinct(hypotheses)), tuple(source)))
    return translations


def of_lines(
    sentences: Sequence[Translation], parts: Sequence[Part], before: Sequence[str], count: int
) -> list[Translation]:
    """The translations of lines from those of their parts; see `of_line`."""
    translations = []
    for _, numbers in itertools.groupby(range(len(parts)), key=lambda number: parts[number].line):
        own = list(numbers)
        line = slice(own[0], own[-1] + 1)
        if len(own) > 1:
            translations.append(of_line(sentences[line], before[line], count))
        else:
            sentence = sentences[own[0]]
            translations.append(dataclasses.replace(sentence, hypotheses=sentence.hypotheses[:count]))
    return translations


def of_line(sentences: Sequence[Translation], before: Sequence[str], count: int) -> Translation:
    """The translation of a line from those of its sentences, with the white space before each.

    Its hypotheses are the `count` combinations with the largest sums of scores: exact, because what is not among the
    best of the first sentences can never become so with one sentence more.
    """
    best: list[tuple[float, tuple[Hypothesis, ...]]] = [(0.0, ())]
    for sentence in sentences:
        longer = [(total + one.score, (*chosen, one)) for total, chosen in best for one in sentence.hypotheses]
        # Of equal sums the first comes first, so that the best is that of all sentences.
        best = heapq.nlargest(count, longer, key=lambda pair: pair[0])
    starts = [0, *itertools.accumulate(len(sentence.source) for sentence in sentences)]
    hypotheses = [_joined(total, chosen, before, starts) for total, chosen in best]
    return Translation(tuple(distinct(hypotheses)), tuple(piece for one in sentences for piece in one.source))


def _joined(total: float, chosen: Sequence[Hypothesis], before: Sequence[str], starts: Sequence[int]) -> Hypothesis:
    """One hypothesis of a line; `starts` are the places of sentences among the line's source subwords."""
    origins: tuple[int, ...] | None = None
    if all(one.origins is not None for one in chosen):
        every = zip(starts, chosen, strict=False)
        origins = tuple(start + origin for start, one in every for origin in one.origins or ())
    subwords = tuple(piece for one in chosen for piece in one.subwords)
    return Hypothesis(join([one.text for one in chosen], before), total, subwords, origins)


def text_lines(number: int, translation: Translation, numbered: bool, scored: bool) -> Iterator[str]:
    """A line for each hypothesis: with `numbered` the number of its source line, with `scored` its score, then its
    text, with tabs between them."""
    for hypothesis in translation.hypotheses:
        columns = [str(number)] * numbered + [f"{hypothesis.score:.6f}"] * scored
        yield "\t".join([*columns, hypothesis.text])


def json_line(translation: Translation) -> str:
    """The translation as a line of JSON; origins are left out where the search does not know them."""
    hypotheses = [
        {"text": one.text, "score": _number(one.score), "subwords": one.subwords}
        | ({} if one.origins is None else {"origins": one.origins})
        for one in translation.hypotheses
    ]
    content = {"text": translation.text, "score": _number(translation.score), "source": translation.source}
    return json.dumps(content | {"hypotheses": hypotheses}, ensure_ascii=False)


def _number(score: float) -> float | None:
    """A score as JSON has numbers: None where it is not finite."""
    return score if math.isfinite(score) else None
