"""Lines of the main table: means over seeds of a row, and the groups of lines of one system."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from workflow_src.config.resolved import System
from workflow_src.evaluation.manifest import ShownDecode
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
