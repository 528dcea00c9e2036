"""The picture of quality against every latency that was measured (Gu & Kong 2021, Figures 1 and 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.report.figures import STYLE, Curve, new_figure, stacked
from workflow_src.evaluation.report.figures_quality import (
    LINE,
    Times,
    best_first,
    draw_best,
    draw_curve,
    legend,
    list_lines,
    scale,
    short_labels,
    timed_curves,
    write_list,
    write_number,
)
from workflow_src.evaluation.report.speed_page import device_words
from workflow_src.evaluation.report.tables import Group, Line
from workflow_src.evaluation.speed.measured import Speed

# Panels in a row, and ticks of a panel.
ACROSS, TICKS = 2, 7


@dataclasses.dataclass(frozen=True)
class Latency:
    """A way to measure: `title` names the device and the batch size, `times` are milliseconds a sentence."""

    title: str
    times: Times


Drawn = list[tuple[Latency, list[Curve]]]


def latencies(speed: Speed | None) -> list[Latency]:
    """Two latencies for each protocol of speed.json: one sentence at a time (medians), and in batches (means)."""
    ways = []
    for measurement in speed.protocols if speed else ():
        rows, place = measurement.rows, device_words(measurement.protocol)
        alone = {row.key: row.latency_ms for row in rows}
        batched = {row.key: 1000 / row.sentences_per_second for row in rows}
        if rows:
            sizes = sorted({row.batch for row in rows})
            batch_sizes = "–".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
            ways.append(Latency(f"{place}, one at a time", alone))
            ways.append(Latency(f"{place}, in batches of {batch_sizes}", batched))
    return ways


def quality_latencies(groups: list[Group], speed: Speed | None) -> Figure | None:
    """Quality against milliseconds a sentence (log scale), a panel a latency; None where no two rows were timed.

    A grey line joins the rows that no other row of the panel beats in both. They have numbers, the same in all panels;
    a list below the panels names these rows.
    """
    panels = ((latency, timed_curves(groups, latency.times)) for latency in latencies(speed))
    drawn = [(latency, curves) for latency, curves in panels if sum(len(curve.lines) for curve in curves) > 1]
    if not drawn:
        return None
    numbers = _numbers(drawn)
    down = -(-len(drawn) // ACROSS)
    lines_by_key = {line.decode.key: line for _, curves in drawn for curve in curves for line in curve.lines}
    texts = short_labels(list(lines_by_key.values()))
    entries = list_lines([(lines_by_key[key], texts[id(lines_by_key[key])]) for key in numbers])
    heights = (2.4 * down + 0.4, LINE * (len(entries) + 1))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, sum(heights))
        upper, lower = stacked(figure, heights)
        grid = upper.subplots(down, ACROSS, squeeze=False, sharey=True).flatten()
        for axes, panel in zip(grid, drawn, strict=False):
            _panel(axes, *panel, numbers)
        for axes in grid[: len(drawn) : ACROSS]:
            axes.set_ylabel(next(iter(lines_by_key.values())).main.axis)
        for axes in grid[max(0, len(drawn) - ACROSS) : len(drawn)]:
            axes.set_xlabel("milliseconds a sentence, log scale")
        for axes in grid[len(drawn) :]:
            axes.set_visible(False)
        legend(grid[0], [curve for _, curves in drawn for curve in curves])
        write_list(lower, entries)
    return figure


def _numbers(drawn: Drawn) -> dict[Key, int]:
    """Numbers of the rows on the grey line of some panel, the best first."""
    best_lines: dict[Key, Line] = {}
    for latency, curves in drawn:
        lines = [line for curve in curves for line in curve.lines]
        best_lines |= {line.decode.key: line for line in best_first(lines, latency.times)}
    order = sorted(best_lines, key=lambda key: -best_lines[key].goodness)
    return {key: number for number, key in enumerate(order, 1)}


def _panel(axes: Axes, latency: Latency, curves: list[Curve], numbers: Mapping[Key, int]) -> None:
    """Draw a panel, with numbers at the points of its grey line."""
    lines, times = [line for curve in curves for line in curve.lines], latency.times
    best = best_first(lines, times)
    draw_best(axes, best, times)
    for curve in curves:
        draw_curve(axes, curve, times)
    scale(axes, [times[line.decode.key] for line in lines], TICKS)
    axes.set_title(latency.title)
    for line in best:
        write_number(axes, line, times, numbers[line.decode.key])
