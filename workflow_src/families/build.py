"""Family name -> its model, objective and validation, from the settings that a configuration or a description has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from workflow_src.data.subwords import Subwords
from workflow_src.errors import ConfigError
from workflow_src.registry import families, import_object
from workflow_src.spec import Frozen, parse
from workflow_src.types import Batch, DevFigures, LossTerms, Objective, Symbols, TrainingContext


def build(family: str, model: Frozen | dict[str, Any], sizes: dict[str, Any]) -> nn.Module:
    """A model of `family` from its settings and the sizes of the vocabulary {"source", "target", "joint"}.

    `family` of the model has the family's name.
    The family's symbols are added to the sizes; `symbols` of the model has their ids. `sizes["symbols"]`, those that a
    model was trained with, must be the same. Raises ConfigError for settings or symbols that are not the family's.
    """
    declared = families()[family]
    config = parse(declared.model, model, f"{family}.model")
    trained = tuple(sizes.get("symbols", declared.symbols))
    if trained != declared.symbols:
        raise ConfigError(
            "symbols",
            trained,
            problem=f"those that the model was trained with, and family {family} has {declared.symbols}",
            hint="use the version that it was trained with",
        )
    added, joint = len(declared.symbols), sizes["joint"]
    source = sizes["source"] + (added if joint else 0)
    if declared.build is None:
        raise ConfigError("family", family, problem="its models are made elsewhere: they have no network here")
    network = import_object(declared.build)(config, source, sizes["target"] + added, joint)
    network.symbols, network.family = Symbols(declared.symbols, sizes["target"]), family
    return network


def sizes_of(family: str, subwords: Subwords) -> dict[str, Any]:
    """Sizes of the vocabulary for `build`, with the symbols of a family that has some."""
    symbols = list(families()[family].symbols)
    sizes = {"source": subwords.source_size, "target": subwords.target_size, "joint": subwords.joint}
    return sizes | ({"symbols": symbols} if symbols else {})


def build_objective(family: str, settings: Frozen | dict[str, Any]) -> Objective:
    """The loss of `family` with these settings. Raises ConfigError for settings that are not the family's."""
    declared = families()[family]
    if declared.loss is None:
        raise ConfigError("family", family, problem="its models are counted, not trained: they have no objective")
    config, loss = parse(declared.objective, settings, f"{family}.objective"), import_object(declared.loss)

    def objective(model: nn.Module, batch: Batch, context: TrainingContext) -> LossTerms:
        return loss(model, batch, context, config)

    return objective


def build_validation(
    family: str,
    settings: Frozen | dict[str, Any],
    frozen: nn.Module | None,
    roles: Mapping[str, nn.Module],
) -> DevFigures:
    """What `family` measures on dev, from the settings of its objective and the systems that it works with.

    Raises ConfigError for settings that are not the family's.
    """
    declared = families()[family]
    assert declared.validation, "a family with an objective has a validation"
    config = parse(declared.objective, settings, f"{family}.objective")
    return import_object(declared.validation)(config, frozen, **roles)
