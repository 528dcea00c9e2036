"""Losses of models whose latents are those of source positions (`types.SourceLatentModel`)."""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.losses.common import cells, gaussian_kl
from workflow_src.losses.draws import normal
from workflow_src.types import Batch, EncoderOutput, LatentLengthModel, SourceLatentModel


def sampled_latents(
    model: SourceLatentModel, memory: EncoderOutput, batch: Batch, keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Latents z ~ q(z|x,y), (B, S, Z), and KL(q || p) at every real source position, (R,) nats.

    Random keys (B,) of sentences (`draws.sentence_keys`).
    """
    mean_p, deviation_p = model.prior(memory)
    mean_q, deviation_q = model.posterior(memory, batch.target)
    noise = normal(keys, tuple(mean_q.shape[1:])).to(mean_q)
    real = cells(batch.on_cpu.source_mask, mean_q.device)
    return mean_q + deviation_q * noise, gaussian_kl(mean_q, deviation_q, mean_p, deviation_p)[real]


@torch.no_grad()
def evidence_lower_bound(
    model: LatentLengthModel, memory: EncoderOutput, target: Tensor, samples: int, keys: Tensor
) -> tuple[Tensor, Tensor]:
    """E_q[log p(y|x,z)] - KL(q || p) of target (B, T), padded, and the KL: (B,) nats each, summed over positions.

    The expectation is the mean of the model's `log_likelihood` over `samples` draws, those of the random keys (B,) of
    sentences: neither padding nor the rest of a batch changes them. The KL is exact, without free nats.
    """
    mean_p, deviation_p = model.prior(memory)
    mean_q, deviation_q = model.posterior(memory, target)
    kl = (gaussian_kl(mean_q, deviation_q, mean_p, deviation_p) * memory.mask).sum(1)
    likelihood = torch.zeros_like(kl)
    for stream in range(samples):
        noise = normal(keys, tuple(mean_q.shape[1:]), stream).to(mean_q)
        likelihood += model.log_likelihood(memory, mean_q + deviation_q * noise, target) / samples
    return likelihood - kl, kl
