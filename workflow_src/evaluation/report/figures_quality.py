"""The picture of quality against speed."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from workflow_src.evaluation.manifest import Key, ShownDecode
from workflow_src.evaluation.report.figures import (
    DASHES,
    MUTED,
    RULE,
    STYLE,
    Curve,
    curves_of,
    log_ticks,
    new_figure,
    stacked,
    style_of,
)
from workflow_src.evaluation.report.tables import Group, Line
from workflow_src.spec import Look

# With more rows than this, only those that no other row beats have numbers.
CROWDED = 24
# Height in inches of a line of the list below a picture, and its width in letters.
LINE, LETTERS = 0.15, 112
# The entry of the legend for systems after the first one of their family (`figures.style_of`).
HOLLOW = "hollow: further systems"
# Inches of a letter of the legend: an upper bound of the average.
LETTER = 0.062
# Milliseconds a sentence by system and name of a row.
Times = Mapping[Key, float]


class Labelled(Protocol):
    """An item with a label in a figure: a line of a table, or a row that was timed."""

    @property
    def system(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def decode(self) -> ShownDecode: ...


def undominated(points: list[tuple[float, float]]) -> list[int]:
    """Indices of the (milliseconds, goodness) points without a faster point that is at least as good, by speed.

    Of equal points the first counts.
    """
    best: list[int] = []
    for index in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not best or points[index][1] > points[best[-1]][1]:
            best.append(index)
    return best


def legend_entries(curves: list[Curve]) -> dict[str, dict[str, Any]]:
    """Styles by label: searches of our own engine by their titles, other engines, and what hollow markers mean.

    Autoregressive searches with the same style share an entry.
    """
    lines = [line for curve in curves for line in curve.lines]
    entries: dict[str, dict[str, Any]] = {}
    for line in lines:
        decode = line.decode
        if decode.engine.own:
            style = style_of(decode.look)
            label = "autoregressive" if decode.system.family.autoregressive else decode.search.title
            if entries.get(label, style) != style:
                label = f"{decode.search.title} ({decode.system.family.title})"
            entries.setdefault(label, style)
    for line in lines:
        engine = line.decode.engine
        if not engine.own:
            entries.setdefault(engine.title, {"color": MUTED, "marker": engine.marker or line.decode.look.marker})
    if any(curve.twin for curve in curves):
        entries[HOLLOW] = style_of(Look(MUTED, "o"), twin=1)
    return entries


def hollow(groups: list[Group]) -> bool:
    """Whether some points of rows that were timed are hollow."""
    return any(curve.twin for curve in timed_curves(groups, table_times(groups)))


def legend(axes: Axes, curves: list[Curve]) -> None:
    """Draw the legend of colours and markers below the figure."""
    entries = legend_entries(curves)
    handles = [axes.plot([], [], linestyle="none", **style)[0] for style in entries.values()]
    # As many columns as fit, each as wide as the longest label and its marker.
    inches = axes.figure.bbox.width / axes.figure.dpi
    across = int(inches / (0.45 + LETTER * max(map(len, entries), default=0)))
    style = {"frameon": False, "fontsize": 7, "handletextpad": 0.2, "columnspacing": 1.2}
    ncols = max(1, min(len(entries), across))
    axes.figure.legend(handles, entries, loc="outside lower center", ncols=ncols, **style)


def crowded(groups: list[Group]) -> bool:
    """Whether the picture has too many points to number them all."""
    return sum(line.figures["latency_ms"] is not None for group in groups for line in group.lines) > CROWDED


def table_times(groups: list[Group]) -> Times:
    """Latencies of the table: one sentence at a time, under the first protocol."""
    lines = [line for group in groups for line in group.lines]
    return {line.decode.key: ms for line in lines if (ms := line.figures["latency_ms"]) is not None}


def timed_curves(groups: list[Group], times: Times) -> list[Curve]:
    """Curves of the rows whose speed was measured."""
    timed = (
        dataclasses.replace(curve, lines=tuple(line for line in curve.lines if line.decode.key in times))
        for curve in curves_of(groups)
    )
    return [curve for curve in timed if curve.lines]


def joined_series(groups: list[Group]) -> str:
    """The series of curves with several points, in words; "steps" where there are none."""
    joining = (
        curve.decode.search.series for curve in timed_curves(groups, table_times(groups)) if len(curve.lines) > 1
    )
    return " or ".join(dict.fromkeys(series.replace("_", " ") for series in joining if series)) or "steps"


def quality_speed(groups: list[Group]) -> Figure | None:
    """The main metric against milliseconds a sentence (log scale), one point a row; steps of one search are joined.

    None where fewer than two rows were timed. A grey line joins the rows without a faster row that is at least as good.
    Points have numbers, and a list below names their rows, the best first. With many rows, only those on the grey line
    have numbers.
    """
    times = table_times(groups)
    curves = timed_curves(groups, times)
    if sum(len(curve.lines) for curve in curves) < 2:
        return None
    with matplotlib.rc_context(STYLE):
        lines = [line for curve in curves for line in curve.lines]
        texts, best = short_labels(lines), best_first(lines, times)
        on_line = set(map(id, best))
        beaten = [] if crowded(groups) else [line for line in lines if id(line) not in on_line]
        numbered = sorted([*best, *beaten], key=lambda line: (-line.goodness, times[line.decode.key]))
        reached = _reached(numbered, times)
        entries = list_lines(
            [(line, f"{texts[id(line)]} ({figures})") for line, figures in zip(numbered, reached, strict=True)]
        )
        heights = (4.8, LINE * (len(entries) + 1))
        figure = new_figure(7.2, sum(heights))
        upper, lower = stacked(figure, heights)
        axes = upper.subplots()
        draw_best(axes, best, times)
        for curve in curves:
            draw_curve(axes, curve, times)
        for number, line in enumerate(numbered, 1):
            write_number(axes, line, times, number, beaten=id(line) not in on_line)
        legend(axes, curves)
        write_list(lower, entries)
        scale(axes, [times[line.decode.key] for line in lines])
        axes.set_xlabel("milliseconds a sentence, one at a time, log scale   (faster to the left)")
        axes.set_title(lines[0].main.axis)
    return figure


def best_first(lines: list[Line], times: Times) -> list[Line]:
    """The rows without a faster row that is at least as good, the best first."""
    return [lines[i] for i in reversed(undominated([(times[line.decode.key], line.goodness) for line in lines]))]


def _point(line: Line, times: Times) -> tuple[float, float]:
    return times[line.decode.key], line.quality


def _reached(lines: list[Line], times: Times) -> list[str]:
    """Quality and milliseconds of lines; quality has two digits where it is equal with one."""
    digits = 1 if len({f"{line.quality:.1f}" for line in lines}) == len(lines) else 2
    return [f"{line.quality:.{digits}f} {line.main.title} in {times[line.decode.key]:.3g} ms" for line in lines]


def draw_best(axes: Axes, best: list[Line], times: Times) -> None:
    """Join the rows that no other row beats in both by a grey line."""
    axes.plot(*zip(*[_point(line, times) for line in best], strict=True), color=RULE, linewidth=3, zorder=1)


def write_number(axes: Axes, line: Line, times: Times, number: int, beaten: bool = False) -> None:
    """Write the number of a row beside its point.

    It is above on the left, where there are no points of rows that beat this one; for a row that is `beaten`, it is
    below on the right.
    """
    side = 1 if beaten else -1
    annotation = axes.annotate(
        str(number),
        _point(line, times),
        (3.5 * side, -2.5 * side),
        textcoords="offset points",
        ha="left" if beaten else "right",
        va="top" if beaten else "bottom",
        color=line.decode.colour,
        fontsize=6.5 if beaten else 7.5,
        annotation_clip=False,
        zorder=4,
        # Readable also on the marker of another row.
        path_effects=[withStroke(linewidth=1.5, foreground="white")],
    )
    # Numbers stand within the frame of the axes: they need no room of their own.
    annotation.set_in_layout(False)


def list_lines(rows: list[tuple[Line, str]]) -> list[tuple[str, str, str]]:
    """Lines of a list of rows with the numbers 1, 2, …: the number, the system with a text, and the colour.

    Text that is too wide for the picture continues in a line without a number.
    """
    entries = []
    for number, (line, text) in enumerate(rows, 1):
        pieces = textwrap.wrap(f"{line.system}: {text}", LETTERS)
        entries += [("" if i else str(number), piece, line.decode.colour) for i, piece in enumerate(pieces)]
    return entries


def write_list(panel: Any, lines: list[tuple[str, str, str]]) -> None:
    """Write the lines of a list into a panel that is high enough for one line more."""
    for row, (number, text, colour) in enumerate(lines, 1):
        height, style = 1 - (row - 0.5) / (len(lines) + 1), {"fontsize": 7, "va": "center", "color": colour}
        panel.text(0.045, height, number, ha="right", **style)
        panel.text(0.06, height, text, **style)


def scale(axes: Axes, milliseconds: list[float], most: int | None = None) -> None:
    """A log scale around milliseconds with `most` ticks at most, and a few round figures of quality."""
    axes.set_xscale("log")
    log_ticks(axes.xaxis, milliseconds, axes.set_xlim, most)
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def short_labels(lines: Sequence[Labelled]) -> dict[int, str]:
    """Labels by identity, with the settings in brackets that distinguish a row from others of its system.

    Where these are not enough, labels are those of tables.
    """
    alike: dict[tuple[str, str], list[Labelled]] = defaultdict(list)
    for line in lines:
        alike[line.system, line.decode.head].append(line)
    texts: dict[int, str] = {}
    for twins in alike.values():
        shared = set.intersection(*(set(line.decode.own) for line in twins))
        short = [line.decode.short([setting for setting in line.decode.own if setting not in shared]) for line in twins]
        distinct = len(set(short)) == len(short)
        texts |= {id(line): text if distinct else line.label for line, text in zip(twins, short, strict=True)}
    return texts


def draw_curve(axes: Axes, curve: Curve, times: Times) -> None:
    points = zip(*[_point(line, times) for line in curve.lines], strict=True)
    style = style_of(curve.decode.look, curve.twin)
    axes.plot(*points, linestyle=DASHES[curve.twin % len(DASHES)], zorder=3, **style)
