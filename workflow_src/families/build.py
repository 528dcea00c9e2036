"""Family name -> how to build its model, objective and validation. The one place that knows all families."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from workflow_src.config.base import parse
from workflow_src.config.families import FAMILIES
from workflow_src.families.energy.model import EnergyNetwork
from workflow_src.families.lvm.model import LatentVariableModel
from workflow_src.families.lvm.objective import Elbo
from workflow_src.families.score.model import ScoreNetwork
from workflow_src.families.transformer.model import Transformer
from workflow_src.families.transformer.objective import CrossEntropy
from workflow_src.losses.score_matching import ScoreMatching
from workflow_src.types import Objective


@dataclasses.dataclass(frozen=True)
class Builder:
    """`model(config, source_size, target_size, joint)` and `objective(config)`."""

    model: Callable[..., nn.Module]
    objective: Callable[[Any], Objective]


def _without_vocabulary(model: type[nn.Module]) -> Callable[..., nn.Module]:
    return lambda config, source_size, target_size, joint: model(config)


BUILDERS: dict[str, Builder] = {
    "transformer": Builder(Transformer, CrossEntropy),
    "lvm": Builder(LatentVariableModel, Elbo),
    "score": Builder(_without_vocabulary(ScoreNetwork), ScoreMatching),
    "energy": Builder(_without_vocabulary(EnergyNetwork), ScoreMatching),
}


def build(family: str, model: dict[str, Any], sizes: dict[str, Any]) -> nn.Module:
    """A model of `family` from its settings and the sizes of the vocabulary {"source", "target", "joint"}.

    Raises ConfigError for settings that are not the family's.
    """
    config = parse(FAMILIES[family].model, model, f"{family}.model")
    return BUILDERS[family].model(config, sizes["source"], sizes["target"], sizes["joint"])


def build_objective(family: str, settings: dict[str, Any]) -> Objective:
    return BUILDERS[family].objective(FAMILIES[family].objective.model_validate(settings))
