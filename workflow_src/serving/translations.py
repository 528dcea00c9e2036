"""Translations with scores, further hypotheses, and where their subwords come from."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence

from workflow_src.serving.sentences import Part, join


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation of a line, or of a sentence.

    score     of the search's ranking; of a line, the sum over its sentences
    subwords  output of the search, before repetitions are removed
    origins   for each subword the position in `Translation.source` that it was read off, from 0; None where the search
              does not know it, or it was not requested
    """

    text: str
    score: float
    subwords: tuple[str, ...] = ()
    origins: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Translation:
    """The hypotheses of a line with different texts, best first, and the source subwords that the model reads.

    `unknown` are the characters of the line that are outside of the model's vocabulary, `lost` those of them that the
    best hypothesis lacks, without marks of sentences. `placeholders` counts those of the line, and what became of them
    in the best hypothesis (`Placeholders.outcomes`). Source subwords include the end symbol of each sentence. For
    `family: ctranslate2` they are the model's own subwords, with `source_prefix` and `source_suffix` around each
    sentence, without an end symbol that CTranslate2 itself adds.
    """

    hypotheses: tuple[Hypothesis, ...]
    source: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    placeholders: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        return self.hypotheses[0].score


# A hypothesis for each of the first sentences of a line, the last first: all that begin alike share the beginning.
Chain = tuple[Hypothesis, "Chain"] | None


def distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses with different texts and finite scores, best first.

    The first always stays: it is the translation.
    """
    by_text: dict[str, Hypothesis] = {}
    for hypothesis in hypotheses:
        if not by_text or math.isfinite(hypothesis.score):
            by_text.setdefault(hypothesis.text, hypothesis)
    return list(by_text.values())


def of_lines(
    sentences: Sequence[Translation], parts: Sequence[Part], spaces: Sequence[str], count: int
) -> list[Translation]:
    """The translations of lines from those of their parts; see `of_line`."""
    translations = []
    for _, numbers in itertools.groupby(range(len(parts)), key=lambda number: parts[number].line):
        first, *further = numbers
        line = slice(first, first + 1 + len(further))
        if further:
            translations.append(of_line(sentences[line], spaces[line], count))
        else:
            sentence = sentences[first]
            translations.append(dataclasses.replace(sentence, hypotheses=sentence.hypotheses[:count]))
    return translations


def of_line(sentences: Sequence[Translation], spaces: Sequence[str], count: int) -> Translation:
    """The translation of a line from those of its sentences, with the white space before each.

    Its hypotheses are the `count` combinations with the largest sums of scores. This is exact: a combination that is
    not among the best of the first sentences cannot become so with one sentence more.
    """
    best: list[tuple[float, Chain]] = [(0.0, None)]
    for sentence in sentences:
        longer: list[tuple[float, Chain]] = [
            (total + hypothesis.score, (hypothesis, chain))
            for total, chain in best
            for hypothesis in sentence.hypotheses
        ]
        # Stable for equal sums, so that the best hypothesis of a line has the best of each sentence.
        best = heapq.nlargest(count, longer, key=lambda pair: pair[0])
    starts = [0, *itertools.accumulate(len(sentence.source) for sentence in sentences)]
    hypotheses = [_joined(total, _hypotheses_of(chain), spaces, starts) for total, chain in best]
    return Translation(
        tuple(distinct(hypotheses)),
        tuple(piece for sentence in sentences for piece in sentence.source),
        tuple(character for sentence in sentences for character in sentence.unknown),
        tuple(character for sentence in sentences for character in sentence.lost),
        {name: sum(sentence.placeholders[name] for sentence in sentences) for name in sentences[0].placeholders},
    )


def _hypotheses_of(chain: Chain) -> list[Hypothesis]:
    chosen = []
    while chain is not None:
        hypothesis, chain = chain
        chosen.append(hypothesis)
    return chosen[::-1]


def _joined(total: float, chosen: Sequence[Hypothesis], spaces: Sequence[str], starts: Sequence[int]) -> Hypothesis:
    """One hypothesis of a line; `starts` are the places of sentences among the line's source subwords."""
    origins: tuple[int, ...] | None = None
    if all(hypothesis.origins is not None for hypothesis in chosen):
        sentences = zip(starts, chosen, strict=False)
        origins = tuple(start + origin for start, hypothesis in sentences for origin in hypothesis.origins or ())
    subwords = tuple(piece for hypothesis in chosen for piece in hypothesis.subwords)
    return Hypothesis(join([hypothesis.text for hypothesis in chosen], spaces), total, subwords, origins)


# Tabs, and what Python, editors or spreadsheets take for the end of a line.
SEPARATORS = dict.fromkeys(map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")


def text_lines(number: int, translation: Translation, numbered: bool, scored: bool) -> Iterator[str]:
    """A line for each hypothesis: with `numbered` the number of its source line, with `scored` its score, then its
    text, with tabs between them.

    Beside other columns, tabs and line breaks of a text become spaces: the white space of its source line is in it.
    """
    for hypothesis in translation.hypotheses:
        columns = [str(number)] * numbered + [f"{hypothesis.score:.6f}"] * scored
        text = hypothesis.text.translate(SEPARATORS) if columns else hypothesis.text
        yield "\t".join([*columns, text])


def json_line(translation: Translation) -> str:
    """The translation as a line of JSON; origins are left out where the search does not know them, and characters
    outside of the vocabulary where there are none."""
    hypotheses = [
        {"text": hypothesis.text, "score": _number(hypothesis.score), "subwords": hypothesis.subwords}
        | ({} if hypothesis.origins is None else {"origins": hypothesis.origins})
        for hypothesis in translation.hypotheses
    ]
    content = {"text": translation.text, "score": _number(translation.score), "source": translation.source}
    if translation.unknown:
        content |= {"unknown": translation.unknown, "lost": translation.lost}
    return json.dumps(content | {"hypotheses": hypotheses}, ensure_ascii=False)


def _number(score: float) -> float | None:
    """The score, or None where it is not finite: JSON has no such numbers."""
    return score if math.isfinite(score) else None
