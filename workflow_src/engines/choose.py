"""Choosing and opening the engine that computes a system's searches in place of our own code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from workflow_src import registry
from workflow_src.engines.onnxruntime import choose_engine
from workflow_src.errors import ConfigError
from workflow_src.spec import Engine, Family, SearchSettings
from workflow_src.types import Hypotheses, Networks

EAGER = "eager"


class Opened:
    """An engine opened for the networks of a system."""

    def __init__(self, declared: Engine, inner: Any):
        self.declared, self.inner = declared, inner

    def search(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        scored: bool,
        networks: Networks | None = None,
    ) -> Hypotheses:
        """Translate sources of subword ids (not empty, without end symbols), as one batch.

        `networks` are those of the search by role; None: those of the system itself.
        """
        return self.inner.translate(sources, settings, scored, networks)

    def ready(
        self,
        settings: SearchSettings,
        scored: bool,
        networks: Networks | None = None,
        alone: bool = True,
    ) -> bool:
        """Whether single sentences (`alone`), or batches, can be translated without seconds of preparation."""
        return self.inner.ready(settings, scored, networks, alone)

    def gains(self, settings: SearchSettings, alone: bool) -> bool:
        """Whether the engine is faster than our own code for single sentences (`alone`), or for batches."""
        return alone or self.inner.gains_in_batches(settings)

    def prepare(self, settings: SearchSettings, scored: bool, networks: Networks | None, alone: bool) -> bool:
        """Prepare the engine, which takes seconds; returns whether that was possible."""
        return self.inner.prepare(settings, scored, networks, alone)


def choose_mode(
    engine: str, device: str, precision: str, family: Family, searches: Sequence[str]
) -> tuple[str, Engine | None]:
    """The mode (eager, fast, fast-int8) for these settings, and its engine; None is our own code.

    Raises InputError for a mode that is unknown or cannot serve any of the searches on this device.
    """
    system_searches = [registry.searches()[name] for name in searches]
    kind = device.split(":")[0]
    offered = [
        declared
        for declared in registry.engines().values()
        if kind in declared.devices and set(declared.modes.values()) - {EAGER}
    ]
    serving = [
        declared
        for declared in offered
        if any(declared.serves(family, search, search.settings()) is None for search in system_searches)
    ]
    mode = choose_engine(engine, device, precision, bool(serving))
    if mode == EAGER:
        return mode, None
    on_device = [declared for declared in offered if mode in declared.modes.values()]
    for declared in on_device:
        if declared in serving:
            return mode, declared
    if engine == "auto":
        return EAGER, None
    problem = f"none on {kind}"
    if on_device:
        problem = f"{on_device[0].name} {why_not(on_device[0], family, system_searches[0].settings())}"
    raise ConfigError("engine", engine, problem=problem, hint="use engine eager")


def why_not(declared: Engine, family: Family, settings: SearchSettings) -> str | None:
    """Why an engine does not compute a search: the end of a sentence that begins with its name; None where it does."""
    reason = declared.serves(family, registry.search_of(settings), settings)
    # The rest of the sentence is about configurations.
    return reason.partition(";")[0] if reason else None


def open_engine(declared: Engine, models: Mapping[str, nn.Module], mode: str, device: torch.device) -> Opened:
    """The engine for networks by the names of their families."""
    return Opened(declared, registry.import_object(declared.open)(models, mode, device))
