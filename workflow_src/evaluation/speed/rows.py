"""The rows of a speed measurement: what each translates with, and by what."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from workflow_src.config.display import engine_of
from workflow_src.registry import default_engine, engines, named_systems, plain, search_of, settings_of
from workflow_src.spec import Engine, Search, SearchSettings

# Keys of a row's entry beside its search, its settings and its engine.
ROW_KEYS = ("system", "name", "chosen")
# A system and the name of its decode.
Key = tuple[str, str]


def row_settings(entry: Mapping[str, Any]) -> SearchSettings:
    """Search settings from a row's entry. Raises ValueError for a setting that its search has not."""
    return settings_of({name: value for name, value in entry.items() if name not in ROW_KEYS})


@dataclasses.dataclass(frozen=True)
class SpeedRow:
    """A decode of a system to be timed.

    `entry` is the row in the rule's settings and in speed.json; `engine` what computes it, such as `onnxruntime-int8`;
    `chosen` the file with the settings that dev chose, if any.
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
        """Raises ValueError for a setting that the row's search has not."""
        return cls(
            entry["system"],
            entry["name"],
            row_settings(entry),
            engine_of(entry),
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
        """Whether our own engine computes it."""
        return self.engine == own_engine()

    @property
    def declared(self) -> Engine:
        """The engine that computes it."""
        return engines()[self.entry["engine"]] if self.entry.get("engine") else default_engine()

    @cached_property
    def others(self) -> dict[str, str]:
        """Names of the systems that its settings name, by role."""
        return named_systems(self.settings)

    @property
    def systems(self) -> list[str]:
        """Systems that it works with: its own, and those that its settings name."""
        return [self.system, *self.others.values()]

    @property
    def value(self) -> int:
        """Its value of the series of its search."""
        assert self.search.series, "only searches with a series have rows of a curve"
        value: int = getattr(self.settings, self.search.series)
        return value


@dataclasses.dataclass
class Order:
    """What the process of one engine works with: folders by system, and how to open them.

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
class About:
    """What a process says of itself: kind of device, its name (GPUs), and precision."""

    device: str
    device_name: str | None
    precision: str


@dataclasses.dataclass(frozen=True)
class Timing:
    """How rows are timed: sentences of warm-up for each row and round, rounds, and sentences decoded together."""

    warmup: int
    repeats: int
    batch: int


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Where rows are timed: a device and a number of threads."""

    name: str
    device: str
    threads: int


def own_engine() -> str:
    return default_engine().name


def step_series(rows: Iterable[SpeedRow]) -> list[list[SpeedRow]]:
    """Rows of our own engine that differ in nothing but steps, in groups of at least two different numbers of steps."""
    series: dict[tuple, list[SpeedRow]] = {}
    for row in rows:
        search, settings = row.search, row.settings
        if search.step_cost and search.series and row.own and row.chosen is None and plain(settings):
            followed = tuple(getattr(settings, name) for name in settings.named("follow"))
            series.setdefault((row.system, search.name, *followed), []).append(row)
    return [group for group in series.values() if len({row.value for row in group}) > 1]
