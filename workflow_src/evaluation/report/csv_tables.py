"""CSV files as tables whose columns have types: those of an experiment's results, and the leaderboard."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflow_src.errors import ArtifactError, short_repr

# Types of columns in pandas.
TEXT = "str"
COUNT = "Int64"
NUMBER = "float64"
BOOL = "bool"


def finite(text: str) -> float:
    """The number that a text is. Raises ValueError for one that is not finite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


# How cells are read. Absent text is empty, and absent numbers are unknown.
CELLS: dict[str, Callable[[str], Any]] = {
    TEXT: str,
    COUNT: np.int64,
    NUMBER: finite,
    BOOL: {"True": True, "False": False}.__getitem__,
}


def as_csv(table: pd.DataFrame) -> str:
    """A table as the text of a CSV file with a line of headings; unknown values are empty."""
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text


def as_table(cells: Any, types: Mapping[str, str]) -> pd.DataFrame:
    """A list of entries by column, or columns by name, as a table with columns of these types.

    Its index has the line of each entry in a file that `as_csv` writes.
    """
    table = pd.DataFrame(cells, columns=list(types), dtype=object)
    table.index += 2
    texts = [column for column, kind in types.items() if kind == TEXT]
    table[texts] = table[texts].fillna("")
    return table.astype(types)


def read_csv(path: Path, types: Mapping[str, str], advice: str, optional: Sequence[str] = ()) -> pd.DataFrame:
    """A table from its file; columns that are `optional` may be missing. Its index has the line of each entry.

    Raises ArtifactError where the file is missing or damaged, or has other columns; `advice` ends the sentence.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            # Records may have blank lines between them, and line breaks in their cells.
            records = [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, ValueError, csv.Error) as failure:
        raise ArtifactError(path, f"cannot be read as a table: {failure}", advice) from failure
    (_, heads), *rows = records or [(0, [])]
    expected = [column for column in types if column in heads or column not in optional]
    if heads != expected:
        differing = sorted({*heads} ^ {*expected}) or ["their order"]
        raise ArtifactError(path, f"has other columns than expected ({', '.join(differing)})", advice)
    entries = []
    for line, cells in rows:
        if len(cells) != len(heads):
            raise ArtifactError(path, f"has not {len(heads)} cells", advice, line=line)
        entry = {}
        for column, text in zip(heads, cells, strict=True):
            try:
                entry[column] = CELLS[types[column]](text) if text else None
            except (ValueError, KeyError, OverflowError):
                raise ArtifactError(path, f"has {short_repr(text)} as {column}", advice, line=line) from None
        entries.append(entry)
    return as_table(entries, types).set_axis([line for line, _ in rows])
