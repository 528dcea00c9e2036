"""z <- mean of q(z | argmax p(y|z,x), x), step by step."""

from __future__ import annotations

from torch import Tensor

from workflow_src.decoding.latent import LengthChoice
from workflow_src.decoding.refinement import DeltaStep, StepMaker, translate_refined
from workflow_src.searches.delta import DeltaSettings
from workflow_src.spec import MODEL, SearchSettings
from workflow_src.types import Hypotheses, Networks


def step(models: Networks, settings: SearchSettings) -> StepMaker:
    """The maker of delta steps, with the settings' choice of lengths where latents determine these."""
    choice = LengthChoice(getattr(settings, "length_quantile", None), getattr(settings, "lengthening", 0.0))
    return lambda memory, mask: DeltaStep(models[MODEL], memory, mask, choice)


def run(
    models: Networks, source: Tensor, settings: DeltaSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    return translate_refined(models[MODEL], source, step(models, settings), settings, scored, trace)
