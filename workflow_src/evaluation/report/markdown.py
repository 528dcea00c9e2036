"""Tables in Markdown, and escaping of text, so that no character of it is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

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


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown; the first `left` columns are aligned to the left, the others to the right."""
    lines = [list(map(plain, row)) for row in rows]
    sides = ["left"] * left + ["right"] * (len(heads) - left)
    return tabulate(lines, list(map(plain, heads)), tablefmt="pipe", colalign=sides, disable_numparse=True)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, as text."""
    return f"{value:+.{digits}f}".replace("-", "−")


def group_row(title: str, heads: Sequence[str]) -> list[str]:
    """The first row of a group: its title in bold, other cells empty."""
    return [bold(title), *[""] * (len(heads) - 1)]
