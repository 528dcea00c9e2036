"""A map of latents: decoded subwords, a network's field, and paths of refinement.

Regions differ in hatching too and carry the subwords that they are, so that a map can be read in black and white.
"""

from __future__ import annotations

import collections
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator

from workflow_src.evaluation.analyses.curves import start_title
from workflow_src.evaluation.analyses.latent_space import LatentSpace, Panel
from workflow_src.evaluation.analyses.shown import figured
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.document import Block, Caption, Example, Line
from workflow_src.evaluation.report.maps import STYLE, new_figure

# Light tints of the palette of Okabe and Ito, in order of a region's size, and hatches that part them in print. A map
# has its own paper, also where the page is dark: nothing in it is a colour that pages replace.
TINTS = ["#f2f2ee", "#bfe0f5", "#f8dfa8", "#c4e8d9", "#f3c9b4", "#e6cfe0"]
HATCHES = ["", "////", "....", "\\\\\\\\", "xxxx", "----"]
REST, DARK, PALE = "#c9c9c9", "#1f1f22", "#ffffff"
# Marker, colour and title of points, and whether they are filled: delta often ends in the posterior mean.
POINTS = {
    "prior": ("*", "#111111", "prior mean", True),
    "posterior": ("s", "#7b3294", "posterior mean of the reference", False),
}
# Marker and colour of the paths: that of the model itself, then that of the network.
PATHS = (("X", "#005a91"), ("o", "#c24a00"))
LABELLED_SHARE = 0.06


def show(content: LatentSpace, manifest: Manifest) -> list[Block]:
    titles = (system.family.title.lower() for system in manifest.systems if system.name == content.system)
    kind, start = next(titles, "network"), start_title(manifest)
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
    label = "Maps of the latent space, one for each target subword"
    picture = figured(draw(content, manifest), caption, label)
    return [Example(tuple(lines), framed=False), *picture] if picture else []


def _end_symbol_words(content: LatentSpace) -> str:
    """Words of a caption about the panel of the end symbol; empty where targets have none."""
    number = content.end_symbol
    return "" if number is None else f" and one for the end symbol ({content.pieces[number]}: nothing is said)"


def paths(content: LatentSpace) -> dict[str, tuple[str, str]]:
    """Marker and colour of the paths of a map by search: that of the model itself comes first."""
    return dict(zip(content.searches, PATHS, strict=False))


def piece_label(piece: str) -> str:
    """A subword to be shown: inside of a word it begins with a dash."""
    if piece.startswith("▁"):
        return piece[1:] or "␣"
    return f"-{piece}" if piece[:1].isalnum() else piece


def _region(cells: np.ndarray, low: np.ndarray, side: float) -> Outline:
    """The cells (rows, columns) that are True as one outline: a rectangle for each run of a row."""
    vertices, codes = [], []
    for row, line in enumerate(cells):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        for start, end in edges.reshape(-1, 2):
            x0, x1 = low[0] + side * start, low[0] + side * end
            y0, y1 = low[1] + side * row, low[1] + side * (row + 1)
            vertices += [(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)]
            codes += [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    return Outline(vertices, codes)


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


def _background(axes: Axes, panel: Panel, pieces: dict[int, str]) -> None:
    """Regions of decoded subwords, the largest named inside and in a legend below."""
    cells = np.array(panel.regions)
    side = 2 * panel.half / len(cells)
    low = np.array(panel.centre) - panel.half
    counts = collections.Counter(cells.flatten().tolist()).most_common()
    handles, names = [], []
    for (token, count), tint, hatch in zip(counts, TINTS, HATCHES, strict=False):
        style = {"facecolor": tint, "hatch": hatch, "edgecolor": "#b4b4b4", "linewidth": 0, "zorder": 0}
        axes.add_patch(PathPatch(_region(cells == token, low, side), **style))
        name = piece_label(pieces[token])
        handles.append(Patch(facecolor=tint, hatch=hatch, edgecolor="#8a8a8a", linewidth=0.5))
        names.append(name)
        if count >= LABELLED_SHARE * cells.size and len(counts) > 1:
            row, column = _inmost(cells == token)
            x, y = low + side * (np.array([column, row]) + 0.5)
            box = {"boxstyle": "round,pad=0.15", "facecolor": tint, "edgecolor": "none"}
            axes.text(x, y, name, ha="center", va="center", fontsize=6.5, color=DARK, zorder=6, bbox=box)
    remaining = {token for token, _ in counts[len(TINTS) :]}
    if remaining:
        outline = _region(np.isin(cells, list(remaining)), low, side)
        axes.add_patch(PathPatch(outline, facecolor=REST, linewidth=0, zorder=0))
        handles.append(Patch(facecolor=REST))
        names.append(f"{len(remaining)} others")
    # Names are given as texts: matplotlib leaves out labels of handles that begin with an underscore.
    style = {"ncols": 3, "fontsize": 6, "frameon": False, "handlelength": 1.3, "handleheight": 0.9}
    spacing = {"columnspacing": 0.8, "handletextpad": 0.4, "borderpad": 0}
    axes.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, -0.12), **style, **spacing)


def _panel(
    axes: Axes, content: LatentSpace, panel: Panel, tokens: dict[str, int], number: int, manifest: Manifest
) -> None:
    pieces = content.pieces
    _background(axes, panel, pieces)
    x, y, dx, dy = np.array(panel.arrows).T
    spacing = 2 * panel.half / len(x) ** 0.5
    longest = max(float(np.hypot(dx, dy).max()), 1e-12)
    head: dict[str, Any] = {"width": 0.005, "headwidth": 3.6, "headlength": 4.2, "headaxislength": 3.8}
    scale: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": longest / spacing}
    axes.quiver(x, y, dx, dy, color="#4b4b4b", zorder=2, minlength=0.3, **scale, **head)
    for name, (marker, colour) in paths(content).items():
        points = np.array(panel.paths[name])
        axes.plot(*points.T, color=colour, linewidth=1.1, zorder=3)
        sizes = np.linspace(46, 14, len(points) - 1)
        x, y = points[1:].T
        axes.scatter(x, y, s=sizes, marker=marker, color=colour, edgecolor=PALE, linewidth=0.5, zorder=4)
    for name, (marker, colour, _, filled) in POINTS.items():
        face, edge, size, width = (colour, PALE, 80, 0.6) if filled else ("none", colour, 48, 1.5)
        look: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "linewidth": width}
        x, y = getattr(panel, name)
        axes.scatter(x, y, s=size, marker=marker, zorder=5, **look)
    (left, low), half = panel.centre, panel.half
    axes.set(xlim=(left - half, left + half), ylim=(low - half, low + half), aspect="equal")
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(length=2, labelsize=6)
    labels = {name: piece_label(pieces[token]) for name, token in tokens.items()}
    # Two a line: long words would run into the next panel.
    lines = [
        f"posterior: {labels['posterior']} · prior: {labels['prior']}",
        " · ".join(f"{manifest.title(name)}: {labels[name]}" for name in paths(content)),
    ]
    axes.set_title(f"{number}   {lines[0]}\n{lines[1]}", fontsize=6.3)


def draw(content: LatentSpace, manifest: Manifest) -> Figure | None:
    """A panel a position: the decoded subword as background, the field, the prior and posterior mean, and the paths.

    None where no position was mapped.
    """
    panels = content.panels
    if not panels:
        return None
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(STYLE | {"hatch.linewidth": 0.35}):
        figure = new_figure(1.95 * columns, 2.55 * rows + 0.35)
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            tokens = {name: ids[number] for name, ids in content.outputs.items()}
            _panel(axes, content, panel, tokens, number + 1, manifest)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        handles, texts = [], []
        for marker, colour, title, filled in POINTS.values():
            size, face, width = (8, colour, 0.6) if filled else (6, "none", 1.5)
            look: dict[str, Any] = {"markersize": size, "markerfacecolor": face, "markeredgewidth": width}
            handles.append(Line2D([], [], linestyle="", marker=marker, color=colour, **look))
            texts.append(title)
        for name, (marker, colour) in paths(content).items():
            texts.append(f"{manifest.title(name)}, step by step")
            handles.append(Line2D([], [], marker=marker, color=colour, markersize=5, linewidth=1.1))
        figure.legend(handles, texts, loc="outside upper left", ncols=4, fontsize=7, frameon=False)
    return figure
