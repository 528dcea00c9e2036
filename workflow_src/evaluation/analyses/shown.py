"""What the sections of analyses share: a picture with the table of its figures, and words."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from workflow_src.evaluation.document import Block, Caption, Fold, Picture, Table

if TYPE_CHECKING:
    from workflow_src.evaluation.charts import Chart


def figured(
    chart: Chart | None, caption: Caption, label: str, table: Table | None = None, errors: bool = False
) -> list[Block]:
    """A picture with the table of its figures folded away below it. Where there is no picture, the table has its
    caption; without a table, nothing is left.

    chart   None where there is nothing to draw
    label   the picture in words, for readers who cannot see it
    errors  whether the table has errors that the picture shows as bars
    """
    if chart is None:
        return [captioned(table, caption)] if table else []
    blocks: list[Block] = [Picture("", chart, caption, label)]
    if table:
        line = f"What the figure shows{', with its errors' if errors else ''}."
        blocks.append(Fold("The same in figures", [captioned(table, Caption(line))]))
    return blocks


def captioned(table: Table, caption: Caption) -> Table:
    """The table with a caption and a number."""
    return dataclasses.replace(table, caption=caption, numbered=True)


def sentence(words: str) -> str:
    """Words from within a sentence as one by themselves."""
    return f"{words[0].upper()}{words[1:]}."


def decimal(figure: float | None) -> str:
    """A figure with one decimal, or a dash for none."""
    return "–" if figure is None else f"{figure:.1f}"
