"""Figures from measured times: latency, throughput, speed-up, time against length, and the cost of a step."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from workflow_src.config.resolved import Decode
from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.speed.local import RowTimes
from workflow_src.evaluation.speed.measured import (
    LengthGroup,
    Measurement,
    NotTimed,
    Ratio,
    RowName,
    StepCost,
    StepCosts,
    TimedRow,
)
from workflow_src.evaluation.speed.timing import Timings, series_value, step_series
from workflow_src.registry import families, searches
from workflow_src.spec import VECTOR_FIELD

# The largest number of groups of sentences of similar length; they are equally large as far as ties allow.
LENGTH_BINS = 5


def sentence_ms(seconds: Sequence[Sequence[float]]) -> np.ndarray:
    """Milliseconds of every sentence (N,): its median over rounds, from `seconds` (rounds, N)."""
    return 1000 * np.median(np.asarray(seconds, dtype=float), axis=0)


def timed_row(row: Decode, times: RowTimes, reference_ms: float | None, lengths: Sequence[int]) -> TimedRow:
    """A row's figures; `lengths` are those of its sentences in subwords, empty where they are unknown."""
    sentences = sentence_ms(times.sentences)
    latency = float(np.median(sentences))
    return TimedRow(
        system=row.system,
        name=row.name,
        latency_ms=latency,
        latency_mean=float(sentences.mean()),
        latency_std=float(sentences.std(ddof=1)) if len(sentences) > 1 else 0.0,
        latency_rounds=tuple(float(1000 * np.median(round_times)) for round_times in times.sentences),
        sentences_per_second=times.batched / statistics.median(times.batches),
        batch=times.batch,
        failed_batch=times.failed_batch,
        speedup=None if reference_ms is None else reference_ms / latency,
        subword_share=times.subword_seconds / sum(map(sum, times.sentences)),
        by_length=tuple(
            LengthGroup(
                shortest=min(lengths[i] for i in group),
                longest=max(lengths[i] for i in group),
                mean_length=statistics.fmean(lengths[i] for i in group),
                latency_ms=float(np.median(sentences[group])),
            )
            for group in length_bins(lengths)
        ),
    )


def length_bins(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of sentences in groups of rising length; sentences of one length share a group. No group is empty."""
    order = sorted(lengths)
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        # All sentences of a length belong to the group of the first.
        groups.setdefault(bisect.bisect_left(order, length) * LENGTH_BINS // len(order), []).append(index)
    return [groups[number] for number in sorted(groups)]


def step_costs(
    rows: Sequence[Decode],
    alternating: Mapping[Key, Sequence[Sequence[float]]],
    operations: Mapping[tuple[str, str], float],
    failure: str | None = None,
) -> StepCosts:
    """The time of one refinement step, for each system and search.

    `alternating` has seconds (rounds, N) by row key. Only rows of our own engine that differ in steps alone are
    compared. `operations` maps (system, search) to the operations of a step at a position.
    """
    costs = []
    for group in step_series(row for row in rows if row.key in alternating):
        times = np.stack([sentence_ms(alternating[row.key]) for row in group])
        # Slopes of the lines of least squares through the times of each sentence.
        slopes = np.polyfit([series_value(row) for row in group], times, 1)[0]
        cost = float(np.median(slopes))
        costs.append(StepCost(system=group[0].system, search=group[0].search, ms_per_step=cost))

    def ratio(values: Sequence[float | None], control: str, search: str) -> float | None:
        """That of the mean of the control to the mean of the search."""
        above, below = (
            [value for cost, value in zip(costs, values, strict=True) if cost.search == name]
            for name in (control, search)
        )
        known = [value for value in above + below if value is not None and value > 0]
        if not above or not below or len(known) < len(above + below):
            return None
        return statistics.mean(known[: len(above)]) / statistics.mean(known[len(above) :])

    measured = [cost.ms_per_step for cost in costs]
    counted = [operations.get((cost.system, cost.search)) for cost in costs]
    ratios = [
        Ratio(
            control=control,
            search=search,
            measured=ratio(measured, control, search),
            predicted=ratio(counted, control, search),
        )
        for control, search in _compared_steps()
    ]
    return StepCosts(failure=failure, costs=tuple(costs), ratios=tuple(ratios))


def _compared_steps() -> tuple[tuple[str, str], ...]:
    """Searches whose steps are compared: the control, and the search of a network that is itself the direction."""
    networks = (family.searches[0] for family in families().values() if VECTOR_FIELD in family.traits)
    pairs = ((searches()[name].control, name) for name in networks)
    return tuple(dict.fromkeys((control, name) for control, name in pairs if control))


def measurement(
    rows: Sequence[Decode],
    timings: Timings,
    conditions: Mapping[str, object],
    reference: Key | None = None,
    lengths: Sequence[int] = (),
    operations: Mapping[tuple[str, str], float] = {},
) -> Measurement:
    """The figures of the rows that were timed under a protocol with these `conditions`.

    Speed-ups are over the `reference`; without it there are none.
    """
    timed = [row for row in rows if row.key in timings.times]
    baseline = next((row for row in timed if row.key == reference), None)
    milliseconds = float(np.median(sentence_ms(timings.times[baseline.key].sentences))) if baseline else None
    failed = [(row, timings.failures[row.key]) for row in rows if row.key in timings.failures]
    protocol = {
        **conditions,
        "not_timed": [
            NotTimed(system=row.system, name=row.name, engine=row.engine_word, batch=error.batch, reason=error.reason)
            for row, error in failed
        ],
        "baseline": baseline and RowName(system=baseline.system, name=baseline.name),
        "other_load_cores": timings.load,
        "redone_rounds": timings.redone,
    }
    failure = str(timings.steps_failure) if timings.steps_failure else None
    return Measurement.model_validate(
        {
            "rows": [timed_row(row, timings.times[row.key], milliseconds, lengths) for row in timed],
            "protocol": protocol,
            "step_costs": step_costs(timed, timings.alternating, operations, failure),
        }
    )
