"""How fast translation is, from text in to text out: all rows in one run, alternating, with other load recorded."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import psutil

from workflow_src.config.families import REFINEMENTS

# A round counts as disturbed when other processes used more than this share of one core while it ran.
DISTURBED_SHARE = 0.25
REDOS = 2

SEARCH_SETTINGS = ("search", "steps", "beam", "length_penalty", "max_length_ratio", "step_size") + (
    "stop_threshold",
    "lengths",
    "samples",
    "mean_first",
    "search_seed",
    "refinement",
)


class Translates(Protocol):
    """What is timed: text in, text out. `last_timings`, if there, is seconds of the last call by part."""

    def translate(self, lines: list[str], **settings: Any) -> list[str]: ...


@dataclasses.dataclass
class RowTimes:
    """Times of one row: `sentences` (rounds, N) seconds one at a time, `batches` (rounds,) seconds for all N."""

    sentences: list[list[float]] = dataclasses.field(default_factory=list)
    batches: list[float] = dataclasses.field(default_factory=list)
    # Seconds inside the one-at-a-time calls spent on subwords, and in all; None when the translator does not tell.
    subword_seconds: float | None = None
    told_seconds: float = 0.0

    def add(self, other: RowTimes) -> None:
        """Append the rounds of `other`."""
        self.sentences += other.sentences
        self.batches += other.batches
        self.told_seconds += other.told_seconds
        if other.subword_seconds is not None:
            self.subword_seconds = (self.subword_seconds or 0.0) + other.subword_seconds


@dataclasses.dataclass
class Measured:
    """Times by row key, and the load by others in cores: of each round kept, and how many rounds were redone."""

    times: dict[tuple[str, str], RowTimes]
    load: list[float]
    redone: int


def search_settings(row: dict[str, Any], translators: dict[str, Translates] | None = None) -> dict[str, Any]:
    """The part of a row that says how to translate, as arguments of `Translator.translate`."""
    found = {name: row[name] for name in SEARCH_SETTINGS if row.get(name) is not None}
    return found | ({"rescorer": translators[row["rescorer"]]} if translators and row.get("rescorer") else {})


class OtherLoad:
    """CPU time that processes other than this one use while the context is open; afterwards `.cores` tells it."""

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
        own = psutil.Process().pid
        found = {}
        for process in psutil.process_iter():
            try:
                if process.pid == own:
                    continue
                times = process.cpu_times()
                found[(process.pid, process.create_time())] = times.user + times.system
            except psutil.Error:
                continue
        return found


def _pass(
    translators: dict[str, Translates], row: dict, lines: list[str], speed: dict, synchronise: Callable[[], None]
) -> RowTimes:
    """One round of one row: untimed warm-up, every line alone, then all lines in batches."""
    translator, settings = translators[row["system"]], search_settings(row, translators)
    for line in lines[: speed["warmup"]]:
        translator.translate([line], batch=1, **settings)
    found = RowTimes(sentences=[[]])
    for line in lines:
        synchronise()
        began = time.perf_counter()
        translator.translate([line], batch=1, **settings)
        synchronise()
        elapsed = time.perf_counter() - began
        found.sentences[0].append(elapsed)
        told = getattr(translator, "last_timings", None)
        if told:
            found.subword_seconds = (found.subword_seconds or 0.0) + told.get("encode", 0.0) + told.get("decode", 0.0)
            found.told_seconds += elapsed
    # Batches have other shapes than single sentences: warm those up as well.
    translator.translate(lines[: min(len(lines), speed["batch"])], batch=speed["batch"], **settings)
    synchronise()
    began = time.perf_counter()
    translator.translate(lines, batch=speed["batch"], **settings)
    synchronise()
    found.batches.append(time.perf_counter() - began)
    return found


def _round(translators, rows, lines, speed, synchronise, number) -> tuple[dict[tuple[str, str], RowTimes], float]:
    # Each round begins with another row, so that no row always meets the same state of the machine.
    shift = number % len(rows)
    times = {}
    with OtherLoad() as load:
        for row in rows[shift:] + rows[:shift]:
            times[(row["system"], row["name"])] = _pass(translators, row, lines, speed, synchronise)
    return times, load.cores


def measure(
    translators: dict[str, Translates],
    rows: list[dict[str, Any]],
    lines: list[str],
    speed: dict[str, Any],
    synchronise: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Time all `rows` on the same `lines`, `speed["repeats"]` rounds, alternating between rows.

    A disturbed round is redone up to REDOS times and its quietest try is kept; after a round that stayed disturbed,
    later rounds are not redone, because the load is there to stay. Times are wall-clock seconds; `synchronise` waits
    for the device. Raises ValueError when there are no lines, no rows, or a row's system has no translator.
    """
    if not lines:
        raise ValueError("there are no sentences to measure speed with; give a source text that is not empty.")
    if not rows:
        raise ValueError("there are no rows to measure; the experiment needs decodes.")
    for row in rows:
        for system in filter(None, (row["system"], row.get("rescorer"))):
            if system not in translators:
                given = ", ".join(sorted(translators)) or "none"
                raise ValueError(f'speed: row {row["name"]} needs the bundle of system "{system}"; given: {given}.')
    measured = Measured({(row["system"], row["name"]): RowTimes() for row in rows}, [], 0)
    # The first calls of each row build caches and choose kernels; they belong to no round.
    for row in rows:
        translators[row["system"]].translate(lines[:1], batch=1, **search_settings(row, translators))
    persistent = False
    for number in range(speed["repeats"]):
        tries = [_round(translators, rows, lines, speed, synchronise, number)]
        while tries[-1][1] > DISTURBED_SHARE and len(tries) <= REDOS and not persistent:
            measured.redone += 1
            tries.append(_round(translators, rows, lines, speed, synchronise, number))
        times, load = min(tries, key=lambda one: one[1])
        persistent = persistent or load > DISTURBED_SHARE
        measured.load.append(load)
        for key, found in times.items():
            measured.times[key].add(found)
        tell(f"round {number + 1} of {speed['repeats']}: other load {load:.2f} cores, {len(tries) - 1} redone")
    return measured


def summarise(times: RowTimes) -> dict[str, Any]:
    """A row's figures. A sentence's time is its median over rounds; latency is in ms over sentences.

    `latency_ms` is the median, `latency_mean` the mean, `latency_std` the standard deviation (n - 1) over sentences;
    `sentences_per_second` uses the median round in batches; `subword_share` is the share of time in subwords.
    """
    sentences = 1000 * np.median(np.asarray(times.sentences, dtype=float), axis=0)
    return {
        "latency_ms": float(np.median(sentences)),
        "latency_mean": float(sentences.mean()),
        "latency_std": float(sentences.std(ddof=1)) if len(sentences) > 1 else 0.0,
        "sentences_per_second": len(sentences) / statistics.median(times.batches),
        "subword_share": None if times.subword_seconds is None else times.subword_seconds / times.told_seconds,
    }


def baseline(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The beam-search row that speed-ups refer to: beam 4 if there is one, else the largest; `teacher` first."""
    beams = [row for row in rows if row["search"] == "beam"]
    if not beams:
        return None
    return max(beams, key=lambda row: (row["beam"] == 4, row["beam"], row["system"] == "teacher"))


def slope(points: list[tuple[float, float]]) -> float:
    """Slope of the least-squares line through (x, y) points with at least two different x."""
    x, y = np.asarray(points, dtype=float).T
    centred = x - x.mean()
    return float((centred * (y - y.mean())).sum() / (centred**2).sum())


def step_costs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Milliseconds of one refinement step: the slope of median latency over steps, for each system and search.

    Only rows that differ in nothing but steps are compared. `delta_over_score` is the mean cost of a delta step over
    that of a score step, None unless both are known and above 0 (below it, noise was larger than a step).
    """
    series: dict[tuple, list[tuple[float, float]]] = {}
    for row in rows:
        if row["search"] in REFINEMENTS:
            key = (row["system"], row["search"], row.get("step_size"))
            series.setdefault(key, []).append((row["steps"], row["latency_ms"]))
    costs = [
        {
            "system": system,
            "search": search,
            "step_size": size,
            "ms_per_step": slope(points),
            "steps": [int(s) for s, _ in points],
        }
        for (system, search, size), points in series.items()
        if len({steps for steps, _ in points}) > 1
    ]
    of = {search: [cost["ms_per_step"] for cost in costs if cost["search"] == search] for search in REFINEMENTS}
    ratio = None
    if of["delta"] and of["score"] and min(of["delta"] + of["score"]) > 0:
        ratio = statistics.mean(of["delta"]) / statistics.mean(of["score"])
    return {"costs": costs, "delta_over_score": ratio}


def results(rows: list[dict[str, Any]], measured: Measured, batch: int) -> dict[str, Any]:
    """Rows with their figures and their speed-up (by median latency) against the baseline, and the cost of steps."""
    done = [row | summarise(measured.times[(row["system"], row["name"])]) | {"batch": batch} for row in rows]
    reference = baseline(done)
    for row in done:
        row["speedup"] = None if reference is None else reference["latency_ms"] / row["latency_ms"]
    named = None if reference is None else {"system": reference["system"], "name": reference["name"]}
    return {"rows": done, "baseline": named, "step_costs": step_costs(done)}
