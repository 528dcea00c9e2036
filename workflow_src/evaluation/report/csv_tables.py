"""CSV files as tables whose columns have types: those of an experiment's results, and the leaderboard."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_src.errors import ArtifactError, short_repr

# Types of columns in pandas.
TEXT = "str"
COUNT = "Int64"
NUMBER = "float64"
BOOL = "bool"
# How cells are read. Absent text is empty, and absent numbers are unknown.
CELLS: dict[str, Callable[[str], Any]] = {
    TEXT: str,
    COUNT: int,
    NUMBER: float,
    BOOL: {"True": True, "False": False}.__getitem__,
}


def as_csv(table: pd.DataFrame) -> str:
    """A table as the text of a CSV file with a line of headings; unknown values are empty."""
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text


def as_table(cells: Any, types: Mapping[str, str]) -> pd.DataFrame:
    """A list of entries by column, or columns by name, as a table with columns of these types."""
    table = pd.DataFrame(cells, columns=list(types), dtype=object)
    texts = [column for column, kind in types.items() if kind == TEXT]
    table[texts] = table[texts].fillna("")
    return table.astype(types)


def read_csv(path: Path, types: Mapping[str, str], advice: str, optional: Sequence[str] = ()) -> pd.DataFrame:
    """A table from its file; columns that are `optional` may be missing.

    Raises ArtifactError where the file is missing or damaged, or has other columns; `advice` ends the sentence.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [line for line in csv.reader(file, strict=True) if line]
    except (OSError, ValueError, csv.Error) as failure:
        raise ArtifactError(path, f"cannot be read as a table: {failure}", advice) from failure
    heads, lines = rows[0] if rows else [], rows[1:]
    expected = [column for column in types if column in heads or column not in optional]
    if heads != expected:
        differing = sorted({*heads} ^ {*expected}) or ["their order"]
        raise ArtifactError(path, f"has other columns than expected ({', '.join(differing)})", advice)
    for number, line in enumerate(lines, 2):
        if len(line) != len(heads):
            raise ArtifactError(path, f"has not {len(heads)} cells", advice, line=number)
    columns = dict(zip(heads, zip(*lines, strict=True), strict=True)) if lines else {}
    return as_table({name: _values(path, name, cells, types[name], advice) for name, cells in columns.items()}, types)


def _values(path: Path, column: str, cells: Sequence[str], kind: str, advice: str) -> list[Any]:
    values = []
    for number, text in enumerate(cells, 2):
        try:
            values.append(CELLS[kind](text) if text else None)
        except (ValueError, KeyError):
            raise ArtifactError(path, f"has {short_repr(text)} as {column}", advice, line=number) from None
    return values
