"""Figures on dev while a latent-variable model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.latent import best_tokens, word_rows
from workflow_src.decoding.refinement import translate_batch
from workflow_src.families.lvm.objective import evidence_lower_bound
from workflow_src.losses.common import DEV_SAMPLES, collapsed, exact_lengths
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import PAD, Batch, DevFigures, Mean, Measured

if TYPE_CHECKING:
    from workflow_src.families.lvm.model import LatentVariableModel


def validate(_config: ElboConfig, _base: None = None) -> DevFigures:
    """ELBO and KL in nats a target token, exact lengths, BLEU from the prior mean and from the posterior mean.

    The latter reads the reference: it shows whether latents carry the sentence. The ELBO selects weights.
    """

    def measure(model: LatentVariableModel, batch: Batch, keys: Tensor) -> Measured:
        elbo, kl = evidence_lower_bound(model, batch, DEV_SAMPLES, keys)
        memory, target = model.encode(batch.source), model.whole_target(batch.target)
        mask = target != PAD
        mean, _ = model.posterior(memory, target, mask)
        means: dict[str, Mean] = {
            "dev_elbo": (elbo.sum(), mask.sum()),
            "dev_kl": (kl.sum(), mask.sum()),
            "dev_length_accuracy": exact_lengths(model.predict_lengths(memory), batch),
        }
        return Measured(means, {"dev_bleu_posterior": word_rows(best_tokens(model, memory, mean, mask), mask)})

    return DevFigures(measure, {"dev_bleu": translate_batch}, "dev_elbo", fault=collapsed)
