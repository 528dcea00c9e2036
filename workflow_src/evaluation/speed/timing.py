"""Timing translation, from text in to text out: all rows in one run, alternating, with other load recorded.

Figures are made of the times in `summary.py`; `processes.py` runs each engine in a process of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import psutil

from workflow_src.config.display import engine_of
from workflow_src.registry import default_engine, named_systems, plain, search_of, settings_of
from workflow_src.spec import SearchSettings

# A round counts as disturbed when other processes used more than this share of one core while it ran.
DISTURBED_SHARE = 0.25
REDOS = 2

# What a row says beside its search, its settings and its engine.
ROW_KEYS = ("system", "name", "chosen")
# Sentences of the largest batch that is tried on a GPU.
LARGEST_BATCH = 16384


class Timer(Protocol):
    """Takes the times of one row in one round, wherever that happens."""

    def warm(self, row: dict[str, Any], lines: list[str]) -> None: ...

    def time_row(self, row: dict[str, Any], lines: list[str], speed: dict[str, Any]) -> RowTimes: ...

    def time_alternating(
        self, rows: list[dict[str, Any]], lines: list[str], speed: dict[str, Any]
    ) -> list[list[list[float]]]: ...


class Translates(Protocol):
    """What is timed: text in, text out. `last_timings`, if there, is seconds of the last call by part."""

    def translate(
        self, lines: list[str], search: SearchSettings, batch: int, systems: Mapping[str, Any]
    ) -> list[str]: ...


@dataclasses.dataclass
class RowTimes:
    """Times of one row: `sentences` (rounds, N) seconds one at a time, `batches` (rounds,) seconds for `batched`.

    `batched` sentences were decoded in batches of `batch`.
    """

    sentences: list[list[float]] = dataclasses.field(default_factory=list)
    batches: list[float] = dataclasses.field(default_factory=list)
    batch: int = 0
    batched: int = 0
    # Seconds inside the one-at-a-time calls spent on subwords, and in all; None when the translator does not tell.
    subword_seconds: float | None = None
    told_seconds: float = 0.0

    def add(self, other: RowTimes) -> None:
        """Append the rounds of `other`."""
        self.sentences += other.sentences
        self.batches += other.batches
        self.batch, self.batched = other.batch, other.batched
        self.told_seconds += other.told_seconds
        if other.subword_seconds is not None:
            self.subword_seconds = (self.subword_seconds or 0.0) + other.subword_seconds


@dataclasses.dataclass
class Measured:
    """Times by row key, and the load by others in cores: of each round kept, and how many rounds were redone.

    `alternating`: seconds (rounds, N) of the rows that tell what a step costs, timed in turns at every sentence, and
    the load meanwhile.
    """

    times: dict[tuple[str, str], RowTimes]
    load: list[float]
    redone: int
    alternating: dict[tuple[str, str], list[list[float]]] = dataclasses.field(default_factory=dict)
    alternating_load: float | None = None


def step_series(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows of our own engine that differ in nothing but steps, in groups of at least two different numbers of steps."""
    series: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        settings = row_settings(row)
        search = search_of(settings)
        if search.step_cost and search.series and engine_of(row) == own_engine() and "chosen" not in row:
            if plain(settings):
                kept = tuple(getattr(settings, name) for name in settings.named("follow"))
                series.setdefault((row["system"], row["search"], *kept), []).append(row)
    return [group for group in series.values() if len({steps_of(row) for row in group}) > 1]


def row_settings(row: dict[str, Any]) -> SearchSettings:
    """How a row translates. Raises ValueError for a setting that its search has not."""
    return settings_of({name: value for name, value in row.items() if name not in ROW_KEYS})


def steps_of(row: dict[str, Any]) -> int:
    """A row's value of the series of its search."""
    settings = row_settings(row)
    return getattr(settings, search_of(settings).series)


def own_engine() -> str:
    return default_engine().name


class OtherLoad:
    """CPU time that processes other than this one and those it started use while the context is open.

    Afterwards `.cores` tells it, in cores.
    """

    def __enter__(self) -> OtherLoad:
        self.cores = 0.0
        self._began = time.perf_counter()
        self._before = self._used()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        # A process that was not there before counts from its start; one that has ended cannot be asked any more.
        seconds = sum(used - self._before.get(key, 0.0) for key, used in self._used().items())
        self.cores = max(0.0, seconds) / elapsed

    @staticmethod
    def _used() -> dict[tuple[int, float], float]:
        this = psutil.Process()
        own = {this.pid, *(child.pid for child in this.children(recursive=True))}
        found = {}
        for process in psutil.process_iter():
            try:
                if process.pid in own:
                    continue
                times = process.cpu_times()
                found[(process.pid, process.create_time())] = times.user + times.system
            except psutil.Error:
                continue
        return found


class Local:
    """Times rows in this process: a translator for each system, and what waits for its device.

    `largest`: throughput with the largest batch that fits, found once a row, instead of with the given one.
    """

    def __init__(
        self,
        translators: dict[str, Translates],
        synchronise: Callable[[], None] = lambda: None,
        largest: bool = False,
    ):
        self.translators = translators
        self.synchronise = synchronise
        self.largest = largest
        self._batches: dict[tuple[str, str], int] = {}

    def warm(self, row: dict[str, Any], lines: list[str]) -> None:
        """The first call of a row, untimed. Raises ValueError when its system has no translator here."""
        for system in (row["system"], *named_systems(row_settings(row)).values()):
            if system not in self.translators:
                given = ", ".join(sorted(self.translators)) or "none"
                raise ValueError(f'speed: row {row["name"]} needs the bundle of system "{system}"; given: {given}.')
        self._translate(row, lines[:1], 1)

    def _translate(self, row: dict[str, Any], lines: list[str], batch: int) -> None:
        settings, systems = self._how(row)
        self.translators[row["system"]].translate(lines, settings, batch=batch, systems=systems)

    def _how(self, row: dict[str, Any]) -> tuple[SearchSettings, dict[str, Translates]]:
        """A row's settings, and the translators of other systems that it works with, by role."""
        settings = row_settings(row)
        return settings, {role: self.translators[name] for role, name in named_systems(settings).items()}

    def time_row(self, row: dict[str, Any], lines: list[str], speed: dict[str, Any]) -> RowTimes:
        """One round of one row: untimed warm-up, every line alone, then all lines in batches."""
        translator, how = self.translators[row["system"]], self._how(row)
        for line in lines[: speed["warmup"]]:
            translator.translate([line], how[0], batch=1, systems=how[1])
        found = RowTimes(sentences=[[]])
        for line in lines:
            elapsed = self._seconds(translator, [line], 1, how)
            found.sentences[0].append(elapsed)
            told = getattr(translator, "last_timings", None)
            if told:
                seconds = told.get("encode", 0.0) + told.get("decode", 0.0)
                found.subword_seconds = (found.subword_seconds or 0.0) + seconds
                found.told_seconds += elapsed
        batch, many = speed["batch"], lines
        if self.largest:
            batch = self._largest(row, lines, speed["batch"])
            many = list(itertools.islice(itertools.cycle(lines), batch))
        # Batches have other shapes than single sentences: warm those up as well.
        translator.translate(many[:batch], how[0], batch=batch, systems=how[1])
        found.batches.append(self._seconds(translator, many, batch, how))
        found.batch, found.batched = batch, len(many)
        return found

    def time_alternating(
        self, rows: list[dict[str, Any]], lines: list[str], speed: dict[str, Any]
    ) -> list[list[list[float]]]:
        """Seconds (rows, rounds, N), one line at a time: at every line all rows take turns, in an order of its own.

        What differs from one second to the next meets all rows alike, which their differences need more than each
        of them does. Untimed before it: each row once.
        """
        found = [[[0.0] * len(lines) for _ in range(speed["repeats"])] for _ in rows]
        hows = [self._how(row) for row in rows]
        shuffled = random.Random(0)
        for row in rows:
            self.warm(row, lines)
        for number, (at, line) in itertools.product(range(speed["repeats"]), enumerate(lines)):
            for row in shuffled.sample(range(len(rows)), len(rows)):
                translator = self.translators[rows[row]["system"]]
                found[row][number][at] = self._seconds(translator, [line], 1, hows[row])
        return found

    def _seconds(self, translator: Translates, lines: list[str], batch: int, how: tuple[Any, Any]) -> float:
        """The time of one call, from an idle device to an idle device."""
        self.synchronise()
        began = time.perf_counter()
        translator.translate(lines, how[0], batch=batch, systems=how[1])
        self.synchronise()
        return time.perf_counter() - began

    def _largest(self, row: dict[str, Any], lines: list[str], start: int) -> int:
        key = (row["system"], row["name"])
        if key not in self._batches:

            def run(batch: int) -> None:
                many = list(itertools.islice(itertools.cycle(lines), batch))
                self._translate(row, many, batch)
                self.synchronise()

            self._batches[key] = largest_batch(run, start)
        return self._batches[key]

    def lengths(self, lines: list[str]) -> list[int]:
        """Source subwords of every line (words, where a translator has no subwords)."""
        subwords = getattr(next(iter(self.translators.values())), "subwords", None)
        return [len(ids) for ids in (subwords.encode_source(lines) if subwords else map(str.split, lines))]


def largest_batch(run: Callable[[int], None], start: int, most: int = LARGEST_BATCH) -> int:
    """The largest start * 2 ** k up to `most` for which `run` does not run out of memory; `start` is taken to fit."""
    batch = start
    while 2 * batch <= most:
        try:
            run(2 * batch)
        except (RuntimeError, MemoryError) as failure:
            if not isinstance(failure, MemoryError) and "out of memory" not in str(failure).lower():
                raise
            break
        batch *= 2
    return batch


def _round(timers, rows, lines, speed, number) -> tuple[dict[tuple[str, str], RowTimes], float]:
    # Each round has an order of its own, so that no row always meets the same state of the machine.
    order = random.Random(number).sample(rows, len(rows))
    times = {}
    with OtherLoad() as load:
        for row in order:
            times[(row["system"], row["name"])] = timers[engine_of(row)].time_row(row, lines, speed)
    return times, load.cores


def measure(
    timers: dict[str, Timer],
    rows: list[dict[str, Any]],
    lines: list[str],
    speed: dict[str, Any],
    tell: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Time all `rows` on the same `lines`, `speed["repeats"]` rounds, alternating between rows.

    A disturbed round is redone up to REDOS times and its quietest try is kept; after a round that stayed disturbed,
    later rounds are not redone, because the load is there to stay. Times are wall-clock seconds; `timers` take them,
    one an engine. Raises ValueError when there are no lines or no rows.
    """
    if not lines:
        raise ValueError("there are no sentences to measure speed with; give a source text that is not empty.")
    if not rows:
        raise ValueError("there are no rows to measure; the experiment needs decodes.")
    measured = Measured({(row["system"], row["name"]): RowTimes() for row in rows}, [], 0)
    # The first calls of each row build caches and choose kernels; they belong to no round.
    for row in rows:
        timers[engine_of(row)].warm(row, lines)
    persistent = False
    for number in range(speed["repeats"]):
        tries = [_round(timers, rows, lines, speed, number)]
        while tries[-1][1] > DISTURBED_SHARE and len(tries) <= REDOS and not persistent:
            measured.redone += 1
            tries.append(_round(timers, rows, lines, speed, number))
        times, load = min(tries, key=lambda one: one[1])
        persistent = persistent or load > DISTURBED_SHARE
        measured.load.append(load)
        for key, found in times.items():
            measured.times[key].add(found)
        tell(f"round {number + 1} of {speed['repeats']}: other load {load:.2f} cores, {len(tries) - 1} redone")
    stepped = [row for group in step_series(rows) for row in group]
    if stepped:
        with OtherLoad() as load:
            seconds = timers[own_engine()].time_alternating(stepped, lines, speed)
        measured.alternating = {(r["system"], r["name"]): one for r, one in zip(stepped, seconds, strict=True)}
        measured.alternating_load = load.cores
        tell(f"steps, rows in turns: other load {load.cores:.2f} cores")
    return measured
