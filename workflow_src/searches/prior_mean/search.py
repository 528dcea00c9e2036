"""Decoding the prior mean without refinement."""

from __future__ import annotations

from torch import Tensor

from workflow_src.decoding.refinement import translate_batch
from workflow_src.searches.prior_mean import PriorMeanSettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses, Networks


def run(
    models: Networks, source: Tensor, settings: PriorMeanSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    """Translate source (B, S); a trace has one translation a sentence."""
    return translate_batch(
        models[MODEL],
        source,
        trace=trace,
        scored=scored,
        length_quantile=settings.length_quantile,
        lengthening=settings.lengthening,
    )
