"""z <- z + step_size * s(z, x), with the output of a score network for s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from workflow_src.decoding.latent import direction_steps as step
from workflow_src.decoding.latent import refined
from workflow_src.searches.score import ScoreSettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses


def run(
    models: Mapping[str, Any], source: Tensor, settings: ScoreSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    return refined(models[MODEL], source, step(models, settings), settings, scored, trace)
