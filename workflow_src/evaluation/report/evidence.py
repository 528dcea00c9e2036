"""Lines of the main table, and evidence for conclusions about them: lines that are as good as others, and systems that
were trained long enough to compare."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import pandas as pd

from workflow_src.config.resolved import System
from workflow_src.evaluation.manifest import Key, ShownDecode
from workflow_src.evaluation.quality.significance import LEVEL, PairedDifference
from workflow_src.evaluation.report.files import Pairs
from workflow_src.evaluation.report.results import FROM_CONTROL, TIMES, Mean
from workflow_src.spec import Metric

# Figures of lines beside those of metrics.
FIGURES = (*TIMES, "against_fastest", "as_published")


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a table: means over its `seeds` by figure; `metrics` are those of its scores, the main one first."""

    decode: ShownDecode
    label: str
    metrics: tuple[Metric, ...]
    means: Mapping[str, Mean]
    expected: float | None = None
    seeds: int = 1
    # The autoregressive line that `against_fastest` compares with.
    rival: Line | None = None
    # Median of each round in milliseconds, and the numbers, from 1, of disturbed ones.
    latency_rounds: tuple[float, ...] = ()
    disturbed_rounds: tuple[int, ...] = ()

    @functools.cached_property
    def figures(self) -> dict[str, float | None]:
        """Means by figure; None for those of tables that the line lacks."""
        names = [*(metric.name for metric in self.metrics), *FIGURES]
        return dict.fromkeys(names) | {name: mean.value for name, mean in self.means.items()}

    @property
    def spread(self) -> dict[str, float] | None:
        """Deviations of figures that all seeds have; None for one seed."""
        if self.seeds == 1:
            return None
        whole = {name: mean.deviation for name, mean in self.means.items() if mean.seeds == self.seeds}
        return {name: deviation for name, deviation in whole.items() if deviation is not None}

    @property
    def p_values(self) -> dict[str, float]:
        """p-values by metric, of a line of one seed."""
        of_one = self.means.items() if self.seeds == 1 else ()
        return {name: mean.p for name, mean in of_one if mean.p is not None and name != FROM_CONTROL}

    @property
    def system(self) -> str:
        return self.decode.system.name

    @property
    def name(self) -> str:
        return self.decode.name

    @property
    def main(self) -> Metric:
        return self.metrics[0]

    @property
    def quality(self) -> float:
        """The figure of the main metric."""
        value = self.figures[self.main.name]
        assert value is not None, "every row has a figure of the main metric"
        return value

    @property
    def milliseconds(self) -> float:
        """Median latency; the line must have been timed."""
        value = self.figures["latency_ms"]
        assert value is not None, "the line was timed"
        return value

    @property
    def goodness(self) -> float:
        """The figure of the main metric, with a sign such that higher is better."""
        return self.main.sign * self.quality

    @property
    def deciding(self) -> list[tuple[Metric, float]]:
        """The main metric and others that decide whether a line is as good as another one, with their figures."""
        deciding = [metric for metric in self.metrics if metric is self.main or metric.decides]
        return [(metric, value) for metric in deciding if (value := self.figures.get(metric.name)) is not None]


@dataclasses.dataclass(frozen=True)
class Group:
    """Lines of one system, or of one model and its refiners, named by the system `head`."""

    title: str
    head: System
    lines: tuple[Line, ...]

    @property
    def autoregressive(self) -> bool:
        return self.head.family.autoregressive


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The evidence for comparisons of rows of a table.

    `seeds` and `measured` are the seeds of each row of the table, and the names of its figures; `pairs` the differences
    of rows from autoregressive ones; `unfinished` the systems with a training that was cut short; `margin` the
    points, as tables show them, that a row may lose and still be as good as another one.
    """

    seeds: Mapping[Key, Sequence[int]]
    measured: Mapping[Key, Collection[str]]
    pairs: Pairs
    margin: float
    unfinished: frozenset[str]
    metrics: tuple[Metric, ...]

    @classmethod
    def of(
        cls,
        figures: pd.DataFrame,
        pairs: Pairs,
        margin: float,
        unfinished: Iterable[str],
        metrics: Sequence[Metric],
    ) -> Evidence:
        """The evidence about the rows of a table (`Results.shown`) by those of `metrics` that decide and that some row
        has."""
        rows = figures.groupby(["system", "decode"])
        seeds = {key: sorted(set(of_row)) for key, of_row in rows["seed"]}
        measured = {key: set(of_row) for key, of_row in rows["figure"]}
        deciding = tuple(
            metric
            for metric in metrics
            if metric.decides and any(metric.name in of_row for of_row in measured.values())
        )
        return cls(seeds, measured, pairs, margin, frozenset(unfinished), deciding)

    @functools.cached_property
    def level(self) -> float:
        """The probability that an interval leaves out the true difference: by Bonferroni's correction for all pairs of
        rows that are compared, it is LEVEL for all of them together, in each metric."""
        # Not for all metrics together: a row must be as good in each of them.
        compared = {frozenset((ours[:-1], theirs[:-1])) for ours, theirs in self.pairs}
        return LEVEL / max(1, len(compared))

    def _of_seed(self, line: Line, other: Line, seed: int) -> Mapping[str, PairedDifference] | None:
        ours, theirs = (*line.decode.key, seed), (*other.decode.key, seed)
        if (ours, theirs) in self.pairs:
            return self.pairs[ours, theirs]
        opposite = self.pairs.get((theirs, ours))
        return opposite and {figure: difference.reversed() for figure, difference in opposite.items()}

    def as_good(self, line: Line, other: Line) -> bool:
        """Whether `line` is shown to be at most the margin below `other`, in every metric that decides and every seed:
        the lower end of the corrected interval of their difference lies above the negative margin.

        A figure that the corpus has and that was not compared shows nothing.
        """
        if line.decode.key == other.decode.key:
            return True
        intervals = self.intervals(line, other)
        return bool(intervals) and all(
            metric in intervals and intervals[metric][0] > -self.margin for metric in self._measured(line)
        )

    def lower(self, line: Line, other: Line) -> bool:
        """Whether `line` is shown to lose more than the margin in a metric that decides, with every seed: the upper
        ends of the corrected intervals lie below the negative margin."""
        return any(high < -self.margin for _, high in self.intervals(line, other).values())

    def cannot_tell(self, line: Line, other: Line) -> bool:
        """Whether the test set shows neither that `line` is as good as `other` nor that it is lower."""
        return not self.as_good(line, other) and not self.lower(line, other)

    def _measured(self, line: Line) -> list[Metric]:
        """Metrics that decide and that the corpus has a figure of."""
        return [metric for metric in self.metrics if metric.name in self.measured[line.decode.key]]

    def too_bad(self, line: Line) -> str | None:
        """In which figure a line is too bad for any conclusion; None where it is not."""
        for metric in self.metrics:
            figure = line.figures.get(metric.name)
            if metric.least is None or figure is None:
                continue
            if metric.sign * figure < metric.sign * metric.least:
                amount = "less" if metric.better == "higher" else "more"
                return f"“{line.decode.system.name}” has {amount} than {metric.in_words(metric.factor * metric.least)}"
        return None

    def still_learning(self, line: Line) -> str | None:
        """Which system of a line was still learning when its training ended; None where none was.

        Its rows are what they are, and may be as good as others. That they are no better is not for good.
        """
        for name in (line.decode.system.name, line.decode.system.group):
            if name in self.unfinished:
                return f"“{name}” was still learning when its training ended"
        return None

    def why_unfit(self, rivals: Sequence[Line]) -> str | None:
        """Why nothing is concluded from a comparison with the autoregressive lines of one kind of engine: their best
        one is too bad, or was still learning, so that others would be as good as what is half trained; None otherwise.
        """
        best = max(rivals, key=lambda rival: rival.goodness)
        return self.too_bad(best) or self.still_learning(best)

    def intervals(self, line: Line, other: Line) -> dict[Metric, tuple[float, float]]:
        """The corrected intervals of two lines' difference in points as tables show them, by metric that decides;
        positive is better. Of several seeds they are from the lowest to the highest end. A metric is left out in which
        a seed was not compared."""
        by_seed = [self._of_seed(line, other, seed) or {} for seed in self.seeds[line.decode.key]]
        intervals = {}
        for metric in self._measured(line):
            if all(metric.name in of_seed for of_seed in by_seed):
                pairs = [of_seed[metric.name].interval(self.level) for of_seed in by_seed]
                ends = [metric.sign * metric.factor * end for pair in pairs for end in pair]
                intervals[metric] = min(ends), max(ends)
        return intervals
