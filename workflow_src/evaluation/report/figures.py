"""Curves of the main table's rows: which are joined, how they are drawn; refinement and stopping."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from workflow_src.evaluation.charts import Axis, Chart, Panel, Series, is_curve, panels
from workflow_src.evaluation.manifest import ShownDecode
from workflow_src.evaluation.report.evidence import Group, Line
from workflow_src.evaluation.report.files import Choice
from workflow_src.registry import main_metric
from workflow_src.spec import Look, Metric


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
        curves += [Curve(twin, group.head.name, tuple(sorted(lines, key=_value))) for lines in by.values()]
    return curves


def series_of(curves: Sequence[Curve]) -> dict[int, Series]:
    """The series of every curve by its identity: its search, another engine, and a further system of the family.

    Autoregressive searches that look alike are one series, as are searches of one family on another engine, whose
    marker is the engine's.
    """
    titles_by_look: dict[Look, set[str]] = {}
    for curve in curves:
        titles_by_look.setdefault(curve.decode.look, set()).add(curve.decode.search.title)
    looks: dict[str, Series] = {}
    chosen: dict[int, Series] = {}
    for curve in curves:
        decode, family = curve.decode, curve.decode.system.family
        name = "autoregressive" if family.autoregressive else decode.search.title
        if not decode.engine.own:
            alike = len(titles_by_look[decode.look]) > 1 and not family.autoregressive
            name = f"{family.title if alike else name}, {decode.engine.title}"
        name += f" · {curve.group}" if curve.twin else ""
        look = decode.look
        drawn = Series(name, decode.colour, look.marker or "o", curve.twin, hollow=curve.twin > 0)
        if looks.get(name, drawn) != drawn:
            drawn = dataclasses.replace(drawn, name=f"{decode.search.title} ({family.title}) · {curve.group}")
        chosen[id(curve)] = looks.setdefault(drawn.name, drawn)
    return chosen


def numbers_of(groups: Iterable[Group]) -> dict[int, int]:
    """Numbers of lines by identity, from 1, in the order of the main table."""
    lines = [line for group in groups for line in group.lines]
    return {id(line): number for number, line in enumerate(lines, 1)}


def _value(line: Line) -> float:
    return line.decode.value or 0


def _steps(line: Line) -> float:
    """Refinement steps that a row takes."""
    return _value(line) - line.decode.search.first_value if line.decode.value is not None else 0


def refinement(groups: list[Group]) -> Chart | None:
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
    metrics = [
        metric
        for metric in dict.fromkeys(metric for line in lines for metric, _ in line.deciding)
        if any(
            is_curve((_steps(line), line.figures[metric.name]) for line in _followed(groups, curve)) for curve in curves
        )
    ]
    if not metrics:
        return None
    series = series_of(curves)
    reference = next((line for line in lines if line.decode.reference), None)
    drawn = []
    for metric in metrics:
        rows = [row for curve in curves for row in _refined(groups, metric, curve, series[id(curve)])]
        value = reference.figures[metric.name] if reference else None
        level = None
        if reference and value is not None:
            level = (metric.factor * value, reference.decode.colour, f"{reference.system} {reference.label}")
        x = Axis("refinement steps L", whole=True)
        drawn.append(Panel(metric.axis, rows, x, Axis(metric.title), level=level))
    return panels(drawn, list(series.values()), columns=2)


def _followed(groups: list[Group], curve: Curve) -> list[Line]:
    """The lines of a search after the row that it refines, where there is one."""
    lines = [line for group in groups if group.head.name == curve.group for line in group.lines]
    start = [line for line in lines if line.decode.search.name == curve.decode.search.baseline]
    return [*start[:1], *curve.lines]


def _refined(groups: list[Group], metric: Metric, curve: Curve, series: Series) -> list[dict[str, Any]]:
    """Points of one search of one model from its unrefined row on, with deviations where all have one."""
    key, factor = metric.name, metric.factor
    lines = [line for line in _followed(groups, curve) if line.figures[key] is not None]
    spread = all(line.spread for line in lines)
    return [
        {"series": series.name, "name": f"{line.system}: {line.label}", "x": _steps(line), "y": factor * value}
        | ({"error": factor * (line.spread or {}).get(key, 0)} if spread else {})
        for line in lines
        if (value := line.figures[key]) is not None
    ]


def stopping(choices: Iterable[Choice]) -> Chart | None:
    """The main metric on dev against mean refinement steps, one point for each stopping threshold; None where no decode
    tried several."""
    main = main_metric()
    rows: list[dict[str, Any]] = []
    series: list[Series] = []
    for choice in choices:
        points = [(point["mean_steps"], point[main.name]) for point in choice.points]
        if not (_tried_stops(choice) and is_curve(points)):
            continue
        decode = choice.decode
        name = f"{decode.search.title} · {decode.system.name}, {decode.name}, seed {choice.seed}"
        series.append(Series(name, decode.colour, dash=len(series)))
        rows += [{"series": name, "x": x, "y": main.factor * y} for x, y in points]
    title = f"{main.title} on dev"
    x = Axis("refinement steps, mean over sentences")
    return panels([Panel(title, rows, x, Axis(main.title))], series) if rows else None


def _tried_stops(choice: Choice) -> bool:
    """Whether several values of a setting that stops sentences were tried."""
    return any(
        len({point["settings"].get(name) for point in choice.points} - {None}) > 1
        for name in choice.decode.search.settings.named("stop")
    )
