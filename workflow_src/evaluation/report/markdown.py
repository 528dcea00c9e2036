"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tabulate import tabulate


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table of cells as text: the first `left` columns stand to the left, the others to the right."""
    lines = [[_escaped(cell) for cell in row] for row in rows]
    sides = ["left"] * left + ["right"] * (len(heads) - left)
    return tabulate(lines, list(map(_escaped, heads)), tablefmt="pipe", colalign=sides, disable_numparse=True)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, as text."""
    return f"{value:+.{digits}f}".replace("-", "−")


def group_row(title: str, heads: Sequence[str]) -> list[str]:
    """The row that begins a group of rows: its title in bold, other cells empty."""
    return [f"**{title}**", *[""] * (len(heads) - 1)]


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|")
