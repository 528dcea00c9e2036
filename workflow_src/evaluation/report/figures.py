"""Pictures of the report with matplotlib: refinement, stopping; and helpers of the other pictures.

Colours are those of Okabe and Ito, which are distinct to people with any colour vision; lines also differ in marker and
are labelled where they end. Files carry text as shapes; the copies for the page carry text as text and colours as
CSS variables, so that the page can be light or dark.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from workflow_src.evaluation.manifest import ShownDecode
from workflow_src.evaluation.report.page import colour_class
from workflow_src.evaluation.report.results import Choice
from workflow_src.evaluation.report.tables import Group, Line
from workflow_src.records.atomic import atomic
from workflow_src.registry import main_metric
from workflow_src.spec import Look, Metric

INK, MUTED, RULE = "#1b1b1d", "#6f6f77", "#d9d9de"
VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"}
# Resolution of PNG files.
DPI = 200
DASHES = ["-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (5, 1.5, 1.2, 1.5))]

# A user's matplotlibrc changes no figure, and no text is parsed as math: names and subwords have any characters.
STYLE = {key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")} | {
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """Lines of a group that differ only in the series of their search, sorted by its value.

    `twin` is the number of the group among groups of the same family.
    """

    twin: int
    group: str
    lines: tuple[Line, ...]

    @property
    def decode(self) -> ShownDecode:
        return self.lines[0].decode


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def stacked(figure: Figure, heights: tuple[float, float]) -> tuple[SubFigure, SubFigure]:
    """The upper and the lower part of a figure that is cut in two."""
    grid = figure.add_gridspec(2, 1, height_ratios=heights)
    return figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])


# First digits of the ticks of log axes, from many ticks to few.
DIGITS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


def log_ticks(axis: Axis, values: list[float], limit: Callable[[float, float], Any], most: int | None = None) -> None:
    """Set a few round ticks in plain figures on a log axis, and its limits (by `limit`) around `values`.

    There are at most `most` ticks, if there are not more powers of ten.
    """
    low, high = min(values) / 1.25, max(values) * 1.5
    limit(low, high)
    choices = [[m * 10.0**e for e in range(-4, 7) for m in digits if low <= m * 10.0**e <= high] for digits in DIGITS]
    axis.set_major_locator(FixedLocator(next((c for c in choices if most is None or len(c) <= most), choices[-1])))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def finite(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """The points (x, y) that can be drawn."""
    return [(x, y) for x, y in points if y is not None and math.isfinite(y)]


def is_curve(points: Iterable[tuple[float, float | None]]) -> bool:
    """Whether points at several x can be drawn. Panels without any curve are left out."""
    return len({x for x, _ in finite(points)}) > 1


def spread_apart(positions: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions in the same order, moved so that neighbours are at least `gap` apart.

    The sum of squared moves is minimal. They stay within [low, high] if they fit, else they begin at `low`.
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # Positions less their gaps must not decrease: neighbours that would are pooled at their mean.
    pools: list[tuple[float, int]] = []
    for place, index in enumerate(order):
        total, count = positions[index] - place * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            pool = pools.pop()
            total, count = total + pool[0], count + pool[1]
        pools.append((total, count))
    levels = [total / count for total, count in pools for _ in range(count)]
    highest = high - (len(positions) - 1) * gap
    places = [0.0] * len(positions)
    for place, index in enumerate(order):
        places[index] = max(low, min(highest, levels[place])) + place * gap
    return places


def columns(spans: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Groups of spans that overlap, directly or through others: their indices, from left to right."""
    groups: list[list[int]] = []
    end = float("-inf")
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        if spans[i][0] >= end:
            groups.append([])
        groups[-1].append(i)
        end = max(end, spans[i][1])
    return [sorted(group) for group in groups]


# With more curves than this, labels are in a column beside the panel: inside they would cover other curves.
MOST_INSIDE = 4


def label_ends(figure: Figure, panels: list[tuple[Axes, list[tuple[float, float, str, str]]]], size: float = 7) -> None:
    """Write labels right of (x, y) ends in their colours, moved apart where they would touch.

    Labels take room from their panels and so move the ends: they are placed twice.
    """
    for _ in range(2):
        figure.draw_without_rendering()
        for axes, ends in panels:
            for label in list(axes.texts):
                label.remove()
            # In points, for axes of any scale.
            frame, point = axes.get_window_extent(), figure.dpi / 72
            spots = [axes.transData.transform((x, y)) / point for x, y, _, _ in ends]
            widths = [0.6 * size * len(text) for _, _, text, _ in ends]
            in_column = len(ends) > MOST_INSIDE
            spans = [(x, x + width) for (x, _), width in zip(spots, widths, strict=True)]
            for group in [list(range(len(ends)))] if in_column else columns(spans):
                heights = [spots[i][1] for i in group]
                places = spread_apart(heights, 1.25 * size, frame.y0 / point, frame.y1 / point)
                for i, height, at in zip(group, heights, places, strict=True):
                    x, y, text, colour = ends[i]
                    # A thin line leads from an end to a distant label.
                    away = in_column and (frame.x1 / point - spots[i][0] > 2 * size or abs(at - height) > size)
                    line = {"arrowstyle": "-", "color": colour, "linewidth": 0.4, "shrinkA": 1, "shrinkB": 1.5}
                    # Baselines, unlike centres, do not depend on which letters a label has.
                    place = (1.03 if in_column else 5, at - height - 0.36 * size)
                    units = ("axes fraction" if in_column else "offset points", "offset points")
                    style: dict[str, Any] = {
                        "color": colour,
                        "fontsize": size,
                        "va": "baseline",
                        "annotation_clip": False,
                    }
                    arrow = line | {"relpos": (0, 0.5)} if away else None
                    axes.annotate(text, (x, y), place, textcoords=units, arrowprops=arrow, **style)


def style_of(look: Look, twin: int = 0) -> dict[str, Any]:
    """Colour and marker of a line; markers of the second group of a family are open."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "markerfacecolor": look.colour if twin == 0 else "none",
        "markeredgecolor": look.colour,
    }


def curves_of(groups: Iterable[Group]) -> list[Curve]:
    """The lines of a table as curves; a line whose search has no series is a curve of its own."""
    curves = []
    counts: dict[str, int] = {}
    for group in groups:
        twin = counts.get(group.head.family.name, 0)
        counts[group.head.family.name] = twin + 1
        by: dict[str, list[Line]] = {}
        for line in group.lines:
            by.setdefault(line.decode.curve, []).append(line)
        curves += [Curve(twin, group.key, tuple(sorted(lines, key=_value))) for lines in by.values()]
    return curves


def _value(line: Line) -> float:
    return line.decode.value or 0


def _steps(line: Line) -> float:
    """Refinement steps that a row takes."""
    return _value(line) - line.decode.search.first_value if line.decode.value is not None else 0


def refinement(groups: list[Group]) -> Figure | None:
    """The main metric, and others that decide, against refinement steps; None where no search has two points.

    The start of refinement is step 0; the reference row is a dotted line.
    """
    # Rows with settings of their own are curves only where there are several.
    curves = [
        curve
        for curve in curves_of(groups)
        if curve.decode.search.traceable
        and curve.decode.engine.own
        and (len(curve.lines) > 1 or curve.decode.plain)
        and not curve.decode.tuned
    ]
    lines = [line for group in groups for line in group.lines]
    panels = [
        metric
        for metric in dict.fromkeys(metric for line in lines for metric, _ in line.deciding)
        if any(
            is_curve((_steps(line), line.figures[metric.name]) for line in _followed(groups, curve)) for curve in curves
        )
    ]
    if not panels:
        return None
    references = [line for line in lines if line.decode.reference]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(3.6 * len(panels) if len(panels) > 1 else 5.0, 2.7)
        labels = []
        for axes, metric in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            ends = [_refined(axes, groups, metric, curve) for curve in curves]
            right = max(_steps(line) for curve in curves for line in curve.lines)
            reference = next(iter(references), None)
            if reference and (value := reference.figures[metric.name]) is not None:
                level, colour = metric.factor * value, reference.decode.colour
                axes.plot([0, right], [level] * 2, color=colour, linestyle=(0, (1, 2)), linewidth=1)
                ends.append((right, level, f"{reference.system} {reference.label}", colour))
            axes.set_title(metric.axis)
            axes.set_xlabel("refinement steps L")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axes.margins(x=0.03, y=0.1)
            labels.append((axes, [end for end in ends if end]))
        label_ends(figure, labels, 7.5)
    return figure


def _followed(groups: list[Group], curve: Curve) -> list[Line]:
    """The lines of a search after the row that it refines, where there is one."""
    lines = [line for group in groups if group.key == curve.group for line in group.lines]
    start = [line for line in lines if line.decode.search.name == curve.decode.search.baseline]
    return [*start[:1], *curve.lines]


def _refined(axes: Axes, groups: list[Group], metric: Metric, curve: Curve) -> tuple[float, float, str, str] | None:
    """Draw one search of one model from its unrefined row on; returns the end for its label, or None."""
    search = curve.decode.search
    key, factor = metric.name, metric.factor
    drawn = [line for line in _followed(groups, curve) if line.figures[key] is not None]
    if not drawn:
        return None
    x = [_steps(line) for line in drawn]
    y = [factor * value for line in drawn if (value := line.figures[key]) is not None]
    style = style_of(curve.decode.look, curve.twin)
    axes.plot(x, y, linestyle=DASHES[curve.twin % len(DASHES)], **style)
    if all(line.spread for line in drawn):
        spreads = [factor * (line.spread or {}).get(key, 0) for line in drawn]
        axes.errorbar(x, y, spreads, fmt="none", ecolor=style["color"], elinewidth=0.8, capsize=2)
    return x[-1], y[-1], search.title + (f" · {curve.group}" if curve.twin else ""), style["color"]


def stopping(choices: Iterable[Choice]) -> Figure | None:
    """The main metric on dev against mean refinement steps, one point for each stopping threshold; None where no decode
    tried several."""
    main = main_metric()
    drawn = [
        choice
        for choice in choices
        if _tried_stops(choice) and is_curve((point["mean_steps"], point[main.name]) for point in choice.points)
    ]
    if not drawn:
        return None
    with matplotlib.rc_context(STYLE):
        figure = new_figure(5.0, 2.7)
        axes = figure.subplots()
        ends = []
        for twin, choice in enumerate(drawn):
            points = sorted(choice.points, key=lambda point: point["mean_steps"])
            x, y = [point["mean_steps"] for point in points], [point[main.name] for point in points]
            search, colour = choice.decode.search, choice.decode.colour
            axes.plot(x, y, marker="o", markersize=3.5, color=colour, linestyle=DASHES[twin % len(DASHES)])
            ends.append((x[-1], y[-1], f"{search.title} · {choice.decode.system.name}", colour))
        axes.set_title(f"{main.title} on dev")
        axes.set_xlabel("refinement steps, mean over sentences")
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.margins(x=0.03, y=0.1)
        label_ends(figure, [(axes, ends)], 7.5)
    return figure


def _tried_stops(choice: Choice) -> bool:
    """Whether several values of a setting that stops sentences were tried."""
    return any(
        len({point["settings"].get(name) for point in choice.points} - {None}) > 1
        for name in choice.decode.search.settings.named("stop")
    )


def save(figure: Figure, folder: Path, name: str, colours: Iterable[str] = ()) -> str:
    """Write NAME.svg and NAME.png into `folder`; returns the SVG element for the page. The bytes are reproducible.

    `colours` (hexadecimal) become CSS variables on the page.
    """
    with matplotlib.rc_context(STYLE):
        # The layout is computed once for all formats: it takes longer than drawing. The width of text depends on the
        # resolution, which is that of the file.
        figure.set_dpi(DPI)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")

    def svg(fonttype: str) -> str:
        file = io.StringIO()
        with matplotlib.rc_context(STYLE | {"svg.fonttype": fonttype, "svg.hashsalt": name}):
            figure.savefig(file, format="svg", transparent=fonttype == "none", metadata={"Date": None})
        return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", file.getvalue())

    with atomic(folder / f"{name}.svg") as file:
        file.write(svg("path"))
    with atomic(folder / f"{name}.png", "wb") as file, matplotlib.rc_context(STYLE):
        figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return for_page(svg("none"), name, colours)


# Characters that XML cannot hold, and a subword can.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def for_page(svg: str, name: str, colours: Iterable[str] = ()) -> str:
    """An SVG document as an element of a page: no prologue or metadata, ids of its own, colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    variables = VARIABLES | {colour: f"--{colour_class(colour)}" for colour in colours}

    def changed(tag: re.Match) -> str:
        text = re.sub(r'\bid="', f'id="{name}-', tag[0])
        text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
        for colour, variable in variables.items():
            text = text.replace(colour, f"var({variable})")
        return text

    # Only in tags: text between them may look the same.
    return re.sub(r"<[^>]*>", changed, svg)
