"""Tables in Markdown, and text in them: whatever it holds, it reads as itself and is never markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

# What begins or ends markup anywhere in a line: code, emphasis, tags, cells, formulas, links, entities. An underscore
# inside of a word, a bracket alone and a < that no letter follows do not.
MARKUP = re.compile(
    r"[\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|\](?=[\[(:])|&(?=#?\w+;)",
)
# What is markup where a line begins: headings, quotations, lists, rules.
BLOCK = re.compile(r"^(\d*)(?=[.)])|^(?=[#>+=-])")


class Formatted(str):
    """Text that is Markdown already."""


def plain(text: str) -> Formatted:
    """`text` inside of a line or a cell, so that it reads as itself; breaks of lines become blanks."""
    if isinstance(text, Formatted):
        return text
    return Formatted(MARKUP.sub(r"\\\g<0>", " ".join(text.splitlines()).strip()))


def paragraph(text: str) -> Formatted:
    """`text` as a paragraph, so that it reads as itself."""
    return Formatted(BLOCK.sub(r"\1\\", plain(text), count=1))


def bold(text: str) -> Formatted:
    return Formatted(f"**{plain(text)}**")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table of cells as text: the first `left` columns stand to the left, the others to the right."""
    lines = [list(map(plain, row)) for row in rows]
    sides = ["left"] * left + ["right"] * (len(heads) - left)
    return tabulate(lines, list(map(plain, heads)), tablefmt="pipe", colalign=sides, disable_numparse=True)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, as text."""
    return f"{value:+.{digits}f}".replace("-", "−")


def group_row(title: str, heads: Sequence[str]) -> list[str]:
    """The row that begins a group of rows: its title in bold, other cells empty."""
    return [bold(title), *[""] * (len(heads) - 1)]
