"""Family name -> its model and objective, from the settings that a configuration or a description has."""

from __future__ import annotations

from typing import Any

from torch import nn

from workflow_src.config.base import parse
from workflow_src.registry import families, import_object
from workflow_src.types import Objective


def build(family: str, model: dict[str, Any], sizes: dict[str, Any]) -> nn.Module:
    """A model of `family` from its settings and the sizes of the vocabulary {"source", "target", "joint"}.

    Raises ConfigError for settings that are not the family's.
    """
    declared = families()[family]
    config = parse(declared.model, model, f"{family}.model")
    return import_object(declared.build)(
        config,
        sizes["source"] + len(declared.symbols) * sizes["joint"],
        sizes["target"] + len(declared.symbols),
        sizes["joint"],
    )


def build_objective(family: str, settings: dict[str, Any]) -> Objective:
    """The objective of `family`. Raises ConfigError for settings that are not the family's."""
    declared = families()[family]
    return import_object(declared.loss)(parse(declared.objective, settings, f"{family}.objective"))
