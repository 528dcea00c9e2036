"""Rows of texts in a temporary file, which are read by their numbers."""

from __future__ import annotations

import array
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from workflow_src.records.atomic import room_for


class StoredRows:
    """Rows of two texts or more, none of which has a line break, in the order in which they were added.

    A sequence of pairs, the first two texts of each row, in 8 bytes of memory a row. A context manager that owns an
    unnamed file in `folder`.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(dir=self._folder, buffering=1 << 20)
        self._ends = array.array("q", [0])
        self._written = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, texts: Iterable[str]) -> None:
        row = "\n".join(texts).encode("utf-8")
        with room_for(self._folder / "the rows that are split"):
            self._file.write(row)
        self._ends.append(self._ends[-1] + len(row))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def texts(self, row: int) -> list[str]:
        """All texts of a row."""
        if self._written < len(self):
            with room_for(self._folder / "the rows that are split"):
                self._file.flush()
            self._written = len(self)
        begin, end = self._ends[row], self._ends[row + 1]
        return os.pread(self._file.fileno(), end - begin, begin).decode("utf-8").split("\n")

    def __getitem__(self, row: int) -> tuple[str, str]:
        first, second = self.texts(row)[:2]
        return first, second
