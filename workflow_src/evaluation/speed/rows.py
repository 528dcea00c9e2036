"""The rows of a speed measurement, with their systems, searches and engines, and the settings of its processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from workflow_src.config.resolved import engine_key
from workflow_src.registry import default_engine, engines, named_systems, plain, search_of, settings_of
from workflow_src.spec import Engine, Search, SearchSettings

# Keys of a row's entry other than its search, its settings and its engine.
ROW_KEYS = ("system", "name", "chosen")
# A system and the name of its decode.
Key = tuple[str, str]


def row_settings(entry: Mapping[str, Any]) -> SearchSettings:
    """Search settings from a row's entry. Raises InputError for a setting that its search lacks."""
    return settings_of({name: value for name, value in entry.items() if name not in ROW_KEYS})


@dataclasses.dataclass(frozen=True)
class SpeedRow:
    """A decode of a system to be timed.

    `entry` is the row in the rule's settings and in speed.json; `engine` the key of its engine and compute type, such
    as `onnxruntime-int8`; `chosen` the file with settings chosen on dev, if any.
    """

    system: str
    name: str
    settings: SearchSettings
    engine: str
    compute_type: str | None
    chosen: str | None
    entry: Mapping[str, Any]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> SpeedRow:
        """The row of an entry. Raises InputError for a setting that its search lacks."""
        return cls(
            entry["system"],
            entry["name"],
            row_settings(entry),
            engine_key(entry),
            entry.get("compute_type"),
            entry.get("chosen"),
            entry,
        )

    @property
    def key(self) -> Key:
        return self.system, self.name

    @property
    def search(self) -> Search:
        return search_of(self.settings)

    @property
    def own(self) -> bool:
        """Whether our own engine computes the row."""
        return self.engine == own_engine()

    @property
    def declared(self) -> Engine:
        """The declaration of the engine that computes the row."""
        return engines()[self.entry["engine"]] if self.entry.get("engine") else default_engine()

    @cached_property
    def others(self) -> dict[str, str]:
        """Names of other systems in its settings, by role."""
        return named_systems(self.settings)

    @property
    def systems(self) -> list[str]:
        """Names of its own system and of others in its settings."""
        return [self.system, *self.others.values()]

    @property
    def value(self) -> int:
        """The value of the series of its search."""
        assert self.search.series, "only searches with a series have rows of a curve"
        value: int = getattr(self.settings, self.search.series)
        return value


@dataclasses.dataclass
class Order:
    """The settings of one engine's process: folders by system, and how to open them.

    Systems of `in_roles` decode nothing themselves; our own engine opens them. `settings` are those of the engine.
    """

    engine: str
    device: str
    precision: str
    threads: int
    settings: dict[str, str]
    folders: dict[str, Path] = dataclasses.field(default_factory=dict)
    in_roles: tuple[str, ...] = ()


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


def own_engine() -> str:
    return default_engine().name


def step_series(rows: Iterable[SpeedRow]) -> list[list[SpeedRow]]:
    """Groups of rows of our own engine that differ only in steps, with at least two numbers of steps each."""
    series: dict[tuple, list[SpeedRow]] = {}
    for row in rows:
        search, settings = row.search, row.settings
        if search.step_cost and search.series and row.own and row.chosen is None and plain(settings):
            followed = tuple(getattr(settings, name) for name in settings.named("follow"))
            series.setdefault((row.system, search.name, *followed), []).append(row)
    return [group for group in series.values() if len({row.value for row in group}) > 1]
