"""What a report may conclude: which rows are as good as others, and which were trained long enough to be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from workflow_src.config.manifest import DecodeInfo
from workflow_src.evaluation.quality.significance import LEVEL
from workflow_src.evaluation.report.progress import still_improving
from workflow_src.evaluation.report.results import Pairs, Row

# Below this BLEU nothing is concluded.
LEAST_BLEU = 5.0
# A test of fewer sentences hardly tells rows apart: nothing is concluded from what it does not tell.
LEAST_SENTENCES = 100

FIGURES = ("bleu", "validity")


class Line(Protocol):
    """What is asked about: a line of a table."""

    @property
    def decode(self) -> DecodeInfo: ...

    @property
    def figures(self) -> Mapping[str, float | None]: ...


def cut_short(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a training ended while it was still improving much, or was too short to tell.

    What is not measured in BLEU while it trains, such as a language model, is not judged.
    """
    if not any(entry.get("dev_bleu") is not None and entry["step"] > 0 for entry in history):
        return False
    return still_improving(history) is not False


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What comparisons of a table rest on.

    `rows` are those of the table, every seed by itself; `pairs` the p-values of rows against autoregressive ones;
    `unfinished` the systems of which a training was cut short; `sentences` the size of the test set.
    """

    rows: Mapping[tuple[str, str], Mapping[int, Row]]
    pairs: Pairs
    unfinished: frozenset[str] = frozenset()
    sentences: int = 0

    @classmethod
    def of(cls, rows: Iterable[Row], pairs: Pairs, unfinished: Iterable[str] = (), sentences: int = 0) -> Evidence:
        """The evidence about `rows` of results.json, one of each system, name and seed."""
        by_key: dict[tuple[str, str], dict[int, Row]] = {}
        for row in rows:
            by_key.setdefault((row.system, row.name), {})[row.seed] = row
        return cls(by_key, pairs, frozenset(unfinished), sentences)

    def p_values(self, line: Line, other: Line, seed: int) -> Mapping[str, float] | None:
        """p-values of two lines' difference by figure, or None where they were not compared."""
        ours, theirs = (*line.decode.key, seed), (*other.decode.key, seed)
        return self.pairs.get((ours, theirs)) or self.pairs.get((theirs, ours))

    def as_good(self, line: Line, other: Line) -> bool:
        """Whether the test tells `line` lower than `other` in none of the figures that both have, in no seed.

        Not where they were not compared, or in too few sentences.
        """
        if line.decode.key == other.decode.key:
            return True
        ours, theirs = self.rows[line.decode.key], self.rows[other.decode.key]
        return self.sentences >= LEAST_SENTENCES and all(
            self._as_good(ours[seed], theirs.get(seed), self.p_values(line, other, seed)) for seed in ours
        )

    @staticmethod
    def _as_good(row: Row, other: Row | None, p_values: Mapping[str, float] | None) -> bool:
        if other is None or p_values is None:
            return False
        for figure in FIGURES:
            ours, theirs = getattr(row, figure), getattr(other, figure)
            # What was not tested is as good only where it is no lower.
            if ours is not None and theirs is not None and ours < theirs and p_values.get(figure, 0.0) < LEVEL:
                return False
        return True

    def lacking(self, line: Line) -> str | None:
        """Why nothing is concluded about a line: its BLEU, or its training; None where something may be."""
        if line.figures["bleu"] < LEAST_BLEU:
            return f"“{line.decode.system.name}” has less than {LEAST_BLEU:g} BLEU"
        for name in (line.decode.system.name, line.decode.system.group):
            if name in self.unfinished:
                return f"“{name}” was still learning when its training ended"
        return None

    def p_words(self, line: Line, other: Line) -> str:
        """p-values of two lines' difference in words: of one seed, or the smallest of several."""
        seeds = self.rows[line.decode.key]
        tested = [values for seed in seeds if (values := self.p_values(line, other, seed))]
        names = {"bleu": "p", "validity": "of validity"}
        told = ", ".join(
            f"{names[figure]} {'≥' if len(tested) > 1 else '='} {min(values[figure] for values in tested):.2g}"
            for figure in FIGURES
            if tested and all(figure in values for values in tested)
        )
        return told
