"""Figures on dev while a model with latents of the source's length trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.latent import best_ids
from workflow_src.decoding.refinement import DeltaStep, translate_batch
from workflow_src.losses.common import DEV_SAMPLES, collapsed, exact_lengths
from workflow_src.losses.settings import ElboConfig
from workflow_src.losses.source_latents import evidence_lower_bound
from workflow_src.types import Batch, DevFigures, Hypotheses, Mean, Measured

if TYPE_CHECKING:
    from workflow_src.families.lanmt.model import SourceLatentVariableModel


def validate(_config: ElboConfig, _base: None = None) -> DevFigures:
    """ELBO in nats a target position, KL in nats a source position, exact lengths, and BLEU.

    The ELBO has the length's probability in it (Shu et al. 2020, equation 5). `dev_bleu` is that of the prior mean,
    `dev_bleu_delta` that after one delta step. The latents carry nothing where the KL is near 0 and
    `dev_bleu_posterior`, from the posterior mean of the reference, is no better than `dev_bleu`: `dev_bleu_carried` is
    their difference.
    """

    def measure(model: SourceLatentVariableModel, batch: Batch, keys: Tensor) -> Measured:
        memory = model.encode(batch.source)
        elbo, kl = evidence_lower_bound(model, memory, batch.target, DEV_SAMPLES, keys)
        tokens, _ = best_ids(model, memory, model.posterior(memory, batch.target)[0], memory.mask, scored=False)
        lengths = model.predict_lengths(memory, model.prior(memory)[0])
        means: dict[str, Mean] = {
            "dev_elbo": (elbo.sum(), batch.num_target_tokens),
            "dev_kl": (kl.sum(), memory.mask.sum()),
            "dev_length_accuracy": exact_lengths(lengths, batch),
        }
        return Measured(means, {"dev_bleu_posterior": tokens})

    return DevFigures(
        measure,
        {"dev_bleu": translate_batch, "dev_bleu_delta": _after_delta},
        "dev_elbo",
        differences={"dev_bleu_carried": ("dev_bleu_posterior", "dev_bleu")},
        fault=collapsed,
    )


def _after_delta(model: SourceLatentVariableModel, source: Tensor) -> Hypotheses:
    return translate_batch(model, source, lambda memory, mask: DeltaStep(model, memory, mask), 1)
