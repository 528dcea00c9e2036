"""z <- z - step_size * dE(z, x)/dz, with the energy of a network for E."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from workflow_src.decoding.latent import direction_steps as step
from workflow_src.decoding.latent import refined
from workflow_src.searches.energy import EnergySettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses


def run(
    models: Mapping[str, Any], source: Tensor, settings: EnergySettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    return refined(models[MODEL], source, step(models, settings), settings, scored, trace)
