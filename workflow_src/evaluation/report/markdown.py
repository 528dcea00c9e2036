"""A document as Markdown, and escaping of text, so that no character of it is markup."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate

from workflow_src.evaluation.document import (
    Beside,
    Block,
    Caption,
    Cell,
    Code,
    Command,
    Document,
    Example,
    Fold,
    GroupRow,
    Heading,
    Inline,
    Line,
    Paragraph,
    Picture,
    Points,
    Section,
    Strong,
    Table,
    cell_of,
)

# Characters that begin or end markup anywhere in a line: code, emphasis, tags, cells, formulas, links, entities. An
# underscore inside of a word, a bracket alone and a < without a letter after it do not.
MARKUP = re.compile(
    r"[\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|\](?=[\[(:])|&(?=#?\w+;)",
)
# Markup at the beginning of a line: headings, quotations, lists, rules.
BLOCK = re.compile(r"^(\d*)(?=[.)])|^(?=[#>+=-])")


class Formatted(str):
    """Text that is Markdown already."""


def plain(text: str) -> Formatted:
    """`text` escaped for a line or a cell; line breaks become blanks."""
    if isinstance(text, Formatted):
        return text
    return Formatted(MARKUP.sub(r"\\\g<0>", " ".join(text.splitlines()).strip()))


def paragraph(text: str) -> Formatted:
    """`text` escaped for a paragraph."""
    return Formatted(BLOCK.sub(r"\1\\", plain(text), count=1))


def bold(text: str) -> Formatted:
    return Formatted(f"**{plain(text)}**")


def code(text: str) -> Formatted:
    """`text` as code; escaped as text where it has a character that would end the code or its cell."""
    return plain(text) if not text.strip() or {"`", "|", "\n"} & {*text} else Formatted(f"`{text}`")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, compact: bool = False) -> str:
    """A table in Markdown; the first `left` columns are aligned to the left, the others to the right.

    A `compact` one has no padding, as mdformat writes tables.
    """
    lines = [list(map(plain, row)) for row in rows]
    if compact:
        rule = ["--"] * left + ["-:"] * (len(heads) - left)
        return "\n".join(f"| {' | '.join(line)} |" for line in (map(plain, heads), rule, *lines))
    sides = ["left"] * left + ["right"] * (len(heads) - left)
    return tabulate(lines, list(map(plain, heads)), tablefmt="pipe", colalign=sides, disable_numparse=True)


def markdown(document: Document) -> str:
    """The document with its tables, and links to its pictures in the folder `figures`."""
    tables, figures = itertools.count(1), itertools.count(1)

    def rendered(blocks: Sequence[Block]) -> Iterator[str]:
        for block in blocks:
            match block:
                case Section():
                    yield f"## {plain(block.title)}"
                    yield from rendered(block.blocks)
                case Heading():
                    yield f"### {plain(block.text)}"
                case Fold():
                    yield f"#### {plain(block.title)}"
                    yield from rendered(block.blocks)
                case Beside():
                    yield from rendered(block.blocks)
                case Paragraph():
                    yield _paragraph(block.parts)
                case Points():
                    yield "\n".join(f"- {paragraph(text)}" for text in block.texts)
                case Command():
                    yield f"```\n{block.text}\n```"
                case Table():
                    yield _captioned(block.caption, f"Table {next(tables)}" if block.numbered else "")
                    yield table(block)
                    yield _notes(block.caption)
                case Picture():
                    yield f"![{plain(block.label)}](figures/{block.name}.svg)"
                    yield _captioned(block.caption, f"Figure {next(figures)}" if block.numbered else block.title)
                    yield _notes(block.caption)
                case Example():
                    yield _example(block)

    parts = [f"# {plain(document.title)}", *map(paragraph, document.about)]
    parts += [*rendered(document.summary), *rendered(document.sections)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def table(block: Table, compact: bool = False) -> str:
    """A table without its caption: titles of groups are bold."""
    rows = [
        [bold(row.title), *[""] * (len(block.heads) - 1)]
        if isinstance(row, GroupRow)
        else [_cell(cell_of(cell)) for cell in row]
        for row in block.rows
    ]
    heads = block.heads or [""] * len(rows[0]) if rows else block.heads
    return markdown_table(heads, rows, block.left, compact)


def _cell(cell: Cell) -> str:
    text = bold(cell.text) if cell.strong else code(cell.text) if cell.code else plain(cell.text)
    return Formatted(" ".join(filter(None, [text, plain(cell.note)])))


def _paragraph(parts: Sequence[Inline]) -> str:
    texts: list[str] = []
    for part in parts:
        match part:
            case Code():
                texts.append(code(part.text))
            case Strong():
                texts.append(bold(part.text))
            case _:
                # `plain` drops blanks at the ends, which separate parts.
                begin, end = (" " * part[at : at + 1 or None].isspace() for at in (0, -1))
                texts.append(begin + plain(part) + end)
    return Formatted(BLOCK.sub(r"\1\\", "".join(texts).strip(), count=1))


def _example(block: Example) -> str:
    """A paragraph and a list: lists alone would be one with those of the examples beside them."""
    first_line, *others = map(_line, block.lines)
    return "\n".join([first_line, "", *(f"- {line}" for line in others)])


def _line(line: Line) -> str:
    runs = [bold(run.text) if isinstance(run, Strong) else plain(run) for run in line.runs or (line.text,)]
    return f"{paragraph(line.name)}: {' '.join(runs)}"


def _captioned(caption: Caption, title: str) -> str:
    """The line of a caption behind its title or number, if it has one."""
    return f"{bold(f'{title}.')} {plain(caption.line)}".strip() if title else paragraph(caption.line)


def _notes(caption: Caption) -> str:
    return "\n".join(f"- {bold(term)}: {plain(text)}" for term, text in caption.nonempty_notes)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, as text."""
    return f"{value:+.{digits}f}".replace("-", "−")
