"""The picture of quality against every latency that was measured (Gu & Kong 2021, Figures 1 and 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow_src.config.manifest import Key
from workflow_src.evaluation.report.figures import STYLE, Curve, new_figure, stacked
from workflow_src.evaluation.report.figures_quality import (
    LINE,
    Times,
    best_first,
    draw_best,
    draw_curve,
    legend,
    listed,
    scale,
    short_labels,
    timed_curves,
    write_list,
    write_number,
)
from workflow_src.evaluation.report.speed_page import where
from workflow_src.evaluation.report.tables import Group, Line
from workflow_src.evaluation.speed.measured import Speed

# Panels in a row, and ticks of a panel.
ACROSS, TICKS = 2, 7


@dataclasses.dataclass(frozen=True)
class Latency:
    """A way to measure: `title` says on what and how many sentences together, `times` has milliseconds a sentence."""

    title: str
    times: Times


Drawn = list[tuple[Latency, list[Curve]]]


def latencies(speed: Speed | None) -> list[Latency]:
    """Two for each protocol of speed.json: one sentence at a time (medians), and in batches (all sentences' time)."""
    ways = []
    for one in speed.protocols if speed else ():
        rows, place = one.rows, where(one.protocol)
        alone = {row.key: row.latency_ms for row in rows}
        together = {row.key: 1000 / row.sentences_per_second for row in rows}
        if rows:
            sizes = sorted({row.batch for row in rows})
            of = "–".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
            ways += [Latency(f"{place}, one at a time", alone), Latency(f"{place}, in batches of {of}", together)]
    return ways


def quality_latencies(groups: list[Group], speed: Speed | None) -> Figure | None:
    """Quality against milliseconds a sentence (log scale), a panel a latency; None where no two rows were timed.

    A grey line joins the rows that no other row of the panel beats in both. They have numbers, the same in all panels;
    a list below the panels says which rows these are.
    """
    every_panel = ((latency, timed_curves(groups, latency.times)) for latency in latencies(speed))
    drawn = [(latency, curves) for latency, curves in every_panel if sum(len(curve.lines) for curve in curves) > 1]
    if not drawn:
        return None
    numbers = _numbers(drawn)
    down = -(-len(drawn) // ACROSS)
    every = {line.decode.key: line for _, curves in drawn for curve in curves for line in curve.lines}
    texts = short_labels(list(every.values()))
    entries = listed([(every[key], texts[id(every[key])]) for key in numbers])
    heights = (2.4 * down + 0.4, LINE * (len(entries) + 1))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, sum(heights))
        upper, lower = stacked(figure, heights)
        grid = upper.subplots(down, ACROSS, squeeze=False, sharey=True).flatten()
        for axes, panel in zip(grid, drawn, strict=False):
            _panel(axes, *panel, numbers)
        for axes in grid[: len(drawn) : ACROSS]:
            axes.set_ylabel(next(iter(every.values())).main.axis)
        for axes in grid[max(0, len(drawn) - ACROSS) : len(drawn)]:
            axes.set_xlabel("milliseconds a sentence, log scale")
        for axes in grid[len(drawn) :]:
            axes.set_visible(False)
        legend(grid[0], list(every.values()))
        write_list(lower, entries)
    return figure


def _numbers(drawn: Drawn) -> dict[Key, int]:
    """Numbers of the rows that some panel's grey line joins, the best first."""
    best: dict[Key, Line] = {}
    for latency, curves in drawn:
        lines = [line for curve in curves for line in curve.lines]
        best |= {line.decode.key: line for line in best_first(lines, latency.times)}
    order = sorted(best, key=lambda key: -best[key].goodness)
    return {key: number for number, key in enumerate(order, 1)}


def _panel(axes: Axes, latency: Latency, curves: list[Curve], numbers: Mapping[Key, int]) -> None:
    """Draw a panel, with numbers at the points that its grey line joins."""
    lines, times = [line for curve in curves for line in curve.lines], latency.times
    best = best_first(lines, times)
    draw_best(axes, best, times)
    for curve in curves:
        draw_curve(axes, curve, times)
    scale(axes, [times[line.decode.key] for line in lines], TICKS)
    axes.set_title(latency.title)
    for line in best:
        write_number(axes, line, times, numbers[line.decode.key])
