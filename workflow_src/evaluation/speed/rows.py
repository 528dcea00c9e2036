"""The rows of a speed measurement, which are decodes, and the settings of its processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from workflow_src.config.resolved import Decode
from workflow_src.registry import engines, plain, searches

# A system and the name of its decode.
Key = tuple[str, str]


@dataclasses.dataclass
class Order:
    """The settings of the process of one engine in one precision: folders by system, and how to open them.

    Systems of `in_roles` decode nothing themselves; our own engine opens them.
    """

    engine: str
    compute_type: str | None
    device: str
    precision: str
    threads: int
    folders: dict[str, Path] = dataclasses.field(default_factory=dict)
    in_roles: tuple[str, ...] = ()

    @property
    def engine_word(self) -> str:
        return engines()[self.engine].word(self.compute_type)


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """The device of a process: its kind, its name (GPUs), and the precision."""

    device: str
    device_name: str | None
    precision: str


@dataclasses.dataclass(frozen=True)
class Timing:
    """Settings of timing: sentences of warm-up for each row and round, number of rounds, and batch size.

    On a GPU, batches grow from `batch` to `largest_batch`.
    """

    warmup: int
    repeats: int
    batch: int
    largest_batch: int = 16384


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A device and a number of threads for timing; `problem`: why it cannot be used here, if so."""

    name: str
    device: str
    threads: int
    problem: str = ""


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
