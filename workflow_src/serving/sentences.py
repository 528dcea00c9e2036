"""Lines of any length as parts that a model can take, and the translations of parts as lines again."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import logging
import re
from collections.abc import Callable, Sequence

import sentencex

from workflow_src.config.languages import spaced, two_letters
from workflow_src.data.placeholders import Placeholders, put_back
from workflow_src.serving.sentence_ends import join_protected

log = logging.getLogger("continuum")
# Where a clause ends: behind a mark with white space, and behind a full-width mark.
CLAUSE = re.compile(r"(?<=[,;:،؛–—…])\s+|(?<=[、，；：])\s*")
WORD = re.compile(r"\s+")
# Marks of sentences and clauses. A translation has those of its own language.
MARKS = frozenset(".,;:!?…。、，；：！？،؛؟।")


# White space outside of ASCII, as a space. sentencex panics over a full stop behind a capital and such white space.
PLAIN_SPACE = {number: " " for number in range(0x80, 0x3001) if chr(number).isspace()}

# Addresses, tags and the like, within which no sentence ends.
SPANS = Placeholders()


@dataclasses.dataclass(frozen=True)
class Part:
    """A sentence of a line, or a piece of one: the index of its line, the white space before it (none before the first
    part of a line), and its text."""

    line: int
    space: str
    text: str


def whole_lines(lines: Sequence[str]) -> list[Part]:
    """Each line as one part."""
    return [Part(number, "", line) for number, line in enumerate(lines)]


def split_lines(lines: Sequence[str], language: str) -> list[Part]:
    """The sentences of each line; a line without any text is one part.

    `language` (ISO 639) selects rules for sentence ends and abbreviations; an unknown language is split as English. No
    sentence ends within an address, a tag or the like.
    """
    code = two_letters(re.split("[-_]", language.lower())[0])
    parts: list[Part] = []
    for number, line in enumerate(lines):
        space, first_part = "", len(parts)
        segments = _segments(code, line)
        if len(segments) > 1:
            text_of_line, spans = SPANS.mask(line)
            next_spans = iter(spans)
            segments = join_protected(_segments(code, text_of_line), code)
            segments = [put_back(segment, next_spans) for segment in segments]
        for segment in segments:
            text = segment.strip()
            leading, trailing = segment[: len(segment) - len(segment.lstrip())], segment[len(segment.rstrip()) :]
            space += leading
            if text:
                parts.append(Part(number, space if len(parts) > first_part else "", text))
                space = trailing
        if len(parts) == first_part:
            parts.append(Part(number, "", line))
    return parts


def _segments(language: str, line: str) -> list[str]:
    """The sentences of a line, with the white space around them; the whole line where sentencex fails over it."""
    plain = line if line.isascii() else line.translate(PLAIN_SPACE)
    try:
        segments = sentencex.segment(language, plain)
    except BaseException as failure:
        # A panic of a library in Rust is no `Exception`, and its class cannot be imported.
        if type(failure).__name__ != "PanicException":
            raise
        return [line]
    ends = itertools.accumulate(map(len, segments), initial=0)
    return [line[begin:end] for begin, end in itertools.pairwise(ends)]


def cut(part: Part, fits: Callable[[str], bool]) -> list[Part]:
    """Pieces of a part that fit: it is halved until all do.

    A half ends with the clause that is nearest to the middle, in the middle half of the text; else with the nearest
    word; else inside a word. An address, a tag or the like is cut only where it is all that is left.
    """
    return _cut(part, fits, SPANS.places(part.text))


def _cut(part: Part, fits: Callable[[str], bool], spans: Sequence[tuple[int, int]]) -> list[Part]:
    """`cut` with the `spans` of addresses and tags, found in the whole text: in a piece, other spans may match."""
    text = part.text
    if len(text) < 2 or fits(text):
        return [part]
    begin, end = _middle(text, spans)
    first_half, second_half = Part(part.line, part.space, text[:begin]), Part(part.line, text[begin:end], text[end:])
    spans_before = [span for span in spans if span[1] <= begin]
    spans_after = [(first - end, last - end) for first, last in spans if first >= end]
    return [*_cut(first_half, fits, spans_before), *_cut(second_half, fits, spans_after)]


def cut_long(
    parts: Sequence[Part], sizes: Sequence[int], most: int, size: Callable[[str], int], place: str, first_line: int
) -> list[Part]:
    """Parts of at most `most` subwords: longer ones are cut, and a warning names the first and counts them.

    `sizes` are numbers of subwords of the parts; `size` counts the subwords of a text. Warnings begin with `place`, and
    count lines from `first_line`.
    """
    pieces: list[Part] = []
    longer: list[tuple[int, int]] = []
    for part, number in zip(parts, sizes, strict=True):
        pieces_of_part = [part] if number <= most else cut(part, lambda text: size(text) <= most)
        pieces += pieces_of_part
        if len(pieces_of_part) > 1:
            longer.append((first_line + part.line, number))
    if longer:
        log.warning(
            "warning: %sline %d has a sentence of %d subwords%s; longer ones than %d are translated in parts",
            place,
            *longer[0],
            f", the first of {len(longer):,} such sentences" if len(longer) > 1 else "",
            most,
        )
    return pieces


def _middle(text: str, protected: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Begin and end of the white space at which a text is cut in two, outside of the `protected` spans if possible."""
    size, begins = len(text), [begin for begin, _ in protected]

    def is_inside(place: int) -> bool:
        """Whether a place is within a protected span; these are in order and do not overlap."""
        number = bisect.bisect_left(begins, place)
        return number > 0 and place < protected[number - 1][1]

    for pattern, least in ((CLAUSE, max(1, size // 4)), (WORD, 1)):
        spans = [m.span() for m in pattern.finditer(text) if m.start() >= least and m.end() <= size - least]
        outside = [span for span in spans if not is_inside(span[0])]
        if outside:
            return min(outside, key=lambda span: abs(sum(span) - size))
    edges = {edge for span in protected if span[0] < size // 2 < span[1] for edge in span} - {0, size}
    middle = min(edges, key=lambda edge: abs(2 * edge - size), default=size // 2)
    return middle, middle


def gaps(parts: Sequence[Part], source: str, target: str) -> list[str]:
    """Text before the translation of each part: its own white space, or a space where the target language has spaces
    between words and the source language has none."""
    space = " " if spaced(target) and not spaced(source) else ""
    starts_line = [number == 0 or parts[number - 1].line != part.line for number, part in enumerate(parts)]
    return ["" if begins else part.space or space for begins, part in zip(starts_line, parts, strict=True)]


def join(texts: Sequence[str], spaces: Sequence[str]) -> str:
    """The translations as one line, with the white space before each; empty translations are left out."""
    pieces = [piece for text, gap in zip(texts, spaces, strict=True) if text for piece in (gap, text)]
    return "".join(pieces[1:])
