"""A configuration as it is after loading: presets applied, relations followed, lists of settings written out."""

from __future__ import annotations

import dataclasses
from typing import Any

from workflow_src.config.base import Frozen
from workflow_src.config.datasets import DatasetConfig, NormalisationConfig
from workflow_src.config.experiment import WorkflowConfig
from workflow_src.config.families import FAMILIES, Family


@dataclasses.dataclass(frozen=True)
class System:
    """A system with its preset applied and its relations followed."""

    name: str
    family_name: str
    preset: str
    data: str
    base: str | None
    init_from: str | None
    initial_weights: str | None
    model: Frozen
    objective: Frozen
    training: Frozen

    @property
    def family(self) -> Family:
        return FAMILIES[self.family_name]

    @property
    def teacher(self) -> str | None:
        """The system that distilled this one's training data, or None."""
        return self.data.removeprefix("distilled-by-") if self.data.startswith("distilled-by-") else None

    @property
    def built_on(self) -> list[str]:
        return [name for name in (self.base, self.init_from, self.teacher) if name]


@dataclasses.dataclass(frozen=True)
class Decode:
    """One decode: a system, a search, its settings, and the name that its files carry.

    `settings` are what changes translations; the number of sentences decoded together (`batch`) and that of jobs
    (`shards`) do not.
    """

    system: str
    search: str
    name: str
    settings: dict[str, Any]
    splits: tuple[str, ...]
    batch: int = 64
    # Values of settings to choose from on dev.
    tune: dict[str, list[float]] | None = None
    shards: int = 1

    @property
    def engine(self) -> str:
        """What computes it: our own code (`continuum`) or another library."""
        return self.settings.get("engine", "continuum")


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A checked configuration."""

    config: WorkflowConfig
    dataset: DatasetConfig
    normalisation: NormalisationConfig
    systems: dict[str, System]
    decodes: tuple[Decode, ...]
