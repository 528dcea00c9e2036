"""Figures from measured times: latency, throughput, speed-up, time against length, and the cost of a step."""

from __future__ import annotations

import bisect
import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from workflow_src.config.resolved import Decode
from workflow_src.errors import TimingFailed
from workflow_src.evaluation.manifest import compared_steps
from workflow_src.evaluation.speed.rows import Key, series_value, step_series
from workflow_src.evaluation.speed.timing import Measured, RowTimes

# The largest number of groups of sentences of similar length; they are equally large as far as ties allow.
LENGTH_BINS = 5


def sentence_ms(seconds: list[list[float]]) -> np.ndarray:
    """Milliseconds of every sentence (N,): its median over rounds, from `seconds` (rounds, N)."""
    return 1000 * np.median(np.asarray(seconds, dtype=float), axis=0)


def summarise(times: RowTimes) -> dict[str, Any]:
    """A row's figures. A sentence's time is its median over rounds; latency is in ms over sentences.

    `latency_ms` is the median, `latency_mean` the mean, `latency_std` the standard deviation (n - 1) over sentences,
    which differ in length; `latency_rounds` (rounds,) the median over sentences of each round by itself, whose range
    shows how well the measurement repeats; `sentences_per_second` uses the median round in batches of `batch`;
    `failed_batch` is a larger size of batch that failed, with the reason; `subword_share` is the share of time in
    subwords.
    """
    sentences = sentence_ms(times.sentences)
    return {
        "latency_ms": float(np.median(sentences)),
        "latency_mean": float(sentences.mean()),
        "latency_std": float(sentences.std(ddof=1)) if len(sentences) > 1 else 0.0,
        "latency_rounds": [float(1000 * np.median(round_times)) for round_times in times.sentences],
        "sentences_per_second": times.batched / statistics.median(times.batches),
        "batch": times.batch,
        "failed_batch": None if times.failed_batch is None else dataclasses.asdict(times.failed_batch),
        "subword_share": None if times.subword_seconds is None else times.subword_seconds / times.split_seconds,
    }


def length_bins(lengths: list[int], most: int = LENGTH_BINS) -> list[list[int]]:
    """Indices of sentences in groups of rising length; sentences of one length share a group. No group is empty."""
    order = sorted(lengths)
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        # All sentences of a length belong to the group of the first.
        groups.setdefault(bisect.bisect_left(order, length) * most // len(order), []).append(index)
    return [groups[number] for number in sorted(groups)]


def by_length(times: RowTimes, lengths: list[int]) -> list[dict[str, Any]]:
    """Median milliseconds of the sentences of each group of lengths, with the group's shortest, longest and mean."""
    sentences = sentence_ms(times.sentences)
    return [
        {
            "shortest": min(lengths[i] for i in group),
            "longest": max(lengths[i] for i in group),
            "mean_length": statistics.fmean(lengths[i] for i in group),
            "sentences": len(group),
            "latency_ms": float(np.median(sentences[group])),
        }
        for group in length_bins(lengths)
    ]


def slopes(steps: list[int], values: np.ndarray) -> np.ndarray:
    """Slopes (N,) of least-squares lines through `values` (rows, N) over `steps` (rows,), which are not all equal."""
    return np.polyfit(np.asarray(steps, dtype=float), values, 1)[0]


def step_costs(
    rows: list[Decode],
    alternating: dict[Key, list[list[float]]],
    operations: dict[tuple[str, str], float] | None = None,
) -> dict[str, Any]:
    """Milliseconds of one refinement step, for each system and search: the slope of a sentence's time over steps.

    `alternating` has seconds (rounds, N) by row key; a sentence's time is its median over rounds, and the cost is the
    median slope of sentences. Only rows of our own engine that differ in steps alone are compared.
    `ratios` compare the step of each `control` with that of the network `search`: `measured` is the ratio of mean
    costs, None unless both are known and above 0 (below it, noise was larger than a step). `predicted` is the ratio of
    `operations`, which maps (system, search) to the operations of a step at a position; `share_of_predicted` is
    measured / predicted; None where they are unknown.
    """
    costs = []
    for group in step_series(row for row in rows if row.key in alternating):
        steps = [series_value(row) for row in group]
        times = np.stack([sentence_ms(alternating[row.key]) for row in group])
        row = group[0]
        costs.append(
            {
                "system": row.system,
                "search": row.search,
                "settings": {name: getattr(row.values, name) for name in row.values.named("follow")},
                "ms_per_step": float(np.median(slopes(steps, times))),
                "steps": steps,
                "operations_a_position": (operations or {}).get((row.system, row.search)),
            }
        )
    return {"costs": costs, "ratios": [_ratios(costs, control, search) for control, search in compared_steps()]}


def not_timed(rows: Iterable[Decode], failures: Mapping[Key, TimingFailed]) -> list[dict[str, Any]]:
    """The rows that failed, with the batch, where one failed, and the reason."""
    failed = [(row, failures[row.key]) for row in rows if row.key in failures]
    return [
        {
            "system": row.system,
            "name": row.name,
            "engine": row.engine_word,
            "batch": failure.batch,
            "reason": failure.reason,
        }
        for row, failure in failed
    ]


def _ratios(costs: list[dict[str, Any]], control: str, search: str) -> dict[str, Any]:
    """The cost of a step of the control over that of a step of the search, as measured and as counted."""
    measured, predicted = (_ratio(costs, control, search, key) for key in ("ms_per_step", "operations_a_position"))
    share = measured / predicted if measured and predicted else None
    named = {"control": control, "search": search}
    return named | {"measured": measured, "predicted": predicted, "share_of_predicted": share}


def _ratio(costs: list[dict[str, Any]], control: str, search: str, key: str) -> float | None:
    above, below = ([cost[key] for cost in costs if cost["search"] == name] for name in (control, search))
    if not above or not below or any(value is None or value <= 0 for value in above + below):
        return None
    return statistics.mean(above) / statistics.mean(below)


def results(
    rows: list[Decode],
    measured: Measured,
    reference: Key | None = None,
    lengths: list[int] | None = None,
    operations: dict[tuple[str, str], float] | None = None,
) -> dict[str, Any]:
    """Rows with their figures and their speed-up (by median latency) over the `reference`, and the cost of steps.

    Rows that could not be timed are left out; without the reference there are no speed-ups.
    """
    rows = [row for row in rows if row.key in measured.times]
    results_of_rows: list[dict[str, Any]] = []
    for row in rows:
        times = measured.times[row.key]
        results_of_rows.append(
            {"system": row.system, "name": row.name}
            | row.settings
            | summarise(times)
            | {"by_length": by_length(times, lengths) if lengths else []}
        )
    compared = next((row for row in results_of_rows if (row["system"], row["name"]) == reference), None)
    for figures in results_of_rows:
        figures["speedup"] = None if compared is None else compared["latency_ms"] / figures["latency_ms"]
    named = None if compared is None else {"system": compared["system"], "name": compared["name"]}
    costs = step_costs(rows, measured.alternating, operations) | {
        "other_load_cores": measured.alternating_load,
        "failure": measured.steps_failure and str(measured.steps_failure),
    }
    return {"rows": results_of_rows, "baseline": named, "step_costs": costs}
