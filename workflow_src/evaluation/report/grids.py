"""Tables over two settings of a family's systems, with energy and quality as in Table 2 of Tu et al. 2020."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workflow_src.config.plan.grids import GridCell, GridInfo
from workflow_src.evaluation.document import Beside, Block, Caption, Heading, Table
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.captions import removal_words, source_words
from workflow_src.evaluation.report.evidence import Group, Line


def tables(
    manifest: Manifest,
    split: str,
    at_reference_lengths: Sequence[Mapping[str, Any]],
    table: Sequence[Group],
) -> list[Block]:
    """A heading and a table for every grid, beside a table of published figures where there are some.

    A cell has the energy in nats a sentence and, in brackets, the main metric, both at the references' lengths, where
    the system was measured there; else the main metric of the system's first line in `table`. The metric follows
    `report.expected_convention`.
    """
    counted = manifest.published
    # The first decode of each system, by the systems that score it.
    at_lengths: dict[str, dict[str, Mapping[str, Any]]] = {}
    for entry in at_reference_lengths:
        # Other analyses may measure something else there.
        if {"energy_per_sentence", "scorer"} <= entry.keys():
            at_lengths.setdefault(entry["system"], {}).setdefault(entry["scorer"], entry)
    lines: dict[str, Line] = {}
    for line in (line for group in table for line in group.lines):
        lines.setdefault(line.system, line)

    def cell(grid_cell: GridCell | None) -> str:
        if grid_cell is None:
            return "–"
        if by_scorer := at_lengths.get(grid_cell.system):
            entry = by_scorer[_scorer(grid_cell, by_scorer)]
            return f"{_decimal(entry['energy_per_sentence'])} ({_decimal(entry.get(counted.name))})"
        first = lines.get(grid_cell.system)
        mean = first.means.get(counted.name) if first else None
        return _decimal(mean.value if mean and first and mean.seeds == first.seeds else None)

    return [
        block
        for grid in manifest.grids
        for block in _table(grid, cell, _caption(grid, manifest, split, at_lengths, lines), manifest)
    ]


def _table(grid: GridInfo, cell: Callable[[GridCell | None], str], caption: Caption, manifest: Manifest) -> list[Block]:
    heads = [f"{_setting(grid.row_setting)} \\ {_setting(grid.column_setting)}", *grid.columns]
    cells_of_rows = [[name, *map(cell, cells)] for name, cells in zip(grid.rows, grid.cells, strict=True)]
    tables = [Table(heads, cells_of_rows, caption)]
    if grid.published:
        published_rows = [[name, *cells] for name, cells in zip(grid.rows, grid.published, strict=True)]
        tables.append(Table(heads, published_rows, Caption(f"Published{source_words(manifest.report)}.")))
    return [Heading(grid.title), Beside(tables)]


def _scorer(cell: GridCell, scorers: Mapping[str, Any]) -> str:
    """The system whose energy a cell shows: the first of its own that scores, or else the first."""
    return next((name for name in cell.scorers if name in scorers), next(iter(scorers)))


def _decimal(figure: float | None) -> str:
    """A figure with one decimal, or a dash for none."""
    return "–" if figure is None else f"{figure:.1f}"


def _setting(path: str) -> str:
    return path.rpartition(".")[2].replace("_", " ")


def _caption(
    grid: GridInfo,
    manifest: Manifest,
    split: str,
    at_lengths: Mapping[str, Mapping[str, Any]],
    lines: Mapping[str, Line],
) -> Caption:
    report = manifest.report
    cells = [cell for row in grid.cells for cell in row if cell is not None]
    measured = [cell for cell in cells if cell.system in at_lengths]
    counted = f"{manifest.main.title} ({manifest.convention.title})"
    rows, columns = _setting(grid.row_setting), _setting(grid.column_setting)
    sentences = []
    if measured:
        scorers = " or ".join(dict.fromkeys(_scorer(cell, at_lengths[cell.system]) for cell in measured))
        sentences.append(
            f"At the references' lengths on {split}: energy in nats a sentence under {scorers}, and in "
            f"brackets {counted}; {removal_words(report.remove_repetitions)}."
        )
    if len(measured) < len(cells):
        subject = "A figure alone is" if measured else "Figures are"
        first = [lines[cell.system].decode for cell in cells if cell not in measured and cell.system in lines]
        meant = {decode.means_repetitions for decode in first if not decode.autoregressive}
        removed = f"; {removal_words(report.remove_repetitions, meant)}" if meant else ""
        sentences.append(f"{subject} {counted} of a system's first row in the main table{removed}.")
    line = f"Systems of family {grid.family}, {rows} in rows and {columns} in columns."
    return Caption(line, {"Cells": " ".join(sentences)})
