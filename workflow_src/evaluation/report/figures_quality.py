"""The picture of quality against speed."""

from __future__ import annotations

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workflow_src.evaluation.report.figures import (
    DASHES,
    FAMILY_OF_SEARCH,
    MUTED,
    RULE,
    STYLE,
    _colour,
    _figure,
    _marker,
    _series,
    _style_of,
    empty,
    log_ticks,
)
from workflow_src.evaluation.report.tables import ENGINE_LABELS, Group, Line

# With more points than this, only some are named.
CROWDED = 24
# Left, bottom, right, top, in points.
Box = tuple[float, float, float, float]


def undominated(points: list[tuple[float, float]]) -> list[int]:
    """Indices of the (milliseconds, BLEU) points that no other point is faster and at least as good as, by speed.

    Of equal points the first counts.
    """
    found: list[int] = []
    for index in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not found or points[index][1] > points[found[-1]][1]:
            found.append(index)
    return found


def _own_lines(series: list[tuple[int, str, list[Line]]]) -> set[int]:
    """Rows of our own engine without settings of their own, by identity; the last of each series."""
    return {id(lines[-1]) for _, _, lines in series if lines[0].engine == "continuum" and "(" not in lines[0].label}


def _legend(axes: Axes, series: list[tuple[int, str, list[Line]]]) -> None:
    """What colours and markers say, where not every point is named."""
    shown = [line for _, _, lines in series for line in lines]
    entries = {}
    for line in shown:
        name = line.search if line.search in FAMILY_OF_SEARCH else "lengths × samples"
        if line.engine == "continuum":
            entries.setdefault(
                "autoregressive" if name in ("greedy", "beam") else name.replace("-", " "), _style_of(line, 0)
            )
    for line in shown:
        if line.engine != "continuum":
            entries.setdefault(ENGINE_LABELS[line.engine.split("-")[0]], {"color": MUTED, "marker": _marker(line)})
    handles = [axes.plot([], [], linestyle="none", **style)[0] for style in entries.values()]
    axes.figure.legend(handles, entries, loc="outside lower center", ncols=len(entries), frameon=False, fontsize=7,
                       handletextpad=0.2, columnspacing=1.2)  # fmt: skip


def crowded(groups: list[Group]) -> bool:
    """Whether the picture has too many points to name them all."""
    return sum(line.figures["latency_ms"] is not None for group in groups for line in group.lines) > CROWDED


def quality_speed(groups: list[Group]) -> Figure:
    """BLEU against milliseconds a sentence (log scale), one point a row; steps of one search are joined.

    A grey line joins the rows that no other row is faster and at least as good as. Where there are many rows, those
    and the plain rows of our own engine are named, and a legend tells the rest.
    """
    series = [
        (twin, key, [line for line in lines if line.figures["latency_ms"] is not None])
        for twin, key, lines in _series(groups)
    ]
    series = [entry for entry in series if entry[2]]
    if not series:
        return empty("Speed was not measured in this run.")
    with matplotlib.rc_context(STYLE):
        every = [line for _, _, lines in series for line in lines]
        points = [(line.figures["latency_ms"], line.figures["bleu"]) for line in every]
        best = undominated(points)
        many = crowded(groups)
        figure = _figure(7.2, 5.2 if many else 3.9)
        axes = figure.subplots()
        axes.set_xscale("log")
        named = {id(every[i]) for i in best} | _own_lines(series) if many else {id(line) for line in every}
        axes.plot(*zip(*[points[i] for i in best], strict=True), color=RULE, linewidth=3, zorder=1)
        labels = []
        for twin, key, lines in series:
            x = [line.figures["latency_ms"] for line in lines]
            y = [line.figures["bleu"] for line in lines]
            axes.plot(x, y, linestyle=DASHES[twin % len(DASHES)], zorder=3, **_style_of(lines[0], twin))
            colour = _colour(FAMILY_OF_SEARCH.get(lines[0].search, "other"))
            addition = f" · {key}" if twin else ""
            for line, left, up in zip(lines, x, y, strict=True):
                if id(line) not in named:
                    continue
                if line.steps and line is not lines[-1] and not many:
                    labels.append((left, up, f"{line.steps}", colour, 6.5))
                else:
                    labels.append((left, up, line.label + addition, colour, 7.5))
        if many:
            _legend(axes, series)
        log_ticks(axes.xaxis, [line.figures["latency_ms"] for line in every], axes.set_xlim)
        axes.margins(y=0.12)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_xlabel("milliseconds a sentence, one at a time, log scale   (faster to the left)")
        axes.set_title("BLEU")
        figure.draw_without_rendering()
        _place(axes, labels)
    return figure


def _obstacles(axes: Axes, scale: float) -> list[Box]:
    """Boxes in points that labels must not touch: the markers, and the lines in small pieces."""
    boxes = []
    for line in axes.get_lines():
        vertices = axes.transData.transform(line.get_xydata()) * scale
        boxes += [(x - 4, y - 4, x + 4, y + 4) for x, y in vertices]
        for (x0, y0), (x1, y1) in zip(vertices, vertices[1:], strict=False):
            pieces = max(1, int(max(abs(x1 - x0), abs(y1 - y0)) // 3))
            for i in range(1, pieces):
                x, y = x0 + (x1 - x0) * i / pieces, y0 + (y1 - y0) * i / pieces
                boxes.append((x - 1, y - 1, x + 1, y + 1))
    return boxes


def _touched(box: Box, others: list[Box]) -> int:
    return sum(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in others)


def _place(axes: Axes, labels: list[tuple[float, float, str, str, float]]) -> None:
    """Write each label beside its point, where it touches least of points, lines and other labels."""
    scale = 72 / axes.figure.dpi
    points = [axes.transData.transform((x, y)) * scale for x, y, *_ in labels]
    taken = _obstacles(axes, scale)
    frame = axes.get_window_extent()
    beside = [("left", 7, 0), ("right", -7, 0)]
    around = [("center", 0, 9), ("center", 0, -9), ("left", 5, 9), ("left", 5, -9), ("right", -5, 9), ("right", -5, -9)]
    around += [
        (align, dx, dy) for away in (16, 24, 32) for align, dx in (("left", 5), ("right", -5)) for dy in (away, -away)
    ]
    names: list[Box] = []
    # Long labels are the hardest to fit and go first.
    for index in sorted(range(len(labels)), key=lambda i: -len(labels[i][2])):
        x, y, text, colour, size = labels[index]
        px, py = points[index]
        width, height = 0.58 * size * len(text), 1.1 * size
        best = None
        for align, dx, dy in beside + around if len(text) > 2 else around + beside:
            left = px + dx - {"left": 0, "center": width / 2, "right": width}[align]
            box = (left, py + dy - height / 2, left + width, py + dy + height / 2)
            clashes = _touched(box, taken) + 9 * _touched(box, names) + 0.1 * abs(dy)
            clashes += 9 * (box[0] < frame.x0 * scale or box[2] > frame.x1 * scale or box[1] < frame.y0 * scale)
            if best is None or clashes < best[0]:
                best = (clashes, align, dx, dy, box)
        _, align, dx, dy, box = best
        names.append(box)
        # A label that had to go far is joined with its point.
        leader = (
            {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3} if abs(dy) > 12 else None
        )
        axes.annotate(text, (x, y), (dx, dy - 0.36 * size), textcoords="offset points", color=colour, fontsize=size,
                      ha=align, va="baseline", annotation_clip=False, arrowprops=leader)  # fmt: skip
