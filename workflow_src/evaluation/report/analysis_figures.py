"""Pictures of the analyses: marginals, tokens, convergence, paths and components of latents, word order, and a map.

They share style, colours and markers with `figures`. A map also tells regions apart by hatching and by the subwords
written into them, so that it can be read in black and white.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator

from workflow_src.config.manifest import OTHER, Manifest, differing, words
from workflow_src.evaluation.analyses import contents
from workflow_src.evaluation.analyses.curves import Curves, Entry
from workflow_src.evaluation.report.figures import (
    DASHES,
    MUTED,
    STYLE,
    _figure,
    _label_ends,
    finite,
    is_curve,
    style_of,
)
from workflow_src.evaluation.report.figures_order import reordering

# Light tints of the palette of Okabe and Ito, in order of a region's size, and hatches that part them in print. A map
# has its own paper, also where the page is dark: nothing in it is a colour that pages replace.
TINTS = ["#f2f2ee", "#bfe0f5", "#f8dfa8", "#c4e8d9", "#f3c9b4", "#e6cfe0"]
HATCHES = ["", "////", "....", "\\\\\\\\", "xxxx", "----"]
REST, DARK, PALE = "#c9c9c9", "#1f1f22", "#ffffff"
POINTS = {"prior": ("*", "#111111", "prior mean"), "posterior": ("s", "#7b3294", "posterior mean of the reference")}
# Marker and colour of the paths: that of the model itself, then that of the network.
PATHS = (("X", "#005a91"), ("o", "#c24a00"))
LABELLED_SHARE = 0.06


def _style(entry: Entry, entries: Sequence[Entry], manifest: Manifest) -> dict[str, Any]:
    twin = [other for other in entries if other.search == entry.search].index(entry)
    style = style_of(manifest.look(entry.system, entry.search), twin)
    return style | {"linestyle": DASHES[twin % len(DASHES)]}


def curve_label(entry: Entry, entries: Sequence[Entry], manifest: Manifest) -> str:
    """The search, with its system and the settings that tell it from others that share the search."""
    own, every = entry.settings, [other.settings for other in entries]
    name = manifest.title(entry.search)
    name += f" · {entry.system}" if differing(own, every, ["system"]) else ""
    apart = differing(own, every, manifest.kept(entry.search))
    return name + (f" · {words(apart)}" if apart else "")


def paths(found: contents.LatentSpace) -> dict[str, tuple[str, str]]:
    """Marker and colour of the paths of a map by search: that of the model itself comes first."""
    return dict(zip(found.searches, PATHS, strict=False))


@dataclasses.dataclass(frozen=True)
class Followed:
    """What a panel follows over refinement steps: a figure of the points of curves, times `factor`, from step `first`
    on; `error` is the figure that its error bars show."""

    key: str
    title: str
    error: str | None = None
    factor: float = 1
    first: int = 0

    def points(self, curve: Any) -> list[tuple[float, float]]:
        """Steps and the figure of those points of a curve that have it."""
        values = ((point.steps, getattr(point, self.key)) for point in curve.points if point.steps >= self.first)
        return [(steps, self.factor * value) for steps, value in finite(values)]

    def errors(self, curve: Any) -> list[float]:
        """The errors of `points`."""
        by_steps = {point.steps: getattr(point, self.error) for point in curve.points}
        return [self.factor * by_steps[steps] for steps, _ in self.points(curve)]


def _curves(found: Curves, manifest: Manifest, panels: Sequence[Followed], height: float) -> Figure | None:
    """A panel for each that has a curve to show, at most three in a row; None where none has."""
    shown = [panel for panel in panels if any(is_curve(panel.points(curve)) for curve in found.curves)]
    if not shown:
        return None
    across = min(3, len(shown))
    rows = -(-len(shown) // across)
    with matplotlib.rc_context(STYLE):
        figure = _figure(7.2 if across > 1 else 4.2, height * rows)
        grid = figure.subplots(rows, across, squeeze=False).flatten()
        labels = [
            (axes, _panel_of_curves(axes, found, manifest, panel)) for axes, panel in zip(grid, shown, strict=False)
        ]
        for axes in grid[len(shown) :]:
            axes.set_visible(False)
        _label_ends(figure, labels, 7.5)
    return figure


def _panel_of_curves(axes: Axes, found: Curves, manifest: Manifest, panel: Followed) -> list[tuple]:
    """Draw a figure of every curve against its steps, with error bars where there are any; returns ends for labels."""
    ends, curves = [], found.curves
    for number, curve in enumerate(curves):
        points = panel.points(curve)
        if not points:
            continue
        # Curves share their numbers of steps: moved aside a little, error bars stay apart.
        shift = 0.06 * (number - (len(curves) - 1) / 2)
        x, y = [steps + shift for steps, _ in points], [value for _, value in points]
        style = _style(curve, curves, manifest)
        axes.plot(x, y, **style)
        if panel.error:
            axes.errorbar(x, y, panel.errors(curve), fmt="none", ecolor=style["color"], elinewidth=0.8, capsize=2)
        # Labels begin right of all curves.
        ends.append(
            (points[-1][0] + 0.03 * (len(curves) - 1), y[-1], curve_label(curve, curves, manifest), style["color"])
        )
    axes.set_title(panel.title)
    axes.set_xlabel("refinement steps L")
    axes.set_xticks(sorted({point.steps for curve in curves for point in curve.points if point.steps >= panel.first}))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.margins(x=0.04, y=0.1)
    return ends


def marginal(found: contents.Marginal, manifest: Manifest) -> Figure | None:
    """log p(y|x) against L with its error from sampling, and the gain on L = 0 with its paired error over sentences."""
    panels = (
        Followed("log_probability", "log p(y|x), nats a sentence", "error"),
        Followed("gain", f"gain on the {start_title(manifest)}, nats", "gain_error"),
    )
    return _curves(found, manifest, panels, 2.8)


def start_title(manifest: Manifest) -> str:
    """What the outputs at L = 0 are called."""
    return manifest.start.title if manifest.start else "start"


def tokens(found: contents.Tokens, manifest: Manifest) -> Figure | None:
    """Edit distance from the first output, and repetitions relative to it where it has any, against L."""
    panels = (
        Followed("edit_distance", "edit distance from L = 0, subwords a sentence", "edit_distance_error"),
        Followed("relative_repetitions", "repetitions, % of those at L = 0", "relative_repetitions_error", 100),
    )
    return _curves(found, manifest, panels, 2.8)


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


def _background(axes: Axes, panel: contents.Panel, pieces: dict[int, str]) -> None:
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
    rest = {token for token, _ in counts[len(TINTS) :]}
    if rest:
        outline = _region(np.isin(cells, list(rest)), low, side)
        axes.add_patch(PathPatch(outline, facecolor=REST, linewidth=0, zorder=0))
        handles.append(Patch(facecolor=REST))
        names.append(f"{len(rest)} others")
    # Handed over as texts: a label of a handle is left out where it begins with an underscore.
    style = {"ncols": 3, "fontsize": 6, "frameon": False, "handlelength": 1.3, "handleheight": 0.9}
    spacing = {"columnspacing": 0.8, "handletextpad": 0.4, "borderpad": 0}
    axes.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, -0.12), **style, **spacing)


def _panel(
    axes: Axes,
    found: contents.LatentSpace,
    panel: contents.Panel,
    tokens: dict[str, int],
    number: int,
    manifest: Manifest,
) -> None:
    pieces = found.pieces
    _background(axes, panel, pieces)
    x, y, dx, dy = np.array(panel.arrows).T
    spacing = 2 * panel.half / len(x) ** 0.5
    longest = max(float(np.hypot(dx, dy).max()), 1e-12)
    head = {"width": 0.005, "headwidth": 3.6, "headlength": 4.2, "headaxislength": 3.8, "minlength": 0.3}
    scale = {"angles": "xy", "scale_units": "xy", "scale": longest / spacing}
    axes.quiver(x, y, dx, dy, color="#4b4b4b", zorder=2, **scale, **head)
    for name, (marker, colour) in paths(found).items():
        points = np.array(panel.paths[name])
        axes.plot(*points.T, color=colour, linewidth=1.1, zorder=3)
        sizes = np.linspace(46, 14, len(points) - 1)
        axes.scatter(*points[1:].T, s=sizes, marker=marker, color=colour, edgecolor=PALE, linewidth=0.5, zorder=4)
    for name, (marker, colour, _) in POINTS.items():
        # The square is open: delta often ends in the posterior mean.
        look = (
            {"color": colour, "edgecolor": PALE, "linewidth": 0.6}
            if marker == "*"
            else {"facecolor": "none", "edgecolor": colour, "linewidth": 1.5}
        )
        axes.scatter(*getattr(panel, name), s=80 if marker == "*" else 48, marker=marker, zorder=5, **look)
    (left, low), half = panel.centre, panel.half
    axes.set(xlim=(left - half, left + half), ylim=(low - half, low + half), aspect="equal")
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(length=2, labelsize=6)
    said = {name: piece_label(pieces[token]) for name, token in tokens.items()}
    # Two a line: long words would run into the next panel.
    lines = [
        f"posterior: {said['posterior']} · prior: {said['prior']}",
        " · ".join(f"{manifest.title(name)}: {said[name]}" for name in paths(found)),
    ]
    axes.set_title(f"{number}   {lines[0]}\n{lines[1]}", fontsize=6.3)


def latent_space(found: contents.LatentSpace, manifest: Manifest) -> Figure | None:
    """A panel a position: the decoded subword as background, the field, the prior and posterior mean, and the paths.

    None where no position was mapped.
    """
    panels = found.panels
    if not panels:
        return None
    across = min(4, len(panels))
    rows = -(-len(panels) // across)
    with matplotlib.rc_context(STYLE | {"hatch.linewidth": 0.35}):
        figure = _figure(1.95 * across, 2.55 * rows + 0.35)
        grid = figure.subplots(rows, across, squeeze=False).flatten()
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            tokens = {name: ids[number] for name, ids in found.outputs.items()}
            _panel(axes, found, panel, tokens, number + 1, manifest)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        handles = [
            Line2D(
                [],
                [],
                linestyle="",
                marker=marker,
                color=colour,
                markersize=8 if marker == "*" else 6,
                markerfacecolor=colour if marker == "*" else "none",
                markeredgewidth=0.6 if marker == "*" else 1.5,
            )
            for marker, colour, _ in POINTS.values()
        ]
        texts = [text for _, _, text in POINTS.values()]
        for name, (marker, colour) in paths(found).items():
            texts.append(f"{manifest.title(name)}, step by step")
            handles.append(Line2D([], [], marker=marker, color=colour, markersize=5, linewidth=1.1))
        figure.legend(handles, texts, loc="outside upper left", ncols=4, fontsize=7, frameon=False)
    return figure


def convergence(found: contents.Convergence, manifest: Manifest) -> Figure | None:
    """The bound and BLEU after L steps, and the share of sentences whose output stands still from step L on."""
    panels = (
        Followed("bound", "ELBO, nats a sentence", "bound_error"),
        Followed("bleu", "BLEU"),
        Followed("stopped", "sentences stopped at L, %", factor=100, first=1),
    )
    return _curves(found, manifest, panels, 2.8)


def latent_paths(found: contents.LatentPaths, manifest: Manifest) -> Figure | None:
    """Distances of the latents after L steps, their log-densities, and the cosine of steps and delta steps."""
    panels = [
        Followed(key, title, f"{key}_error", first=first)
        for key, title, first in (
            ("from_start", "distance from z_0", 0),
            ("step", "length of step L", 1),
            ("from_reference", "to the reference's mean", 0),
            ("log_prior", "log p(z|x), nats a position", 0),
            ("log_posterior", "log q(z|x,y), nats a position", 0),
            ("cosine", "cosine with the delta step", 1),
        )
    ]
    return _curves(found, manifest, panels, 2.6)


# Systems of one family share a colour: they differ in dashes and markers.
MARKERS = "osD^vP"


def components(found: contents.Components, manifest: Manifest) -> Figure | None:
    """Variance that each principal component of the posterior means holds, and that the first so many hold together.

    None where no system has two components.
    """
    systems = [one for one in found.systems if len(one.shares) > 1]
    if not systems:
        return None
    colours = {system.name: system.look.colour for system in manifest.systems}
    with matplotlib.rc_context(STYLE):
        figure = _figure(7.2, 2.9)
        left, right = figure.subplots(1, 2)
        lines = []
        for number, one in enumerate(systems):
            colour = colours.get(one.system) or OTHER.colour
            style = {
                "color": colour,
                "marker": MARKERS[number % len(MARKERS)],
                "markersize": 4,
                "linestyle": DASHES[number % len(DASHES)],
            }
            shares = 100 * np.array(one.shares)
            numbers = np.arange(1, len(shares) + 1)
            lines += left.plot(numbers, shares, **style)
            right.plot(numbers, shares.cumsum(), **style)
        right.axhline(100 * found.share, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        left.set_title("variance in each component, %")
        right.set_title(f"in the first components together, %   (dotted: {100 * found.share:g})")
        for axes in (left, right):
            axes.set_xlabel("principal component of the posterior means")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            axes.set_ylim(-3, 104)
        style = {"frameon": False, "fontsize": 7, "handlelength": 3.2, "columnspacing": 1.4}
        names = [one.system for one in systems]
        figure.legend(lines, names, loc="outside lower center", ncols=min(4, len(systems)), **style)
    return figure


DRAWN: dict[str, Callable[[Any, Manifest], Figure | None]] = {
    "marginal": marginal,
    "tokens": tokens,
    "latent_space": latent_space,
    "convergence": convergence,
    "latent_paths": latent_paths,
    "components": components,
    "reordering": reordering,
}
