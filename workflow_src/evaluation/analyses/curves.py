"""Tables and pictures of searches that are followed from step to step: a curve for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from workflow_src.evaluation.analyses.content import Curves, Entry, Figures, GainPoint
from workflow_src.evaluation.analyses.shown import figured
from workflow_src.evaluation.charts import Axis, Chart, Panel, Series, finite, is_curve, panels
from workflow_src.evaluation.document import Block, Caption, Table
from workflow_src.evaluation.manifest import Manifest, differing, words
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
    curve_panels: Sequence[CurvePanel],
    label: str,
) -> list[Block]:
    """A picture of curves, with a table of the same figures below it."""
    table = curve_table(heads, content, manifest, cells)
    return figured(curve_figure(content, manifest, curve_panels), caption, label, table, errors=True)


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
        """The errors of `points`, zeros where the figure has none."""
        by_steps = {point.steps: getattr(point, self.error) for point in curve.points} if self.error else {}
        return [self.factor * by_steps.get(steps, 0) for steps, _ in self.points(curve)]


def curve_figure(content: Curves, manifest: Manifest, curve_panels: Sequence[CurvePanel]) -> Chart | None:
    """The chart of those panels that have a curve to show, at most three in a row; None where none has."""
    drawn = [panel for panel in curve_panels if any(is_curve(panel.points(curve)) for curve in content.curves)]
    if not drawn:
        return None
    names = [curve_label(curve, content.curves, manifest) for curve in content.curves]
    series = [_series(curve, content.curves, manifest, name) for curve, name in zip(content.curves, names, strict=True)]
    charted = []
    for panel in drawn:
        rows = [
            {"series": name, "x": x, "y": y, "error": error}
            for name, curve in zip(names, content.curves, strict=True)
            for (x, y), error in zip(panel.points(curve), panel.errors(curve), strict=True)
        ]
        charted.append(Panel(panel.title, rows, Axis("refinement steps L", whole=True)))
    return panels(charted, series)


def _series(entry: Entry, entries: Sequence[Entry], manifest: Manifest, name: str) -> Series:
    twin = [other for other in entries if other.search == entry.search].index(entry)
    look = manifest.look(entry.system, entry.search)
    return Series(name, look.colour or "", look.marker or "o", twin, hollow=twin > 0)
