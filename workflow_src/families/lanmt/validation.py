"""Figures on dev while a model with latents of the source's length trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.search import searching
from workflow_src.losses.common import DEV_SAMPLES, collapsed, exact_lengths
from workflow_src.losses.latents import evidence_lower_bound
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import Batch, DevFigures, Mean, Measured

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
        elbo, kl = evidence_lower_bound(model, memory, batch, DEV_SAMPLES, keys)
        mean, _ = model.posterior(memory, batch.target, memory.mask)
        outputs, _ = model.read(memory, mean, memory.mask)
        lengths = model.length.predict(memory, z=model.prior(memory, memory.mask)[0])
        means: dict[str, Mean] = {
            "dev_elbo": (elbo.sum(), batch.num_target_tokens),
            "dev_kl": (kl.sum(), memory.mask.sum()),
            "dev_length_accuracy": exact_lengths(lengths, batch),
        }
        return Measured(means, {"dev_bleu_posterior": unpadded(outputs)})

    return DevFigures(
        measure,
        {"dev_bleu": searching("prior-mean"), "dev_bleu_delta": searching("delta", steps=1)},
        "dev_elbo",
        differences={"dev_bleu_carried": ("dev_bleu_posterior", "dev_bleu")},
        fault=collapsed,
    )
