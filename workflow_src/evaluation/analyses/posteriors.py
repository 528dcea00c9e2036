"""Latents of a posterior q(z|x,y), of target or of source positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.decoding.latent import on_source, posterior_of
from workflow_src.types import PAD, LatentModel, SourceLatentModel


def _posterior(model: LatentModel | SourceLatentModel, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and deviation of q(z|x,y), (B, P, Z) each, and the mask (B, P) of the latents' positions."""
    memory = model.encode(source)
    target, mask = positions(model, memory, target)
    return *posterior_of(model, memory, target, mask), mask


def positions(model: LatentModel | SourceLatentModel, memory: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Target (B, T), padded, as a posterior reads it, and the mask (B, P) of the latents' positions."""
    if on_source(model):
        return target, memory.mask
    target = model.whole_target(target)
    return target, target != PAD


def cut(model: LatentModel | SourceLatentModel, targets: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Targets (subword ids) up to the positions that the model has."""
    longest = model.config.max_positions - getattr(model, "extra_positions", 1)
    return [ids[:longest] for ids in targets]


@torch.no_grad()
def posterior_latents(
    model: LatentModel | SourceLatentModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch: int,
    device: torch.device,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of q(z|x,y) for each pair of subword ids (none empty), (P, Z) each in float64.

    P counts the latents of a pair: its source subwords with the end symbol, or its target's positions. Targets are cut
    to the positions that the model has.
    """
    targets = cut(model, targets)
    order = sorted(range(len(sources)), key=lambda i: (-len(sources[i]), -len(targets[i])))
    latents: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        mean, deviation, mask = _posterior(
            model,
            pad([sources[i] for i in rows], eos=True).to(device),
            pad([targets[i] for i in rows], eos=False).to(device),
        )
        variance = deviation.double() ** 2
        for place, row in enumerate(rows):
            kept = mask[place]
            latents[row] = (mean[place][kept].double().cpu().numpy(), variance[place][kept].cpu().numpy())
    return [latents[row] for row in range(len(sources))]
