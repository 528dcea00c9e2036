"""Raw text: where its lines come from, and its summary, which download and clean write and clean and normalise read."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any

from pydantic import Field

from workflow_src.config.parts import Languages
from workflow_src.config.texts import TRAINING_SPLITS
from workflow_src.records.checked import Lenient


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


class RawSummary(Lenient):
    """Counts of raw text by split: train, dev and test sets in two languages, or text in one language alone.

    `dropped` counts by reason the lines that are left out, `inline_elements` those that segments of translation
    memories lost. `places` says where the lines of dev and test come from.
    `references` has the splits with several references of each source. `texts` has the lines of each text in one
    language.
    """

    languages: Languages
    pairs: dict[str, int] = Field(min_length=1)
    dropped: dict[str, dict[str, int]]
    inline_elements: dict[str, int] = {}
    places: dict[str, list[list[Any]]]
    dataset: str = ""
    references: dict[str, int] = {}
    texts: dict[str, int] = {}
    downloads: dict[str, Any] = {}
    cleaning: list[Any] = []

    @property
    def training(self) -> str:
        return next(name for name in self.pairs if name in TRAINING_SPLITS)

    @property
    def held_out(self) -> list[str]:
        return [name for name in self.pairs if name not in TRAINING_SPLITS]
