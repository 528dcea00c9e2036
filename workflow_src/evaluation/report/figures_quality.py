"""Quality against speed: of the main table's rows, one at a time, and under every latency that was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from workflow_src.evaluation.charts import Axis, Chart, Panel, panels
from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.report.evidence import Group, Line
from workflow_src.evaluation.report.figures import Curve, curves_of, numbers_of, series_of
from workflow_src.evaluation.report.speed_page import device_words, extent
from workflow_src.evaluation.speed.measured import Speed

# With more rows than this, only those that no other row beats have numbers.
CROWDED = 24
# Milliseconds a sentence by system and name of a row.
Times = Mapping[Key, float]


def undominated(points: list[tuple[float, float]]) -> list[int]:
    """Indices of the (milliseconds, goodness) points without a faster point that is at least as good, by speed.

    Of equal points the first counts.
    """
    best: list[int] = []
    for index in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not best or points[index][1] > points[best[-1]][1]:
            best.append(index)
    return best


def timed_curves(groups: list[Group], times: Times) -> list[Curve]:
    """Curves of the rows whose speed was measured."""
    timed = (
        dataclasses.replace(curve, lines=tuple(line for line in curve.lines if line.decode.key in times))
        for curve in curves_of(groups)
    )
    return [curve for curve in timed if curve.lines]


def quality_speed(groups: list[Group]) -> Chart | None:
    """The main metric against milliseconds a sentence (log scale), one point a row; steps of one search are joined.

    None where fewer than two rows were timed. A grey line joins the rows without a faster row that is at least as good.
    Points have the numbers of their rows in the table, of many rows those on the grey line.
    """
    return _against(groups, own_latencies(groups), "milliseconds a sentence, one at a time, log scale", 620)


def own_latencies(groups: list[Group]) -> dict[str, Times]:
    """The latencies of the main table's rows, which need no title."""
    lines = [line for group in groups for line in group.lines]
    return {"": {line.decode.key: ms for line in lines if (ms := line.figures["latency_ms"]) is not None}}


def latencies(speed: Speed | None) -> dict[str, Times]:
    """Two latencies for each protocol of speed.json: one sentence at a time (medians), and in batches (means).

    Titles name the device and the batch size; times are milliseconds a sentence.
    """
    ways: dict[str, Times] = {}
    for measurement in speed.protocols if speed else ():
        rows, place = measurement.rows, device_words(measurement.protocol)
        if rows:
            batch_sizes = extent([row.batch for row in rows], 0)
            ways[f"{place}, one at a time"] = {row.key: row.latency_ms for row in rows}
            ways[f"{place}, in batches of {batch_sizes}"] = {row.key: 1000 / row.sentences_per_second for row in rows}
    return ways


def quality_latencies(groups: list[Group], speed: Speed | None) -> Chart | None:
    """Quality against milliseconds a sentence (log scale), a panel a latency; None where no two rows were timed.

    A grey line joins the rows that no other row of the panel beats in both: these have their numbers in the table.
    """
    return _against(groups, latencies(speed), "milliseconds a sentence, log scale", 300, crowded=0)


def _shown(groups: list[Group], ways: Mapping[str, Times]) -> dict[str, list[Curve]]:
    """Curves of each way to measure that has at least two rows."""
    curves_by_way = {title: timed_curves(groups, times) for title, times in ways.items()}
    return {title: curves for title, curves in curves_by_way.items() if sum(len(c.lines) for c in curves) > 1}


def _best(curves: Sequence[Curve], times: Times) -> list[Line]:
    """The lines that no other one beats in both, by speed."""
    lines = [line for curve in curves for line in curve.lines]
    return [lines[index] for index in undominated([(times[line.decode.key], line.goodness) for line in lines])]


def notes(groups: list[Group], ways: Mapping[str, Times]) -> dict[str, str]:
    """Notes on the lines and markers that a picture of these times has."""
    shown = _shown(groups, ways)
    curves = [curve for of_way in shown.values() for curve in of_way]
    joined = any(len(curve.lines) > 1 for curve in curves)
    grey = any(len(_best(of_way, ways[title])) > 1 for title, of_way in shown.items())
    hollow = any(curve.twin for curve in curves)
    return {
        "Joined points": "Those of one search, in the order of its steps, beams or candidates." if joined else "",
        "Grey line": "It joins rows that no other row beats in both." if grey else "",
        "Hollow markers": "Systems after the first one of their family." if hollow else "",
    }


def _against(
    groups: list[Group], ways: Mapping[str, Times], axis: str, width: int, crowded: int = CROWDED
) -> Chart | None:
    """A panel for each way to measure that has at least two rows; None without any."""
    shown = _shown(groups, ways)
    if not shown:
        return None
    numbers = numbers_of(groups)
    series = series_of([curve for curves in shown.values() for curve in curves])
    drawn = []
    for title, curves in shown.items():
        times, lines = ways[title], [line for curve in curves for line in curve.lines]
        best = _best(curves, times)
        numbered = {id(line) for line in (best if len(lines) > crowded else lines)}
        rows = [
            {
                "series": series[id(curve)].name,
                "curve": f"{curve.group} {number}",
                "name": f"#{numbers[id(line)]} {line.system}: {line.label}",
                "number": str(numbers[id(line)]) if id(line) in numbered else "",
                "x": times[line.decode.key],
                "y": line.quality,
            }
            for number, curve in enumerate(curves)
            for line in curve.lines
        ]
        front = [(times[line.decode.key], line.quality) for line in best]
        quality = lines[0].main
        heading = f"{title}: {quality.axis}" if title else quality.axis
        drawn.append(Panel(heading, rows, Axis(axis, log=True), Axis(quality.title), front))
    return panels(drawn, list(series.values()), columns=2, width=width)
