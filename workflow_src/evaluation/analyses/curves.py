"""Tables and pictures of searches that are followed from step to step: a curve for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workflow_src.evaluation.analyses.content import Curves, Entry, Figures, GainPoint
from workflow_src.evaluation.analyses.shown import figured
from workflow_src.evaluation.manifest import Manifest, differing, words
from workflow_src.evaluation.report.document import Block, Caption, Table
from workflow_src.evaluation.report.figures import DASHES, STYLE, finite, is_curve, label_ends, new_figure, style_of
from workflow_src.evaluation.report.markdown import signed
from workflow_src.registry import searches


def start_title(manifest: Manifest) -> str:
    """The title of the outputs at L = 0."""
    return manifest.start.title if manifest.start else "start"


def curve_blocks(
    content: Curves[Figures],
    manifest: Manifest,
    caption: Caption,
    heads: list[str],
    cells: Callable[[Figures], list[str]],
    panels: Sequence[CurvePanel],
    label: str,
    height: float = 2.8,
) -> list[Block]:
    """A picture of curves, with a table of the same figures below it."""
    table = curve_table(heads, content, manifest, cells)
    return figured(curve_figure(content, manifest, panels, height), caption, label, table, errors=True)


def curve_table(
    heads: list[str], content: Curves[Figures], manifest: Manifest, cells: Callable[[Figures], list[str]]
) -> Table:
    """A row for each search and step; L = 0, which all searches of a model share, stands once."""
    rows, starts = [], set()
    for curve in content.curves:
        for point in curve.points:
            name = curve_label(curve, content.curves, manifest)
            if point.steps == 0:
                if curve.model in starts:
                    continue
                starts.add(curve.model)
                several = len({other.model for other in content.curves}) > 1
                name = start_title(manifest) + (f" · {curve.model}" if several else "")
            rows.append([name, str(point.steps), *cells(point)])
    return Table(["", "L", *heads], rows)


def change_cells(point: GainPoint) -> list[str]:
    """Cells of the gain of refinement and of the shares of sentences that rose and fell; empty at L = 0."""
    if not point.steps:
        return ["", "", ""]
    shares = [f"{100 * share:.0f}" for share in (point.risen, point.fallen)]
    return [f"{signed(point.gain)} ± {point.gain_error:.2f}", *shares]


def _style(entry: Entry, entries: Sequence[Entry], manifest: Manifest) -> dict[str, Any]:
    twin = [other for other in entries if other.search == entry.search].index(entry)
    style = style_of(manifest.look(entry.system, entry.search), twin)
    return style | {"linestyle": DASHES[twin % len(DASHES)]}


def curve_label(entry: Entry, entries: Sequence[Entry], manifest: Manifest) -> str:
    """The search, with its system and the settings in which it differs from other entries of the search."""
    settings, all_settings = entry.settings, [other.settings for other in entries]
    name = manifest.title(entry.search)
    name += f" · {entry.system}" if differing(settings, all_settings, ["system"]) else ""
    kept = searches()[entry.search].settings.named("follow") if entry.search in searches() else ()
    differences = differing(settings, all_settings, kept)
    return name + (f" · {words(differences)}" if differences else "")


@dataclasses.dataclass(frozen=True)
class CurvePanel:
    """A panel of curves over refinement steps: a figure of their points, times `factor`, from step `first` on; `error`
    is the figure of its error bars."""

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
        by_steps = {point.steps: getattr(point, self.error) for point in curve.points} if self.error else {}
        return [self.factor * by_steps[steps] for steps, _ in self.points(curve)]


def curve_figure(content: Curves, manifest: Manifest, panels: Sequence[CurvePanel], height: float) -> Figure | None:
    """The figure of those `panels` that have a curve to show, at most three in a row; None where none has."""
    drawn = [panel for panel in panels if any(is_curve(panel.points(curve)) for curve in content.curves)]
    if not drawn:
        return None
    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2 if columns > 1 else 4.2, height * rows)
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        labels = [
            (axes, _panel_of_curves(axes, content, manifest, panel)) for axes, panel in zip(grid, drawn, strict=False)
        ]
        for axes in grid[len(drawn) :]:
            axes.set_visible(False)
        label_ends(figure, labels, 7.5)
    return figure


def _panel_of_curves(axes: Axes, content: Curves, manifest: Manifest, panel: CurvePanel) -> list[tuple]:
    """Draw a figure of every curve against its steps, with error bars where there are any; returns ends for labels."""
    ends, curves = [], content.curves
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
