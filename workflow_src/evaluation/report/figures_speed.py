"""The picture of time against sentence length."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from workflow_src.evaluation.report.figures import (
    DASHES,
    ENGINE_MARKERS,
    FAMILY_OF_SEARCH,
    MARKERS,
    STYLE,
    _colour,
    _figure,
    _label_ends,
    empty,
    log_ticks,
)
from workflow_src.evaluation.report.results import engine_of
from workflow_src.evaluation.report.speed_page import label
from workflow_src.registry import refining

# With more lines than this, only the fastest of those alike are drawn.
CROWDED = 16


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with times by length; of rows that differ in steps only, the one with the fewest.

    Where these are many, only the fastest of each system, search and library.
    """
    fewest = _fewest_steps(rows)
    if len(fewest) <= CROWDED:
        return fewest
    best: dict[tuple, dict[str, Any]] = {}
    for row in fewest:
        key = (row["system"], row["search"], engine_of(row).split("-")[0])
        if key not in best or row["latency_ms"] < best[key]["latency_ms"]:
            best[key] = row
    return [row for row in fewest if row in best.values()]


def _fewest_steps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    least: dict[tuple, int] = {}
    stepped = refining()
    for row in rows:
        if row["search"] in stepped:
            key = (row["system"], row["search"])
            least[key] = min(row["steps"], least.get(key, row["steps"]))
    return [
        row
        for row in rows
        if row.get("by_length")
        and (row["search"] not in stepped or row["steps"] == least[(row["system"], row["search"])])
    ]


def time_by_length(speed: dict[str, Any] | None, manifest: dict[str, Any]) -> Figure:
    """Median milliseconds against mean source length of groups of sentences, a line a row, of the first protocol."""
    # What dev chose takes the time of the plain row, which is drawn.
    rows = shown([row for row in (speed or {}).get("rows", []) if "(chosen" not in label(row, manifest)])
    if not rows:
        return empty("Time against sentence length was not measured in this run.")
    engines = list(dict.fromkeys(engine_of(row).split("-")[0] for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = _figure(7.2, 3.6)
        axes = figure.subplots()
        ends = []
        for row in rows:
            x = [group["mean_length"] for group in row["by_length"]]
            y = [group["latency_ms"] for group in row["by_length"]]
            engine = engine_of(row).split("-")[0]
            colour = _colour(FAMILY_OF_SEARCH.get(row["search"], "other"))
            axes.plot(
                x, y, color=colour, linestyle=DASHES[engines.index(engine) % len(DASHES)], markersize=4,
                marker=ENGINE_MARKERS.get(engine, MARKERS.get(row["search"], "*")),
            )  # fmt: skip
            ends.append((x[-1], y[-1], label(row, manifest), colour))
        axes.set_yscale("log")
        log_ticks(axes.yaxis, [group["latency_ms"] for row in rows for group in row["by_length"]], axes.set_ylim)
        axes.margins(x=0.02)
        axes.set_xlabel("source subwords")
        axes.set_title("milliseconds a sentence, log scale")
        _label_ends(figure, [(axes, ends)])
    return figure
