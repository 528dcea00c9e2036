"""Pictures of the report with matplotlib: learning curves, refinement, stopping; and what the other pictures share.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; lines also differ in marker and
are labelled where they end. Files carry text as shapes; the copies for the page carry text as text and colours as
CSS variables, so that the page can be light or dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from workflow_src.evaluation.report.tables import Group, Line
from workflow_src.records.atomic import atomic
from workflow_src.registry import refining

INK, MUTED, RULE = "#1b1b1d", "#6f6f77", "#d9d9de"
COLOURS = {"transformer": "#4d4d53", "lvm": "#0072b2", "score": "#d55e00", "energy": "#009e73", "other": "#cc79a7"}
MARKERS = {"greedy": "s", "beam": "s", "prior-mean": "D", "delta": "o", "score": "^", "energy": "v"}
ENGINE_MARKERS = {"ctranslate2": "P", "onnxruntime": "X"}
FAMILY_OF_SEARCH = {
    "greedy": "transformer", "beam": "transformer", "prior-mean": "lvm", "delta": "lvm", "score": "score",
    "energy": "energy",
}  # fmt: skip
VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"} | {c: f"--{name}" for name, c in COLOURS.items()}
DASHES = ["-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (5, 1.5, 1.2, 1.5))]

STYLE = {
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

# Panels of the learning curves: title, families it is for, and (key, line style, what the label adds).
PANELS = [
    ("Training loss", ("transformer", "lvm"), [("loss", 0, "")]),
    ("Loss on dev", ("transformer", "lvm"), [("dev_loss", 0, "")]),
    ("BLEU on dev", None, [("dev_bleu", 0, ""), ("dev_bleu_posterior", 2, " posterior")]),
    ("ELBO on dev", None, [("dev_elbo", 0, "")]),
    ("KL on dev, nats a token", None, [("dev_kl", 0, "")]),
    ("Lengths right on dev, share", None, [("dev_length_accuracy", 0, "")]),
    ("Score-matching loss", ("score", "energy"), [("loss", 0, "")]),
    ("Cosine with delta on dev", None, [("dev_cosine", 0, ""), ("dev_cosine_noise0", 2, " noise 0")]),
]


def _colour(family: str) -> str:
    return COLOURS.get(family, COLOURS["other"])


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def log_ticks(axis: Axis, values: list[float], limit: Callable[[float, float], Any]) -> None:
    """Few round ticks in plain figures on a log axis, and its limits (set by `limit`) around `values`."""
    ticks = [m * 10.0**e for e in range(-4, 7) for m in (1, 1.5, 2, 3, 5, 7)]
    low, high = min(values) / 1.25, max(values) * 1.5
    limit(low, high)
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def empty(text: str) -> Figure:
    """A picture that says why there is none."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(7.2, 1.2)
        figure.text(0.5, 0.5, text, ha="center", va="center", color=MUTED)
    return figure


def apart(positions: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved so that neighbours are `gap` apart or more, in the same order, within [low, high] if they fit."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    moved = [positions[i] for i in order]
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    # Pushing went upwards only: bring the whole back to its centre, then inside.
    shift = (sum(moved) - sum(positions)) / max(1, len(moved))
    moved = [position - shift for position in moved]
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], high if i + 1 == len(moved) else moved[i + 1] - gap)
    for i in range(len(moved)):
        moved[i] = max(moved[i], low if i == 0 else moved[i - 1] + gap)
    found = [0.0] * len(positions)
    for place, index in enumerate(order):
        found[index] = moved[place]
    return found


def _label_ends(
    figure: Figure, panels: list[tuple[Axes, list[tuple[float, float, str, str]]]], size: float = 7
) -> None:
    """Write labels right of (x, y) ends in their colours, moved apart where they would touch.

    Labels take room from their panels and so move them: they are placed twice, the second time for good.
    """
    for _ in range(2):
        figure.draw_without_rendering()
        for axes, ends in panels:
            for label in list(axes.texts):
                label.remove()
            # In points, so that any scale of the axis will do.
            frame, point = axes.get_window_extent(), figure.dpi / 72
            heights = [axes.transData.transform((x, y))[1] / point for x, y, _, _ in ends]
            places = apart(heights, 1.25 * size, frame.y0 / point, frame.y1 / point)
            for (x, y, text, colour), height, at in zip(ends, heights, places, strict=True):
                # Baselines, unlike centres, do not depend on which letters a label has.
                axes.annotate(text, (x, y), (5, at - height - 0.36 * size), textcoords="offset points",
                              color=colour, fontsize=size, va="baseline", annotation_clip=False)  # fmt: skip


def learning_curves(logs: list[dict[str, Any]]) -> Figure:
    """One panel a metric, over updates. `logs`: dicts of system, family, seed and entries (of training.jsonl).

    Systems of one family share a colour and differ in dashes; seeds of a system are thin lines of the same kind.
    """
    panels = []
    for title, families, curves in PANELS:
        chosen = [log for log in logs if families is None or log["family"] in families]
        if any(entry.get(key) is not None for log in chosen for entry in log["entries"] for key, _, _ in curves):
            panels.append((title, chosen, curves))
    if not panels:
        return empty("No training was logged.")
    wide = min(3, len(panels))
    rows = -(-len(panels) // wide)
    with matplotlib.rc_context(STYLE):
        figure = _figure(2.55 * wide, 1.85 * rows)
        grid = figure.subplots(rows, wide, squeeze=False).flatten()
        labels = []
        for axes, (title, chosen, curves) in zip(grid, panels, strict=False):
            labels.append((axes, _curves(axes, chosen, curves, logs)))
            axes.set_title(title)
            axes.set_xlabel("updates")
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"))
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            axes.margins(x=0.02)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        _label_ends(figure, labels)
    return figure


def _curves(axes: Axes, chosen: list[dict], curves: list[tuple[str, int, str]], logs: list[dict]) -> list[tuple]:
    of_family: dict[str, list[str]] = {}
    for log in logs:
        names = of_family.setdefault(log["family"], [])
        if log["system"] not in names:
            names.append(log["system"])
    ends, labelled = [], set()
    several = len({log["seed"] for log in chosen}) > 1
    for log in chosen:
        colour = _colour(log["family"])
        twin = of_family[log["family"]].index(log["system"])
        for key, dash, addition in curves:
            points = [(entry["step"], entry[key]) for entry in log["entries"] if entry.get(key) is not None]
            if not points:
                continue
            style = DASHES[(dash + twin) % len(DASHES)]
            marker = "o" if len(points) < 12 else None
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=0.9 if several else 1.4,
                      marker=marker, markersize=2.2)  # fmt: skip
            if (log["system"], key) not in labelled:
                labelled.add((log["system"], key))
                ends.append((*points[-1], log["system"] + addition, colour))
    return ends


def _marker(line: Line) -> str:
    """Of the search for our own engine; the others have one each."""
    return ENGINE_MARKERS.get(line.engine.split("-")[0], MARKERS.get(line.search, "*"))


def _style_of(line: Line, twin: int) -> dict[str, Any]:
    colour = _colour(FAMILY_OF_SEARCH.get(line.search, "other"))
    return {
        "color": colour,
        "marker": _marker(line),
        "markerfacecolor": colour if twin == 0 else "none",
        "markeredgecolor": colour,
    }


def _series(groups: Iterable[Group]) -> list[tuple[int, str, list[Line]]]:
    """Lines that differ in steps only, as (number of the group among its kind, group's key, lines)."""
    found = []
    counts = {True: 0, False: 0}
    for group in groups:
        twin = counts[group.autoregressive]
        counts[group.autoregressive] += 1
        by: dict[tuple, list[Line]] = {}
        for line in group.lines:
            unique = line.label if line.search not in refining() else ""
            # Without figures: what dev chose may differ from step to step.
            suffix = re.sub(r"[\d.]+", "", line.label.partition("(")[2])
            by.setdefault((line.system, line.search, line.engine, suffix, unique), []).append(line)
        found += [(twin, group.key, lines) for lines in by.values()]
    return found


def refinement(groups: list[Group]) -> Figure:
    """BLEU, and validity where known, against refinement steps; the prior mean is step 0, beam search a dotted line."""
    # Rows with settings of their own, told in brackets, are curves only where there are several.
    series = [
        entry
        for entry in _series(groups)
        if entry[2][0].search in refining()
        and entry[2][0].engine == "continuum"
        and (len(entry[2]) > 1 or "(" not in entry[2][0].label)
        and "(chosen" not in entry[2][0].label
    ]
    if not series:
        return empty("No refinement was decoded in this run.")
    lines = [line for group in groups for line in group.lines]
    panels = [("bleu", "BLEU", 1)]
    if any(line.figures["validity"] is not None for line in lines):
        panels.append(("validity", "valid outputs, %", 100))
    with matplotlib.rc_context(STYLE):
        figure = _figure(3.6 * len(panels) if len(panels) > 1 else 5.0, 2.7)
        labels = []
        for axes, (key, title, factor) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            ends = []
            for twin, group_key, stepped in series:
                ends.append(_refined(axes, groups, key, factor, twin, group_key, stepped))
            right = max(line.steps for _, _, stepped in series for line in stepped)
            beams = [line for group in groups if group.autoregressive for line in group.lines if line.search == "beam"]
            if beams and beams[0].figures[key] is not None:
                level = factor * beams[0].figures[key]
                axes.plot([0, right], [level] * 2, color=COLOURS["transformer"], linestyle=(0, (1, 2)), linewidth=1)
                ends.append((right, level, f"{beams[0].system} {beams[0].label}", COLOURS["transformer"]))
            axes.set_title(title)
            axes.set_xlabel("refinement steps L")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axes.margins(x=0.03, y=0.1)
            labels.append((axes, [end for end in ends if end]))
        _label_ends(figure, labels, 7.5)
    return figure


def _refined(axes: Axes, groups: list[Group], key: str, factor: float, twin: int, group_key: str, stepped: list[Line]):
    """Draw one search of one model from its prior mean on; returns the end for its label, or None."""
    start = [line for group in groups if group.key == group_key for line in group.lines if line.search == "prior-mean"]
    drawn = [line for line in [*start[:1], *stepped] if line.figures[key] is not None]
    if not drawn:
        return None
    x = [line.steps or 0 for line in drawn]
    y = [factor * line.figures[key] for line in drawn]
    style = _style_of(stepped[0], twin)
    axes.plot(x, y, linestyle=DASHES[twin % len(DASHES)], **style)
    if all(line.spread for line in drawn):
        axes.errorbar(x, y, [factor * line.spread.get(key, 0) for line in drawn], fmt="none", ecolor=style["color"],
                      elinewidth=0.8, capsize=2)  # fmt: skip
    return x[-1], y[-1], stepped[0].search + (f" · {group_key}" if twin else ""), style["color"]


def stopping(curves: list[dict[str, Any]]) -> Figure | None:
    """BLEU on dev against mean refinement steps, a point a stopping threshold; None where no decode tried several.

    `curves`: dicts of system, search, and points {"settings", "bleu", "mean_steps"}.
    """
    drawn = [
        curve for curve in curves if len({p["settings"].get("stop_threshold") for p in curve["points"]} - {None}) > 1
    ]
    if not drawn:
        return None
    with matplotlib.rc_context(STYLE):
        figure = _figure(5.0, 2.7)
        axes = figure.subplots()
        ends = []
        for twin, curve in enumerate(drawn):
            points = sorted(curve["points"], key=lambda point: point["mean_steps"])
            x, y = [point["mean_steps"] for point in points], [point["bleu"] for point in points]
            colour = _colour(FAMILY_OF_SEARCH.get(curve["search"], "other"))
            axes.plot(x, y, marker="o", markersize=3.5, color=colour, linestyle=DASHES[twin % len(DASHES)])
            ends.append((x[-1], y[-1], f"{curve['search']} · {curve['system']}", colour))
        axes.set_title("BLEU on dev")
        axes.set_xlabel("refinement steps, mean over sentences")
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.margins(x=0.03, y=0.1)
        _label_ends(figure, [(axes, ends)], 7.5)
    return figure


def save(figure: Figure, folder: Path, name: str) -> str:
    """Write NAME.svg and NAME.png into `folder`; returns the SVG element for the page. The bytes are reproducible."""

    def svg(fonttype: str) -> str:
        file = io.StringIO()
        with matplotlib.rc_context(STYLE | {"svg.fonttype": fonttype, "svg.hashsalt": name}):
            figure.savefig(file, format="svg", transparent=fonttype == "none", metadata={"Date": None})
        return file.getvalue()

    with atomic(folder / f"{name}.svg") as file:
        file.write(svg("path"))
    with atomic(folder / f"{name}.png", "wb") as file, matplotlib.rc_context(STYLE):
        figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
    return for_page(svg("none"), name)


def for_page(svg: str, name: str) -> str:
    """An SVG document as an element of a page: no prologue or metadata, ids of its own, colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
