"""A map of latents: decoded subwords, a network's field, and paths of refinement.

Regions carry the subwords that they are, so that a map can be read in black and white.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from workflow_src.evaluation.analyses.latent_space import LatentSpace, Panel
from workflow_src.evaluation.charts import SHAPES, Chart, Series
from workflow_src.evaluation.document import Block, Caption, Example, Line, Picture
from workflow_src.evaluation.manifest import Manifest

# Light tints of the palette of Okabe and Ito, in order of a region's size. A map has its own paper, also where the page
# is dark: nothing in it is a colour that pages replace.
TINTS = ["#f2f2ee", "#bfe0f5", "#f8dfa8", "#c4e8d9", "#f3c9b4", "#e6cfe0"]
# Colour of the regions beyond these tints.
REST = "#c9c9c9"
DARK = "#1f1f22"
PALE = "#ffffff"
ARROWS = "#4b4b4b"
# Marker and colour of the paths: that of the model itself, then that of the network.
PATHS = (("X", "#005a91"), ("o", "#c24a00"))
LABELLED_SHARE = 0.06
# Panels of a row, and pixels of a panel.
ABREAST, SIDE = 4, 142


def show(content: LatentSpace, manifest: Manifest) -> list[Block]:
    titles = (system.family.title.lower() for system in manifest.systems if system.name == content.system)
    kind, start = next(titles, "network"), manifest.start_title
    caption = Caption(
        f"The latents of sentence {content.sentence + 1} of {content.split} with the {kind} "
        f"{content.system}, a panel for each target subword{_end_symbol_words(content)}, at the reference's length.",
        {
            "Background": f"The subword decoded where only this position moves and the others stay at the {start}.",
            "Arrows": f"The {kind}'s field there.",
            "Paths": "They move all positions at once, so their ends may decode to another subword than the "
            "background's; markers shrink from step to step.",
            "Above panels": f"The subwords decoded from the posterior mean of the reference, the {start}, and after "
            f"{content.steps} steps.",
        },
    )
    points = [
        ("posterior", "posterior"),
        ("prior", start),
        *((name, manifest.title(name)) for name in content.searches),
    ]
    lines = [
        Line("source", content.source, source=True),
        Line("reference", content.reference),
        *(Line(title, content.texts[name], first=name == "posterior") for name, title in points),
    ]
    panels: list[Any] = [_panel(content, panel, number, manifest) for number, panel in enumerate(content.panels)]
    chart = alt.concat(*panels, columns=min(ABREAST, len(panels)), spacing=14)
    label = "Maps of the latent space, one for each target subword"
    return [Example(tuple(lines), framed=False), Picture("", chart, caption, label)]


def _end_symbol_words(content: LatentSpace) -> str:
    """Words of a caption about the panel of the end symbol; empty where targets have none."""
    number = content.end_symbol
    return "" if number is None else f" and one for the end symbol ({content.pieces[number]}: nothing is said)"


def piece_label(piece: str) -> str:
    """A subword to be shown: inside of a word it begins with a dash."""
    if piece.startswith("▁"):
        return piece[1:] or "␣"
    return f"-{piece}" if piece[:1].isalnum() else piece


def _runs(cells: np.ndarray, low: np.ndarray, side: float) -> list[dict[str, float]]:
    """The cells (rows, columns) that are True as rectangles, one for each run of a row."""
    rectangles = []
    for row, line in enumerate(cells):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        for start, end in edges.reshape(-1, 2):
            rectangles.append(
                {
                    "x": float(low[0] + side * start),
                    "x2": float(low[0] + side * end),
                    "y": float(low[1] + side * row),
                    "y2": float(low[1] + side * (row + 1)),
                }
            )
    return rectangles


def _inmost(cells: np.ndarray) -> tuple[int, int]:
    """The cell (row, column) of a region farthest from its border, steps counted along axes; the middle one of several.

    The frame is no border: a region that is cut off there goes on.
    """
    inside, depth = cells, np.zeros(cells.shape, dtype=int)
    for _ in range(max(cells.shape)):
        depth += inside
        around = np.pad(inside, 1, mode="edge")
        inside = inside & around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    deepest = np.argwhere(depth == depth.max())
    row, column = deepest[np.abs(deepest - deepest.mean(0)).sum(1).argmin()]
    return int(row), int(column)


def _background(panel: Panel, pieces: dict[int, str], axes: dict[str, Any]) -> list[alt.Chart]:
    """Regions of decoded subwords; the largest are named inside."""
    cells = np.array(panel.regions)
    side = 2 * panel.half / len(cells)
    low = np.array(panel.centre) - panel.half
    counts = collections.Counter(cells.flatten().tolist()).most_common()
    rectangles, names = [], []
    for number, (token, count) in enumerate(counts):
        name, tint = piece_label(pieces[token]), TINTS[number] if number < len(TINTS) else REST
        rectangles += [run | {"piece": name, "tint": tint} for run in _runs(cells == token, low, side)]
        if count >= LABELLED_SHARE * cells.size and len(counts) > 1:
            row, column = _inmost(cells == token)
            x, y = low + side * (np.array([column, row]) + 0.5)
            names.append({"x": float(x), "y": float(y), "piece": name, "tint": tint})
    named = alt.Chart(alt.Data(values=names)).encode(text="piece:N", **axes)
    return [
        alt.Chart(alt.Data(values=rectangles))
        .mark_rect(strokeWidth=0.3)
        .encode(
            x2="x2",
            y2="y2",
            color=alt.Color("tint:N", scale=None),
            stroke=alt.Stroke("tint:N", scale=None),
            tooltip=alt.Tooltip("piece:N", title="subword"),
            **axes,
        ),
        # Readable also on an arrow: the letters have an edge in the colour of their region.
        named.mark_text(fontSize=9, strokeWidth=3).encode(stroke=alt.Stroke("tint:N", scale=None)),
        named.mark_text(fontSize=9, color=DARK),
    ]


def _arrows(panel: Panel, axes: dict[str, Any]) -> list[alt.Chart]:
    """The field: the longest arrow is as long as the arrows are apart."""
    field = np.array(panel.arrows)
    longest = max(float(np.hypot(field[:, 2], field[:, 3]).max()), 1e-12)
    scale = 2 * panel.half / len(field) ** 0.5 / longest
    arrows = [
        {
            "x": x,
            "y": y,
            "x2": x + scale * dx,
            "y2": y + scale * dy,
            # Clockwise from upwards, in degrees.
            "angle": math.degrees(math.atan2(dx, dy)),
        }
        for x, y, dx, dy in panel.arrows
    ]
    base = alt.Chart(alt.Data(values=arrows))
    return [
        base.mark_rule(color=ARROWS, strokeWidth=0.7).encode(x2="x2", y2="y2", **axes),
        base.mark_point(shape="triangle", filled=True, color=ARROWS, size=26, opacity=1).encode(
            angle=alt.Angle("angle:Q", scale=None), **_axes(panel, "x2:Q", "y2:Q")
        ),
    ]


def _axes(panel: Panel, x: str = "x:Q", y: str = "y:Q") -> dict[str, Any]:
    """The plane of a panel, for rows with these fields."""
    axis = alt.Axis(tickCount=3, labelFontSize=7, grid=False, title=None)
    spans = [alt.Scale(domain=[middle - panel.half, middle + panel.half], nice=False) for middle in panel.centre]
    return {"x": alt.X(x, axis=axis, scale=spans[0]), "y": alt.Y(y, axis=axis, scale=spans[1])}


def _panel(content: LatentSpace, panel: Panel, number: int, manifest: Manifest) -> Chart:
    """The plane of a position: the decoded subwords as background, the field, prior and posterior mean, the paths."""
    axes = _axes(panel)
    looks = _looks(content, manifest)
    encodings = _encodings(list(looks.values()))
    walked = [
        {"label": looks[name].name, "x": x, "y": y, "step": step}
        for name in content.searches
        for step, (x, y) in enumerate(panel.paths[name])
    ]
    places = {"prior": panel.prior, "posterior": panel.posterior}
    points = [{"label": looks[name].name, "x": x, "y": y} for name, (x, y) in places.items()]
    path = alt.Chart(alt.Data(values=walked)).encode(order="step:Q", **axes)
    # Markers shrink from step to step.
    size = alt.Size("step:Q", scale=alt.Scale(domain=[1, content.steps], range=[42, 12]), legend=None)
    layers = [
        *_background(panel, content.pieces, axes),
        *_arrows(panel, axes),
        path.mark_line(strokeWidth=1.1).encode(color=encodings["color"]),
        path.transform_filter("datum.step > 0")
        .mark_point(strokeWidth=0.5, opacity=1)
        .encode(size=size, stroke=alt.value(PALE), fill=encodings["fill"], shape=encodings["shape"]),
        alt.Chart(alt.Data(values=points)).mark_point(size=60, strokeWidth=1.4, opacity=1).encode(**encodings, **axes),
    ]
    labels = {name: piece_label(content.pieces[ids[number]]) for name, ids in content.outputs.items()}
    # Two a line: long words would run into the next panel.
    lines = [
        f"{number + 1}   posterior: {labels['posterior']} · prior: {labels['prior']}",
        " · ".join(f"{manifest.title(name)}: {labels[name]}" for name in content.searches),
    ]
    title = alt.TitleParams(lines, fontSize=8, limit=SIDE + 20)
    return alt.layer(*layers, width=SIDE, height=SIDE, title=title)


def _looks(content: LatentSpace, manifest: Manifest) -> dict[str, Series]:
    """How points and paths are drawn, by name."""
    looks = {
        "prior": Series("prior mean", "#111111", "*"),
        # Delta often ends there.
        "posterior": Series("posterior mean of the reference", "#7b3294", "s", hollow=True),
    }
    for name, (marker, colour) in zip(content.searches, PATHS, strict=False):
        looks[name] = Series(f"{manifest.title(name)}, step by step", colour, marker)
    return looks


def _encodings(looks: Sequence[Series]) -> dict[str, Any]:
    titles = [look.name for look in looks]
    legend = alt.Legend(title=None, orient="top", columns=len(titles))

    def scale(values: list[str]) -> dict[str, Any]:
        return {"scale": alt.Scale(domain=titles, range=values), "legend": legend}

    fills = ["transparent" if look.hollow else look.colour for look in looks]
    return {
        "color": alt.Color("label:N", **scale([look.colour for look in looks])),
        "fill": alt.Fill("label:N", **scale(fills)),
        "shape": alt.Shape("label:N", **scale([SHAPES[look.marker] for look in looks])),
    }
