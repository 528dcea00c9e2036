"""z <- z + step_size * s(z, x), with the output of a score network for s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from workflow_src.decoding.latent import StepMaker, gradient_step, refined
from workflow_src.searches.score import ScoreSettings
from workflow_src.spec import MODEL, REFINER, SearchSettings
from workflow_src.types import Hypotheses


def step(models: Mapping[str, Any], settings: SearchSettings) -> StepMaker:
    return lambda memory, mask: gradient_step(models[REFINER], memory, mask, settings.step_size)


def run(
    models: Mapping[str, Any], source: Tensor, settings: ScoreSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    return refined(models[MODEL], source, step(models, settings), settings, scored, trace)
