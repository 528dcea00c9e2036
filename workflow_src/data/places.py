"""Where the lines of a text were taken from, so that a message can name the user's file and line."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any


class Places:
    """File names (source, target) and a line number, from 1, for every pair of two line-aligned texts.

    Kept as runs of consecutive lines of the same files: an unchanged text needs one run.
    """

    def __init__(self, runs: Iterable[list[Any]] = ()):
        # [row of the first pair, source file, target file, its line]
        self.runs: list[list[Any]] = [list(run) for run in runs]
        self._rows = 0

    def add(self, names: tuple[str, str], number: int) -> None:
        """The place of the next pair."""
        last = self.runs[-1] if self.runs else None
        if last is None or last[1:3] != list(names) or number - last[3] != self._rows - last[0]:
            self.runs.append([self._rows, *names, number])
        self._rows += 1

    def of(self, row: int) -> tuple[tuple[str, str], int]:
        """The names and the line of pair `row`, from 0."""
        first, source, target, number = self.runs[bisect.bisect_right(self.runs, row, key=lambda run: run[0]) - 1]
        return (source, target), number + row - first
