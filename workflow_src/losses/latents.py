"""Losses of models with latents of source or of target positions (`nn.models.LatentModel`)."""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.losses.common import gaussian_kl
from workflow_src.losses.draws import normal
from workflow_src.nn.layers import Memory
from workflow_src.nn.models import LatentModel
from workflow_src.nn.source_latents import SourceLatentModel
from workflow_src.types import Batch


def sampled_latents(model: SourceLatentModel, memory: Memory, batch: Batch, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Latents z ~ q(z|x,y), (B, S, Z), and KL(q || p) at every real source position, (R,) nats.

    Random keys (B,) of sentences (`draws.sentence_keys`).
    """
    mean_p, deviation_p = model.prior(memory, memory.mask)
    mean_q, deviation_q = model.posterior(memory, batch.target, memory.mask)
    noise = normal(keys, tuple(mean_q.shape[1:])).to(mean_q)
    real = batch.cells(batch.source_lengths)
    return mean_q + deviation_q * noise, gaussian_kl(mean_q, deviation_q, mean_p, deviation_p)[real]


@torch.no_grad()
def evidence_lower_bound(
    model: LatentModel, memory: Memory, batch: Batch, samples: int, keys: Tensor
) -> tuple[Tensor, Tensor]:
    """E_q[log p(y|x,z)] - KL(q || p) of a batch's targets, and the KL: (B,) nats each, summed over positions.

    The expectation is the mean of the model's `log_likelihood` over `samples` draws, those of the random keys (B,) of
    sentences: neither padding nor the rest of a batch changes them. The KL is exact, without free nats.
    """
    mask = model.batch_mask(batch)
    mean_p, deviation_p = model.prior(memory, mask)
    mean_q, deviation_q = model.posterior(memory, model.whole_target(batch.target), mask)
    kl = (gaussian_kl(mean_q, deviation_q, mean_p, deviation_p) * mask).sum(1)
    likelihood = torch.zeros_like(kl)
    for stream in range(samples):
        noise = normal(keys, tuple(mean_q.shape[1:]), stream).to(mean_q)
        likelihood += model.log_likelihood(memory, mean_q + deviation_q * noise, batch.target) / samples
    return likelihood - kl, kl
