"""Losses of models whose latents are those of source positions (`types.SourceLatentModel`)."""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.losses.common import gaussian_kl
from workflow_src.losses.draws import normal


def sampled_latents(model, memory, target: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Latents z ~ q(z|x,y), (B, S, Z), and KL(q || p) at every real source position, (R,) nats.

    target (B, T), padded; random keys (B,) of sentences (`draws.sentence_keys`).
    """
    mean_p, deviation_p = model.prior(memory)
    mean_q, deviation_q = model.posterior(memory, target)
    noise = normal(keys, tuple(mean_q.shape[1:])).to(mean_q)
    return mean_q + deviation_q * noise, gaussian_kl(mean_q, deviation_q, mean_p, deviation_p)[memory.mask]
