"""Timing translation, from text in to text out: all rows in one run, alternating, with other load recorded.

`summary.py` makes figures of the times; `processes.py` runs each engine in a process of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import math
import random
import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import psutil

from workflow_src.config.experiment import SpeedConfig
from workflow_src.config.resolved import Decode
from workflow_src.errors import ConfigError, InputError, TimingFailed
from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.speed.measured import FailedBatch
from workflow_src.registry import default_engine, plain, searches

log = logging.getLogger("continuum")

# A round counts as disturbed when other processes used more than this share of one core while it ran.
DISTURBED_SHARE = 0.25
REDOS = 2
# Number of sentences of the short round, from which the time of all rounds is forecast.
TRIED = 4

# On a GPU, batches grow from the size of the settings up to this one.
LARGEST_BATCH = 16384
# A larger batch is taken on a GPU where it translates at least GAIN times as many sentences a second.
GAIN = 1.05


class Timer(Protocol):
    """Times rows, in this or another process. Raises TimingFailed where that fails."""

    def restart(self) -> None: ...

    def warm(self, row: Decode, lines: list[str]) -> None: ...

    def time_row(self, row: Decode, lines: list[str], speed: SpeedConfig, largest_batch: int) -> RowTimes: ...

    def time_alternating(self, rows: list[Decode], lines: list[str], repeats: int) -> list[list[list[float]]]: ...


@dataclasses.dataclass
class RowTimes:
    """Times of one row: `sentences` (rounds, N) seconds one at a time, `batches` (rounds,) seconds for `batched`.

    `batched` sentences were decoded in batches of `batch`; `failed_batch` is a larger size that failed.
    """

    sentences: list[list[float]] = dataclasses.field(default_factory=list)
    batches: list[float] = dataclasses.field(default_factory=list)
    batch: int = 0
    batched: int = 0
    failed_batch: FailedBatch | None = None
    # Seconds of one-at-a-time calls spent on subwords (None where the translator has no times by part), and the total
    # of these calls.
    subword_seconds: float | None = None
    split_seconds: float = 0.0

    def add(self, times: RowTimes) -> None:
        """Append the rounds of `times`."""
        self.sentences += times.sentences
        if self.batched:
            # A process that was started anew may choose another size of batch, and translate as many sentences.
            self.batches = [seconds * times.batched / self.batched for seconds in self.batches]
        self.batches += times.batches
        self.batch, self.batched, self.failed_batch = times.batch, times.batched, times.failed_batch
        self.split_seconds += times.split_seconds
        if times.subword_seconds is not None:
            self.subword_seconds = (self.subword_seconds or 0.0) + times.subword_seconds


@dataclasses.dataclass
class Measured:
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


class OtherLoad:
    """A context that measures the CPU time of processes other than this one and its children.

    Afterwards `.cores` is that time in cores. The busy time of our CPUs counts, less our own: processes that begin and
    end meanwhile, and those of other containers, cannot be listed. Where a machine does not say it, or says less, that
    of the processes that can be listed.
    """

    def __enter__(self) -> OtherLoad:
        self.cores = 0.0
        self._began = time.perf_counter()
        self._before, self._others_before = self._seconds_used(), self._seconds_of_others()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        # A new process counts from its start; one that has ended has no times.
        listed = sum(now - self._before.get(key, 0.0) for key, now in self._seconds_used().items())
        self.cores = max(0.0, listed, self._seconds_of_others() - self._others_before) / elapsed

    @staticmethod
    def _seconds_of_others() -> float:
        """Busy seconds of the CPUs that this process may use, less those of this process and its children."""
        current = psutil.Process()
        allowed = set(current.cpu_affinity()) if hasattr(current, "cpu_affinity") else None
        seconds = 0.0
        for number, cpu in enumerate(psutil.cpu_times(percpu=True)):
            if allowed is None or number in allowed:
                idle = cpu.idle + getattr(cpu, "iowait", 0.0)
                # Guests' time is part of the user's.
                guests = getattr(cpu, "guest", 0.0) + getattr(cpu, "guest_nice", 0.0)
                seconds += sum(cpu) - idle - guests
        for process in (current, *current.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                # Children that have ended count where they were waited for.
                ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                seconds -= times.user + times.system + ended
        return seconds

    @staticmethod
    def _seconds_used() -> dict[tuple[int, float], float]:
        current = psutil.Process()
        own_pids = {current.pid, *(child.pid for child in current.children(recursive=True))}
        seconds = {}
        for process in psutil.process_iter():
            try:
                if process.pid in own_pids:
                    continue
                times = process.cpu_times()
                seconds[(process.pid, process.create_time())] = times.user + times.system
            except psutil.Error:
                continue
        return seconds


class Local:
    """A timer in this process, with a translator for each system; `synchronise` waits for the device.

    A translator has `translate`, and may have `last_timings`, seconds of the last call by part. `grow_batch`:
    throughput with the fastest size of batch (`best_batch`), searched once a row.
    `report_batch` is called with each size that is tried, and with None afterwards.
    """

    def __init__(
        self,
        translators: Mapping[str, Any],
        synchronise: Callable[[], None] = lambda: None,
        grow_batch: bool = False,
    ):
        self.translators = translators
        self.synchronise = synchronise
        self.grow_batch = grow_batch
        self.report_batch: Callable[[int | None], None] = lambda _: None
        self._batches: dict[Key, tuple[int, FailedBatch | None]] = {}

    def restart(self) -> None:
        """Nothing: this process goes on."""

    def warm(self, row: Decode, lines: list[str]) -> None:
        """Make an untimed first call of a row. Raises InputError when its system has no translator here."""
        for system in (row.system, *row.others.values()):
            if system not in self.translators:
                names = ", ".join(sorted(self.translators)) or "none"
                raise InputError(f"row {row.name}", f'needs the bundle of system "{system}"', f"known: {names}")
        self._call(row)(lines[:1], batch=1)

    def _call(self, row: Decode) -> Callable[..., list[str]]:
        """A function that translates lines with the settings of a row, without splitting them, as in decoding."""
        role_translators = {role: self.translators[name] for role, name in row.others.items()}
        translate = self.translators[row.system].translate
        call = functools.partial(translate, search=row.values, systems=role_translators, split=False)

        def translated(lines: list[str], batch: int) -> list[str]:
            """Raises TimingFailed, also for errors of the device, which come late."""
            try:
                outputs = call(lines, batch=batch)
                self.synchronise()
            except Exception as failure:
                raise timing_failed(failure, row.engine_word, row.key, batch) from failure
            return outputs

        return translated

    def time_row(
        self, row: Decode, lines: list[str], speed: SpeedConfig, largest_batch: int = LARGEST_BATCH
    ) -> RowTimes:
        """Time one round of one row: untimed warm-up, every line alone, then all lines in batches."""
        translator, translate = self.translators[row.system], self._call(row)
        for line in lines[: speed.warmup]:
            translate([line], batch=1)
        times = RowTimes(sentences=[[]])
        for line in lines:
            elapsed = self._seconds(translate, [line], 1)
            times.sentences[0].append(elapsed)
            timings = getattr(translator, "last_timings", None)
            if timings:
                seconds = timings.get("encode", 0.0) + timings.get("decode", 0.0)
                times.subword_seconds = (times.subword_seconds or 0.0) + seconds
                times.split_seconds += elapsed
        batch, batch_lines = speed.batch, lines
        if self.grow_batch:
            batch, times.failed_batch = self._best_batch(row, lines, speed.batch, largest_batch)
            batch_lines = _repeated(lines, batch)
        # Batches have other shapes than single sentences: warm up one.
        translate(batch_lines[:batch], batch=batch)
        times.batches.append(self._seconds(translate, batch_lines, batch))
        times.batch, times.batched = batch, len(batch_lines)
        return times

    def time_alternating(self, rows: list[Decode], lines: list[str], repeats: int) -> list[list[list[float]]]:
        """Seconds (rows, rounds, N), one line at a time: at every line all rows take turns, in random order.

        Changes of the machine's speed then affect all rows alike, so that differences between rows are accurate. Each
        row is warmed up before.
        """
        seconds = [[[0.0] * len(lines) for _ in range(repeats)] for _ in rows]
        calls = [self._call(row) for row in rows]
        shuffled = random.Random(0)
        for row in rows:
            self.warm(row, lines)
        for number, (at, line) in itertools.product(range(repeats), enumerate(lines)):
            for place in shuffled.sample(range(len(rows)), len(rows)):
                seconds[place][number][at] = self._seconds(calls[place], [line], 1)
        return seconds

    def _seconds(self, translate: Callable[..., list[str]], lines: list[str], batch: int) -> float:
        """Seconds of one call, until the device is idle again."""
        self.synchronise()
        began = time.perf_counter()
        translate(lines, batch=batch)
        return time.perf_counter() - began

    def _best_batch(self, row: Decode, lines: list[str], start: int, most: int) -> tuple[int, FailedBatch | None]:
        if row.key not in self._batches:
            translate = self._call(row)

            def run(batch: int) -> float:
                batch_lines = _repeated(lines, batch)
                self.report_batch(batch)
                # Programs for a new shape are made in the first of two calls.
                return min(self._seconds(translate, batch_lines, batch) for _ in range(2))

            self._batches[row.key] = best_batch(run, start, most)
            self.report_batch(None)
        return self._batches[row.key]

    def lengths(self, lines: list[str], system: str) -> list[int]:
        """Source subwords of every line by a system (words, where its translator has no subwords)."""
        subwords = getattr(self.translators[system], "subwords", None)
        return [len(ids) for ids in (subwords.encode_source(lines) if subwords else map(str.split, lines))]


def _repeated(lines: list[str], count: int) -> list[str]:
    """`count` lines, from the first again after the last."""
    return list(itertools.islice(itertools.cycle(lines), count))


def timing_failed(failure: Exception, engine: str, row: Key | None = None, batch: int | None = None) -> TimingFailed:
    """The error of a process that measures, with the first line of the message and the traceback of `failure`."""
    if isinstance(failure, TimingFailed):
        return failure
    text = next(iter(str(failure).strip().splitlines()), "")
    reason = text if isinstance(failure, InputError) else ": ".join(filter(None, (type(failure).__name__, text)))
    return TimingFailed(engine, reason, "".join(traceback.format_exception(failure)), row, batch)


def best_batch(run: Callable[[int], float], start: int, most: int) -> tuple[int, FailedBatch | None]:
    """The fastest size start * 2 ** k of a batch, up to `most`, and the size for which memory ran out, if any.

    `run` gives seconds; `start` must fit. The search ends where a size does not fit, or the last two are less than
    `GAIN` times as fast as the best: searches that compute on the CPU gain nothing from batches that a large GPU has
    room for, and would take minutes for them. Other errors are raised.
    """
    best = batch = start
    best_rate = start / run(start)
    while 2 * batch <= most and batch < 4 * best:
        batch *= 2
        try:
            rate = batch / run(batch)
        except TimingFailed as failure:
            if not (isinstance(failure.__cause__, MemoryError) or "out of memory" in failure.reason.lower()):
                raise
            return best, FailedBatch(size=batch, reason="memory ran out")
        if rate >= GAIN * best_rate:
            best, best_rate = batch, rate
    return best, None


class Attempts:
    """Times rows by the timers of their engines. A row that fails is not timed again; `failures` has the errors, and
    `steps_failure` that of the rows in turns.

    After an error the engine's process is a fresh one, since a GPU may compute nothing more for the one that failed.
    Where a batch failed on its growth, the row is timed again with smaller ones.
    """

    def __init__(self, timers: Mapping[str, Timer], speed: SpeedConfig) -> None:
        self.failures: dict[Key, TimingFailed] = {}
        self.steps_failure: TimingFailed | None = None
        self._timers, self._speed = timers, speed
        self._failed_batches: dict[Key, FailedBatch] = {}
        self._ended: dict[str, TimingFailed] = {}

    def left(self, rows: Iterable[Decode]) -> list[Decode]:
        """The rows that have not failed."""
        return [row for row in rows if row.key not in self.failures]

    def warm(self, row: Decode, lines: list[str]) -> None:
        try:
            self._timer(row.engine_word).warm(row, lines)
        except TimingFailed as failure:
            self._give_up(row, failure)

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

    def time_alternating(self, rows: list[Decode], lines: list[str]) -> dict[Key, list[list[float]]]:
        """Seconds (rounds, N) of rows of our own engine in turns, by key; empty where one fails (`steps_failure`)."""
        engine = default_engine().name
        try:
            seconds = self._timer(engine).time_alternating(rows, lines, self._speed.repeats)
            return {row.key: row_seconds for row, row_seconds in zip(rows, seconds, strict=True)}
        except TimingFailed as failure:
            log.warning("the cost of a step is not measured: %s\n%s", failure, failure.trace)
            self.steps_failure = failure
            return {}

    def _timer(self, engine: str) -> Timer:
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
    """A short round of every row, on sentences from the shortest to the longest."""
    sample = sorted(lines, key=len)[:: math.ceil(len(lines) / TRIED)]
    one_round = speed.model_copy(update={"warmup": 0, "repeats": 1})
    return {row.key: times for row in rows if (times := attempts.time_row(row, sample, one_round))}


def measure(
    timers: Mapping[str, Timer],
    rows: list[Decode],
    lines: list[str],
    speed: SpeedConfig,
    report: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Time all `rows` on the same `lines`, `speed.repeats` rounds, alternating between rows.

    A disturbed round is redone up to REDOS times and its quietest try is kept; after a round that stayed disturbed,
    later rounds are not redone, because the load will stay. Times are wall-clock seconds; `timers` has one timer for
    each engine. A row that fails is left out, and the others are timed. `report` is called with the expected time of
    all rounds in words before the first one, and with the remaining time after each. Raises InputError when there are
    no lines, and ConfigError when there are no rows.
    """
    if not lines:
        raise InputError("the source text", "has no sentences to measure speed with", "give one that is not empty")
    if not rows:
        raise ConfigError("decodes", problem="there are no rows to measure", hint="add some")
    attempts = Attempts(timers, speed)
    # The first calls of each row build caches and choose kernels; they belong to no round.
    for row in rows:
        attempts.warm(row, lines)
    tries = _tried(attempts, attempts.left(rows), lines, speed)
    measured = Measured({key: RowTimes() for key in tries}, [], 0, attempts.failures)
    if not tries:
        return measured
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
            measured.redone += 1
            tries_of_round.append(_round(attempts, rows, lines, speed, number))
        times, load = min(tries_of_round, key=lambda round_times: round_times[1])
        persistent = persistent or load > DISTURBED_SHARE
        measured.load.append(load)
        for key, row_times in times.items():
            measured.times[key].add(row_times)
        tried = number + 1 + measured.redone
        seconds_left = (time.perf_counter() - began) / tried * (speed.repeats - number - 1)
        report(
            f"round {number + 1} of {speed.repeats}: other load {load:.2f} cores, {len(tries_of_round) - 1} redone, "
            f"{_in_words(seconds_left)} of rounds left"
        )
    rows = attempts.left(rows)
    measured.times = {row.key: measured.times[row.key] for row in rows}
    if stepped := _stepped(rows):
        with OtherLoad() as other_load:
            measured.alternating = attempts.time_alternating(stepped, lines)
        measured.steps_failure = attempts.steps_failure
        report(f"steps, rows in turns: other load {other_load.cores:.2f} cores")
    return measured


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
