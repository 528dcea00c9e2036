"""Evidence for conclusions: rows that are as good as others, and systems that were trained long enough to compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from workflow_src.config.manifest import DecodeInfo
from workflow_src.evaluation.quality.significance import LEVEL
from workflow_src.evaluation.report.progress import still_improving
from workflow_src.evaluation.report.results import Pairs, Row
from workflow_src.registry import default_metrics
from workflow_src.spec import Metric

# With fewer sentences, a test hardly distinguishes rows, so rows without a significant difference are not called equal.
LEAST_SENTENCES = 100


class Line(Protocol):
    """A line of a table."""

    @property
    def decode(self) -> DecodeInfo: ...

    @property
    def figures(self) -> Mapping[str, float | None]: ...


def cut_short(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a training ended while it was still improving much, or was too short to show it.

    False for systems without BLEU in their validations, such as language models.
    """
    if not any(entry.get("dev_bleu") is not None and entry["step"] > 0 for entry in history):
        return False
    return still_improving(history) is not False


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The evidence for comparisons of rows of a table.

    `rows` are those of the table, every seed by itself; `pairs` the p-values of rows against autoregressive ones;
    `unfinished` the systems with a training that was cut short; `sentences` the size of the test set.
    """

    rows: Mapping[tuple[str, str], Mapping[int, Row]]
    pairs: Pairs
    unfinished: frozenset[str] = frozenset()
    sentences: int = 0
    metrics: tuple[Metric, ...] = dataclasses.field(default_factory=default_metrics)

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        pairs: Pairs,
        unfinished: Iterable[str] = (),
        sentences: int = 0,
        metrics: Sequence[Metric] | None = None,
    ) -> Evidence:
        """The evidence about `rows` of results.json, one of each system, name and seed, by those of `metrics` (the
        default ones) that decide."""
        by_key: dict[tuple[str, str], dict[int, Row]] = {}
        for row in rows:
            by_key.setdefault((row.system, row.name), {})[row.seed] = row
        measured = default_metrics() if metrics is None else metrics
        deciding = tuple(metric for metric in measured if metric.decides)
        return cls(by_key, pairs, frozenset(unfinished), sentences, deciding)

    def p_values(self, line: Line, other: Line, seed: int) -> Mapping[str, float] | None:
        """p-values of two lines' difference by figure, or None where they were not compared."""
        ours, theirs = (*line.decode.key, seed), (*other.decode.key, seed)
        return self.pairs.get((ours, theirs)) or self.pairs.get((theirs, ours))

    def as_good(self, line: Line, other: Line) -> bool:
        """Whether no test finds `line` worse than `other`, in any metric that decides and any seed.

        False where they were not compared, or on too few sentences.
        """
        if line.decode.key == other.decode.key:
            return True
        ours, theirs = self.rows[line.decode.key], self.rows[other.decode.key]
        return self.sentences >= LEAST_SENTENCES and all(
            self._as_good(ours[seed], theirs.get(seed), self.p_values(line, other, seed)) for seed in ours
        )

    def _as_good(self, row: Row, other: Row | None, p_values: Mapping[str, float] | None) -> bool:
        if other is None or p_values is None:
            return False
        for metric in self.metrics:
            ours, theirs = row.figure(metric), other.figure(metric)
            if ours is None or theirs is None or metric.sign * ours >= metric.sign * theirs:
                continue
            # An untested difference counts as significant.
            if p_values.get(metric.name, 0.0) < LEVEL:
                return False
        return True

    def why_inconclusive(self, line: Line) -> str | None:
        """Why nothing is concluded about a line: its figures or its training are too bad; None otherwise."""
        for metric in self.metrics:
            figure = line.figures.get(metric.name)
            if metric.least is None or figure is None:
                continue
            if metric.sign * figure < metric.sign * metric.least:
                amount = "less" if metric.better == "higher" else "more"
                return f"“{line.decode.system.name}” has {amount} than {metric.least:g} {metric.title}"
        for name in (line.decode.system.name, line.decode.system.group):
            if name in self.unfinished:
                return f"“{name}” was still learning when its training ended"
        return None

    def p_words(self, line: Line, other: Line) -> str:
        """p-values of two lines' difference in words: of one seed, or the smallest of several."""
        seeds = self.rows[line.decode.key]
        tested = [values for seed in seeds if (values := self.p_values(line, other, seed))]
        relation = "≥" if len(tested) > 1 else "="
        return ", ".join(
            f"{f'of {metric.title}' if number else 'p'} {relation} {min(values[metric.name] for values in tested):.2g}"
            for number, metric in enumerate(self.metrics)
            if tested and all(metric.name in values for values in tested)
        )
