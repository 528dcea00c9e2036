"""The picture of time against sentence length."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from workflow_src.evaluation.figures import (
    DASHES,
    FAMILY_OF_SEARCH,
    MARKERS,
    STYLE,
    _colour,
    _figure,
    _label_ends,
    empty,
)
from workflow_src.evaluation.results import engine_of
from workflow_src.evaluation.speed_figures import STEPPED
from workflow_src.evaluation.speed_page import label


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with times by length; of rows that differ in steps only, the one with the fewest."""
    least: dict[tuple, int] = {}
    for row in rows:
        if row["search"] in STEPPED:
            key = (row["system"], row["search"])
            least[key] = min(row["steps"], least.get(key, row["steps"]))
    return [
        row
        for row in rows
        if row.get("by_length")
        and (row["search"] not in STEPPED or row["steps"] == least[(row["system"], row["search"])])
    ]


def time_by_length(speed: dict[str, Any] | None, manifest: dict[str, Any]) -> Figure:
    """Median milliseconds against mean source length of groups of sentences, a line a row, of the first protocol."""
    rows = shown((speed or {}).get("rows", []))
    if not rows:
        return empty("Time against sentence length was not measured in this run.")
    engines = list(dict.fromkeys(engine_of(row) for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = _figure(7.2, 3.6)
        axes = figure.subplots()
        ends = []
        for row in rows:
            x = [group["mean_length"] for group in row["by_length"]]
            y = [group["latency_ms"] for group in row["by_length"]]
            engine = engine_of(row)
            colour = _colour(FAMILY_OF_SEARCH.get(row["search"], "other"))
            axes.plot(
                x, y, color=colour, linestyle=DASHES[engines.index(engine) % len(DASHES)], markersize=4,
                marker=MARKERS.get(row["search"], "P") if engine == "continuum" else "P",
            )  # fmt: skip
            ends.append((x[-1], y[-1], label(row, manifest), colour))
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        axes.set_xlabel("source subwords")
        axes.set_title("milliseconds a sentence")
        _label_ends(figure, [(axes, ends)])
    return figure
