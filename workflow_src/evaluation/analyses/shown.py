"""Blocks of an analysis in the report: tables, pictures and example sentences. No matplotlib here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import markupsafe

from workflow_src.evaluation.report.captions import Caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Table:
    heads: list[str]
    rows: list[list[str]]


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of an example: its name, and a sentence of the source or target language.

    `html` is the sentence with marks. `first` begins a group of lines. `style` is a class of the page.
    """

    name: str
    text: str
    html: markupsafe.Markup | None = None
    source: bool = False
    first: bool = False
    style: str = ""


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of an analysis' section: a table, a picture, examples, or several of them under one heading.

    Without its picture, where nothing can be drawn, a block is its table, or nothing.

    caption   of the picture, and of the table where there is no picture: a line, and notes that pages fold
    title     its heading; None: that of the analysis for the first block, none for others
    table     heads and rows of words
    figure    draws the picture; returns None where there is nothing to draw
    label     the picture in words, for readers who cannot see it
    errors    whether the table has errors that the picture shows as bars
    folded    whether the page folds the table away below the picture
    examples  sentences above the picture
    """

    caption: Caption
    title: str | None = None
    table: Table | None = None
    figure: Callable[[], Figure | None] | None = None
    label: str = ""
    errors: bool = False
    folded: bool = False
    examples: tuple[tuple[Line, ...], ...] = ()


def sentence(words: str) -> str:
    """Words from within a sentence as one by themselves."""
    return f"{words[0].upper()}{words[1:]}."


def decimal(figure: float | None) -> str:
    """A figure with one decimal, or a dash for none."""
    return "–" if figure is None else f"{figure:.1f}"
