"""The picture of quality against every latency that was measured (Gu & Kong 2021, Figures 1 and 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow_src.config.manifest import Key
from workflow_src.evaluation.report.figures import STYLE, Curve, _figure
from workflow_src.evaluation.report.figures_quality import (
    Name,
    Times,
    draw_best,
    draw_curve,
    legend,
    scale,
    short_labels,
    timed_curves,
    undominated,
    write_names,
)
from workflow_src.evaluation.report.speed_page import where
from workflow_src.evaluation.report.tables import Group, Line
from workflow_src.evaluation.speed.measured import Speed

# Panels in a row, ticks of a panel, and inches of a line of the list below.
ACROSS, TICKS, LINE = 2, 7, 0.15


@dataclasses.dataclass(frozen=True)
class Latency:
    """A way to measure: `title` says on what and how many sentences together, `times` has milliseconds a sentence."""

    title: str
    times: Times


Drawn = list[tuple[Latency, list[Curve]]]


def latencies(speed: Speed | None) -> list[Latency]:
    """Two for each protocol of speed.json: one sentence at a time (medians), and in batches (all sentences' time)."""
    found = []
    for one in speed.protocols if speed else ():
        rows, place = one.rows, where(one.protocol)
        alone = {row.key: row.latency_ms for row in rows}
        together = {row.key: 1000 / row.sentences_per_second for row in rows}
        if rows:
            sizes = sorted({row.batch for row in rows})
            of = "–".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
            found += [Latency(f"{place}, one at a time", alone), Latency(f"{place}, in batches of {of}", together)]
    return found


def quality_latencies(groups: list[Group], speed: Speed | None) -> Figure | None:
    """BLEU against milliseconds a sentence (log scale), a panel a latency; None where no speed was measured.

    A grey line joins the rows that no other row of the panel beats in both. They have numbers, the same in all panels;
    a list below the panels says which rows these are.
    """
    drawn = [(latency, curves) for latency in latencies(speed) if (curves := timed_curves(groups, latency.times))]
    if not drawn:
        return None
    numbered = _numbered(drawn)
    down = -(-len(drawn) // ACROSS)
    heights = (2.4 * down + 0.4, LINE * (len(numbered) + 1))
    with matplotlib.rc_context(STYLE):
        figure = _figure(7.2, sum(heights))
        upper, lower = figure.subfigures(2, 1, height_ratios=heights)
        grid = upper.subplots(down, ACROSS, squeeze=False, sharey=True).flatten()
        names = [_panel(axes, *panel, numbered) for axes, panel in zip(grid, drawn, strict=False)]
        for axes in grid[: len(drawn) : ACROSS]:
            axes.set_ylabel("BLEU")
        for axes in grid[max(0, len(drawn) - ACROSS) : len(drawn)]:
            axes.set_xlabel("milliseconds a sentence, log scale")
        for axes in grid[len(drawn) :]:
            axes.set_visible(False)
        every = {line.decode.key: line for _, curves in drawn for curve in curves for line in curve.lines}
        legend(grid[0], list(every.values()))
        texts = short_labels(list(every.values()))
        for key, number in numbered.items():
            line, up = every[key], 1 - (number - 0.5) / (len(numbered) + 1)
            style = {"color": line.decode.look.colour, "fontsize": 7, "va": "center"}
            lower.text(0.045, up, number, ha="right", **style)
            lower.text(0.06, up, f"{line.system}: {texts[id(line)]}", **style)
        figure.draw_without_rendering()
        for axes, named in zip(grid, names, strict=False):
            write_names(axes, named)
    return figure


def _numbered(drawn: Drawn) -> dict[Key, int]:
    """Numbers of the rows that some panel's grey line joins, the best first."""
    best: dict[Key, Line] = {}
    for latency, curves in drawn:
        lines = [line for curve in curves for line in curve.lines]
        points = [(latency.times[line.decode.key], line.figures["bleu"]) for line in lines]
        best |= {lines[i].decode.key: lines[i] for i in undominated(points)}
    order = sorted(best, key=lambda key: -best[key].figures["bleu"])
    return {key: number for number, key in enumerate(order, 1)}


def _panel(axes: Axes, latency: Latency, curves: list[Curve], numbered: Mapping[Key, int]) -> list[Name]:
    """Draw a panel; returns the numbers at the points that its grey line joins."""
    lines, times = [line for curve in curves for line in curve.lines], latency.times
    best = draw_best(axes, lines, times)
    for curve in curves:
        draw_curve(axes, curve, times)
    scale(axes, [times[line.decode.key] for line in lines], TICKS)
    axes.set_title(latency.title)
    return [
        Name(times[line.decode.key], line.figures["bleu"], str(numbered[line.decode.key]), line.decode.look.colour, 7.5)
        for line in lines
        if id(line) in best
    ]
