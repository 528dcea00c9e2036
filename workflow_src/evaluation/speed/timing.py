"""Timing translation, from text in to text out: all rows in one run, alternating, with other load recorded.

`summary.py` makes figures of the times; `processes.py` runs each engine in a process of its own.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping

from workflow_src.config.experiment import SpeedConfig
from workflow_src.config.resolved import Decode
from workflow_src.config.roles import plain
from workflow_src.errors import InputError, TimingFailed
from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.speed.load import OtherLoad
from workflow_src.evaluation.speed.local import LARGEST_BATCH, RowTimes, timing_failed
from workflow_src.evaluation.speed.measured import FailedBatch
from workflow_src.evaluation.speed.processes import Worker
from workflow_src.registry import default_engine, searches

log = logging.getLogger("continuum")

# A round counts as disturbed when other processes used more than this share of one core while it ran.
DISTURBED_SHARE = 0.25
REDOS = 2
# Number of sentences of the short round, from which the time of all rounds is forecast.
TRIED = 4


@dataclasses.dataclass
class Timings:
    """Times by row key, the load of other processes in cores in each round, and the number of redone rounds.

    `failures` has the errors of rows that could not be timed and are not in `times`.
    `alternating`: seconds (rounds, N) of the rows for the cost of a step, timed in turns at every sentence;
    `steps_failure` is the error for which there are none.
    """

    times: dict[Key, RowTimes]
    load: list[float]
    redone: int
    failures: dict[Key, TimingFailed] = dataclasses.field(default_factory=dict)
    alternating: dict[Key, list[list[float]]] = dataclasses.field(default_factory=dict)
    steps_failure: TimingFailed | None = None


class Attempts:
    """Times rows by the timers of their engines. A row that fails is not timed again; `failures` has the errors.

    After an error the engine's process is a fresh one, since a GPU may compute nothing more for the one that failed.
    Where a batch failed on its growth, the row is timed again with smaller ones.
    """

    def __init__(self, timers: Mapping[str, Worker]) -> None:
        self.failures: dict[Key, TimingFailed] = {}
        self._timers = timers
        self._failed_batches: dict[Key, FailedBatch] = {}
        self._ended: dict[str, TimingFailed] = {}

    def left(self, rows: Iterable[Decode]) -> list[Decode]:
        """The rows that have not failed."""
        return [row for row in rows if row.key not in self.failures]

    def time_row(self, row: Decode, lines: list[str], speed: SpeedConfig) -> RowTimes | None:
        """Times of a round; None where the row cannot be timed."""
        while row.key not in self.failures:
            failed_batch = self._failed_batches.get(row.key)
            largest = failed_batch.size // 2 if failed_batch else LARGEST_BATCH
            try:
                times = self._timer(row.engine_word).time_row(row, lines, speed, largest)
                times.failed_batch = times.failed_batch or failed_batch
                return times
            except TimingFailed as failure:
                if failure.batch is None or failure.batch <= speed.batch:
                    self._give_up(row, failure)
                else:
                    log.warning("batches stay smaller: %s\n%s", failure, failure.trace)
                    self._failed_batches[row.key] = FailedBatch(size=failure.batch, reason=failure.reason)
                    self._restart(row.engine_word)
        return None

    def time_alternating(self, rows: list[Decode], lines: list[str], repeats: int) -> dict[Key, list[list[float]]]:
        """Seconds (rounds, N) of rows of our own engine in turns, by key. Raises TimingFailed where one fails."""
        seconds = self._timer(default_engine().name).time_alternating(rows, lines, repeats)
        return {row.key: row_seconds for row, row_seconds in zip(rows, seconds, strict=True)}

    def _timer(self, engine: str) -> Worker:
        if engine in self._ended:
            raise self._ended[engine]
        return self._timers[engine]

    def _give_up(self, row: Decode, failure: TimingFailed) -> None:
        log.warning("not timed: %s\n%s", failure, failure.trace)
        self.failures[row.key] = failure
        self._restart(row.engine_word)

    def _restart(self, engine: str) -> None:
        if engine not in self._ended:
            try:
                self._timers[engine].restart()
            except (InputError, TimingFailed) as failure:
                self._ended[engine] = timing_failed(failure, engine)


def _round(
    attempts: Attempts, rows: list[Decode], lines: list[str], speed: SpeedConfig, number: int
) -> tuple[dict[Key, RowTimes], float]:
    # Each round has a random order, so that no row always follows the same row.
    order = random.Random(number).sample(rows, len(rows))
    times = {}
    with OtherLoad() as load:
        for row in order:
            if row_times := attempts.time_row(row, lines, speed):
                times[row.key] = row_times
    return times, load.cores


def expected_seconds(tries: Mapping[Key, RowTimes], stepped: list[Decode], sentences: int, speed: SpeedConfig) -> float:
    """A forecast of the seconds of all rounds, without redone ones, from a short round of every row.

    A round translates the warm-up sentences and every sentence one at a time, then a batch and every sentence in
    batches. `stepped` rows are translated once more, one at a time.
    """
    single = {key: statistics.fmean(tried.sentences[0]) for key, tried in tries.items()}
    batched = 0.0
    for tried in tries.values():
        # A GPU's batch may have more sentences than the text.
        count = max(sentences, tried.batched)
        batched += tried.batches[0] / tried.batched * (count + min(count, max(speed.batch, tried.batch)))
    in_turns = sum(single[row.key] * sentences for row in stepped)
    return speed.repeats * (sum(single.values()) * (speed.warmup + sentences) + batched + in_turns)


def _in_words(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"


def _tried(attempts: Attempts, rows: list[Decode], lines: list[str], speed: SpeedConfig) -> dict[Key, RowTimes]:
    """A short round of every row, on sentences from the shortest to the longest.

    The first calls of a row build caches and choose kernels; they belong to no round.
    """
    sample = sorted(lines, key=len)[:: math.ceil(len(lines) / TRIED)]
    one_round = speed.model_copy(update={"warmup": 1, "repeats": 1})
    return {row.key: times for row in rows if (times := attempts.time_row(row, sample, one_round))}


def measure(
    timers: Mapping[str, Worker],
    rows: list[Decode],
    lines: list[str],
    speed: SpeedConfig,
    report: Callable[[str], None] = lambda _: None,
) -> Timings:
    """Time all `rows` on the same `lines`, `speed.repeats` rounds, alternating between rows.

    A disturbed round is redone up to REDOS times and its quietest try is kept; after a round that stayed disturbed,
    later rounds are not redone, because the load will stay. Times are wall-clock seconds; `timers` has one timer for
    each engine. A row that fails is left out, and the others are timed. `report` is called with the expected time of
    all rounds in words before the first one, and with the remaining time after each.
    """
    attempts = Attempts(timers)
    tries = _tried(attempts, rows, lines, speed)
    timings = Timings({key: RowTimes() for key in tries}, [], 0, attempts.failures)
    if not tries:
        return timings
    stepped = _stepped(attempts.left(rows))
    seconds = expected_seconds(tries, stepped, len(lines), speed)
    size = f"{len(tries)} rows, {len(lines)} sentences, {speed.repeats} rounds"
    report(f"{size}: about {_in_words(seconds)}, longer where other work disturbs rounds")
    began = time.perf_counter()
    persistent = False
    for number in range(speed.repeats):
        rows = attempts.left(rows)
        tries_of_round = [_round(attempts, rows, lines, speed, number)]
        while tries_of_round[-1][1] > DISTURBED_SHARE and len(tries_of_round) <= REDOS and not persistent:
            timings.redone += 1
            tries_of_round.append(_round(attempts, rows, lines, speed, number))
        times, load = min(tries_of_round, key=lambda round_times: round_times[1])
        persistent = persistent or load > DISTURBED_SHARE
        timings.load.append(load)
        for key, row_times in times.items():
            timings.times[key].add(row_times)
        tried = number + 1 + timings.redone
        seconds_left = (time.perf_counter() - began) / tried * (speed.repeats - number - 1)
        report(
            f"round {number + 1} of {speed.repeats}: other load {load:.2f} cores, {len(tries_of_round) - 1} redone, "
            f"{_in_words(seconds_left)} of rounds left"
        )
    rows = attempts.left(rows)
    timings.times = {row.key: timings.times[row.key] for row in rows}
    if stepped := _stepped(rows):
        with OtherLoad() as other_load:
            try:
                timings.alternating = attempts.time_alternating(stepped, lines, speed.repeats)
            except TimingFailed as failure:
                log.warning("the cost of a step is not measured: %s\n%s", failure, failure.trace)
                timings.steps_failure = failure
        report(f"steps, rows in turns: other load {other_load.cores:.2f} cores")
    return timings


def _stepped(rows: list[Decode]) -> list[Decode]:
    """The rows that show what a step costs."""
    return [row for group in step_series(rows) for row in group]


def series_value(row: Decode) -> int:
    """The value of the series of a row's search, which has one."""
    series = searches()[row.search].series
    assert series, "only searches with a series have rows of a curve"
    value: int = getattr(row.values, series)
    return value


def step_series(rows: Iterable[Decode]) -> list[list[Decode]]:
    """Groups of rows of our own engine that differ only in steps, with at least two numbers of steps each."""
    series: dict[tuple, list[Decode]] = {}
    for row in rows:
        search, values = searches()[row.search], row.values
        if search.even_steps and row.own_engine and not row.tune and plain(values):
            kept = tuple(getattr(values, name) for name in values.named("follow"))
            series.setdefault((row.system, search.name, *kept), []).append(row)
    return [group for group in series.values() if len(set(map(series_value, group))) > 1]
