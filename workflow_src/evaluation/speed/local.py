"""Timing of rows in the process that computes them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from workflow_src.config.experiment import SpeedConfig
from workflow_src.config.resolved import Decode
from workflow_src.errors import InputError, TimingFailed
from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.speed.measured import FailedBatch

# On a GPU, batches grow from the size of the settings up to this one.
LARGEST_BATCH = 16384
# A larger batch is taken on a GPU where it translates at least GAIN times as many sentences a second.
GAIN = 1.05


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
    # Seconds that one-at-a-time calls spend on subwords.
    subword_seconds: float = 0.0

    def add(self, times: RowTimes) -> None:
        """Append the rounds of `times`."""
        self.sentences += times.sentences
        if self.batched:
            # A process that was started anew may choose another size of batch, and translate as many sentences.
            self.batches = [seconds * times.batched / self.batched for seconds in self.batches]
        self.batches += times.batches
        self.batch = times.batch
        self.batched = times.batched
        self.failed_batch = times.failed_batch
        self.subword_seconds += times.subword_seconds


class Local:
    """A timer in this process, with a translator for each system; `synchronise` waits for the device.

    `grow_batch`: throughput with the fastest size of batch (`best_batch`), searched once a row. `report_batch` is
    called with each size that is tried, and with None afterwards. Methods raise TimingFailed.
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

    def time_row(self, row: Decode, lines: list[str], speed: SpeedConfig, largest_batch: int) -> RowTimes:
        """Time one round of one row: untimed warm-up, every line alone, then all lines in batches."""
        translator, translate = self.translators[row.system], self._call(row)
        for line in lines[: speed.warmup]:
            translate([line], batch=1)
        times = RowTimes(sentences=[[]])
        for line in lines:
            times.sentences[0].append(self._seconds(translate, [line], 1))
            times.subword_seconds += translator.last_timings["encode"] + translator.last_timings["decode"]
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
        for call in calls:
            call(lines[:1], batch=1)
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
        """Source subwords of every line by a system."""
        return [len(ids) for ids in self.translators[system].subwords.encode_source(lines)]


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
