"""Figures on dev while a latent-variable model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.search import searching
from workflow_src.losses.common import DEV_SAMPLES, collapsed, exact_lengths
from workflow_src.losses.latents import evidence_lower_bound
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import PAD, Batch, DevFigures, Mean, Measured

if TYPE_CHECKING:
    from workflow_src.families.lvm.model import LatentVariableModel


def validate(_config: ElboConfig, _base: None = None) -> DevFigures:
    """ELBO and KL in nats a target token, exact lengths, BLEU from the prior mean and from the posterior mean.

    The latter reads the reference: it shows whether latents carry the sentence. The ELBO selects weights.
    """

    def measure(model: LatentVariableModel, batch: Batch, keys: Tensor) -> Measured:
        memory, target = model.encode(batch.source), model.whole_target(batch.target)
        elbo, kl = evidence_lower_bound(model, memory, batch, DEV_SAMPLES, keys)
        mask = target != PAD
        mean, _ = model.posterior(memory, target, mask)
        means: dict[str, Mean] = {
            "dev_elbo": (elbo.sum(), mask.sum()),
            "dev_kl": (kl.sum(), mask.sum()),
            "dev_length_accuracy": exact_lengths(model.length.predict(memory), batch),
        }
        return Measured(means, {"dev_bleu_posterior": unpadded(model.read(memory, mean, mask)[0])})

    return DevFigures(measure, {"dev_bleu": searching("prior-mean")}, "dev_elbo", fault=collapsed)
