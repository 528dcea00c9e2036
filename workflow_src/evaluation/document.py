"""A document as blocks. `html.py` and `markdown.py` render it: everything that one of them shows, the other shows too.

Texts are plain: renderers escape them. Tables and pictures with a number are counted in the order of the document.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rapidfuzz.distance import LCSseq

if TYPE_CHECKING:
    from workflow_src.evaluation.charts import Chart


@dataclasses.dataclass(frozen=True)
class Caption:
    """A line, and notes by their subjects, which pages fold; empty notes are left out."""

    line: str
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def nonempty_notes(self) -> list[tuple[str, str]]:
        return [(term, text) for term, text in self.notes.items() if text]

    def __bool__(self) -> bool:
        return bool(self.line or self.nonempty_notes)


@dataclasses.dataclass(frozen=True)
class Code:
    """Text of a program, or of a command."""

    text: str


@dataclasses.dataclass(frozen=True)
class Strong:
    """Text that stands out."""

    text: str


Inline = str | Code | Strong


@dataclasses.dataclass(frozen=True)
class Heading:
    """The heading of what follows within a section."""

    text: str


@dataclasses.dataclass(frozen=True)
class Paragraph:
    parts: tuple[Inline, ...]

    @classmethod
    def of(cls, *parts: Inline) -> Paragraph:
        return cls(parts)


@dataclasses.dataclass(frozen=True)
class Points:
    """A list of sentences."""

    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Command:
    """A command to copy."""

    text: str


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table: a figure or a text, and a small note beside it.

    `kind` is a class of the page. `language` is the code of the text's language, where it is a sentence.
    """

    text: str
    note: str = ""
    kind: str = ""
    strong: bool = False
    code: bool = False
    language: str = ""


@dataclasses.dataclass(frozen=True)
class GroupRow:
    """The title of the rows that follow."""

    title: str


@dataclasses.dataclass(frozen=True)
class Table:
    """The first `left` columns are words, the others figures. `look`, `wide` and `stacked` are for the page.

    Where the page is narrow, each row of a stacked table is a list of its cells below each other, with their heads.
    """

    heads: Sequence[str]
    rows: Sequence[GroupRow | Sequence[str | Cell]]
    caption: Caption = Caption("")
    numbered: bool = False
    left: int = 1
    look: Literal["plain", "main", "plain systems", "plain facts", "main experiments"] = "plain"
    wide: bool = False
    stacked: bool = False


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture, which is saved as `figures/NAME.svg` and `.png`.

    label   the picture in words, for readers who cannot see it
    title   what begins the caption of a picture without a number
    narrow  whether the page limits its width
    """

    name: str
    chart: Chart
    caption: Caption
    label: str
    title: str = ""
    narrow: bool = False

    @property
    def numbered(self) -> bool:
        return not self.title


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of an example: its name, and a sentence of the source or target language.

    `runs` are the sentence in parts, where some of it is marked: those are strong. `first` begins a group of lines.
    `style` is a class of the page. A `remark` stands in place of a sentence.
    """

    name: str
    text: str
    runs: tuple[str | Strong, ...] = ()
    source: bool = False
    first: bool = False
    style: str = ""
    remark: bool = False


@dataclasses.dataclass(frozen=True)
class Example:
    """Sentences that belong together. `framed` is for the page."""

    lines: tuple[Line, ...]
    framed: bool = True


@dataclasses.dataclass(frozen=True)
class Fold:
    """Blocks that the page folds away below a title."""

    title: str
    blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Beside:
    """Blocks that stand beside each other where there is room."""

    blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Section:
    """A section with a number. `anchor` is the target of links to it, of which one is in the head of the page."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""


Block = Heading | Paragraph | Points | Command | Table | Picture | Example | Fold | Beside | Section


@dataclasses.dataclass(frozen=True)
class Document:
    """A page of sections.

    about      lines below the title
    summary    what the document says, in a few blocks before the first section
    files      names and addresses of files beside the page
    palette    colours of the page: class, and the colour on light and on dark paper
    languages  codes of the source and target language of examples
    footer     text at the end
    """

    title: str
    sections: Sequence[Section]
    about: Sequence[str] = ()
    summary: Sequence[Block] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    palette: Sequence[Mapping[str, str]] = ()
    languages: tuple[str, str] = ("", "")
    footer: str = ""

    def pictures(self) -> Iterator[Picture]:
        """All pictures of the document."""
        return _pictures(self.sections)


def _pictures(blocks: Sequence[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Picture):
            yield block
        elif isinstance(block, Section | Fold | Beside):
            yield from _pictures(block.blocks)


def table_of(entries: Sequence[GroupRow | Mapping[str, str | Cell]], words: Sequence[str], **options: Any) -> Table:
    """A table of entries by head, which all entries share; empty cells are dashes, and empty columns are left out.

    The heads in `words` stand to the left. `options` are further fields of the table.
    """
    rows = [entry for entry in entries if not isinstance(entry, GroupRow)]
    heads = [head for head in (rows[0] if rows else ()) if any(row[head] != "" for row in rows)]
    cells = [
        entry if isinstance(entry, GroupRow) else [entry[head] if entry[head] != "" else "–" for head in heads]
        for entry in entries
    ]
    return Table(heads, cells, left=sum(head in words for head in heads), **options)


def cell_of(cell: str | Cell) -> Cell:
    """A cell, which may be its text alone."""
    return Cell(cell) if isinstance(cell, str) else cell


def changed_words(before: list[str], after: list[str]) -> list[bool]:
    """For each word of `after`, whether it is new: outside a longest common subsequence with `before`."""
    inserted = {step.dest_pos for step in LCSseq.editops(before, after) if step.tag == "insert"}
    return [place in inserted for place in range(len(after))]


def marked(before: str, after: str) -> tuple[str | Strong, ...]:
    """`after` in runs of words; those that are not in `before` are strong."""
    words = after.split()
    runs: list[str | Strong] = []
    flags = changed_words(before.split(), words)
    for is_new, run in itertools.groupby(zip(words, flags, strict=True), key=lambda pair: pair[1]):
        text = " ".join(word for word, _ in run)
        runs.append(Strong(text) if is_new else text)
    return tuple(runs)
