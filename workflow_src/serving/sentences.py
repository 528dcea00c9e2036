"""Lines of any length as parts that a model can take, and the translations of parts as lines again."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Sequence

import sentencex

from workflow_src.config.tokenisers import spaced
from workflow_src.data.placeholders import Placeholders, put_back
from workflow_src.data.texts import two_letters

log = logging.getLogger("continuum")
# Where a clause ends: behind a mark with white space, and behind a full-width mark.
CLAUSE = re.compile(r"(?<=[,;:،؛–—…])\s+|(?<=[、，；：])\s*")
WORD = re.compile(r"\s+")


# Addresses, tags and the like, within which no sentence ends.
SPANS = Placeholders()


@dataclasses.dataclass(frozen=True)
class Part:
    """A sentence of a line, or a piece of one: the place of its line, the white space before it, and its text.

    There is no white space before the first part of a line.
    """

    line: int
    before: str
    text: str


def whole_lines(lines: Sequence[str]) -> list[Part]:
    """Each line as one part."""
    return [Part(number, "", line) for number, line in enumerate(lines)]


def split_lines(lines: Sequence[str], language: str) -> list[Part]:
    """The sentences of each line; a line without any text is one part.

    `language` (ISO 639) says how sentences end and which words are abbreviations; languages that are not known are
    split as English. No sentence ends within an address, a tag or the like.
    """
    code = two_letters(re.split("[-_]", language.lower())[0])
    parts: list[Part] = []
    for number, line in enumerate(lines):
        before, first = "", len(parts)
        segments = sentencex.segment(code, line)
        if len(segments) > 1:
            text_of_line, spans = SPANS.mask(line)
            following = iter(spans)
            segments = [put_back(segment, following) for segment in sentencex.segment(code, text_of_line)]
        for segment in segments:
            text = segment.strip()
            left, right = segment[: len(segment) - len(segment.lstrip())], segment[len(segment.rstrip()) :]
            before += left
            if text:
                parts.append(Part(number, before if len(parts) > first else "", text))
                before = right
        if len(parts) == first:
            parts.append(Part(number, "", line))
    return parts


def cut(part: Part, fits: Callable[[str], bool]) -> list[Part]:
    """Pieces of a part that fit: it is halved until all do.

    A half ends with the clause that is nearest to the middle, in the middle half of the text; else with the nearest
    word; else inside a word. An address, a tag or the like is cut only where it is all that is left.
    """
    return _cut(part, fits, SPANS.places(part.text))


def _cut(part: Part, fits: Callable[[str], bool], spans: Sequence[tuple[int, int]]) -> list[Part]:
    """`cut`, with the spans of the text: those of the whole, because a piece by itself may seem to have others."""
    text = part.text
    if len(text) < 2 or fits(text):
        return [part]
    begin, end = _middle(text, spans)
    left, right = Part(part.line, part.before, text[:begin]), Part(part.line, text[begin:end], text[end:])
    before = [span for span in spans if span[1] <= begin]
    after = [(first - end, last - end) for first, last in spans if first >= end]
    return [*_cut(left, fits, before), *_cut(right, fits, after)]


def cut_long(
    parts: Sequence[Part],
    sizes: Sequence[int],
    most: int,
    size: Callable[[str], int],
    place: str = "",
    first_line: int = 1,
) -> list[Part]:
    """Parts of at most `most` subwords: longer ones are cut, with a warning.

    `sizes` are those of parts in subwords, `size` counts those of a text. Warnings begin with `place`, and count lines
    from `first_line`.
    """
    pieces: list[Part] = []
    for part, number in zip(parts, sizes, strict=True):
        own = [part] if number <= most else cut(part, lambda text: size(text) <= most)
        pieces += own
        if len(own) > 1:
            log.warning(
                "warning: %sline %d has a sentence of %d subwords, and the model takes at most %d; it is cut into %d "
                "parts",
                place,
                first_line + part.line,
                number,
                most,
                len(own),
            )
    return pieces


def _middle(text: str, whole: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Begin and end of the white space at which a text with the spans `whole` is cut in two."""
    size = len(text)
    for pattern, least in ((CLAUSE, max(1, size // 4)), (WORD, 1)):
        spans = [m.span() for m in pattern.finditer(text) if m.start() >= least and m.end() <= size - least]
        outside = [span for span in spans if not any(begin < span[0] < end for begin, end in whole)]
        if outside:
            return min(outside, key=lambda span: abs(sum(span) - size))
    edges = {edge for span in whole if span[0] < size // 2 < span[1] for edge in span} - {0, size}
    middle = min(edges, key=lambda edge: abs(2 * edge - size), default=size // 2)
    return middle, middle


def gaps(parts: Sequence[Part], source: str, target: str) -> list[str]:
    """Text before the translation of each part: its own white space, or a space where the target language has spaces
    between words and the source language has none."""
    space = " " if spaced(target) and not spaced(source) else ""
    first = [number == 0 or parts[number - 1].line != part.line for number, part in enumerate(parts)]
    return ["" if begins else part.before or space for begins, part in zip(first, parts, strict=True)]


def join(texts: Sequence[str], before: Sequence[str]) -> str:
    """The line of translations with the white space before each; empty translations are left out."""
    line = ""
    for text, gap in zip(texts, before, strict=True):
        if text:
            line += gap + text if line else text
    return line
