"""Principal components of the latents of a posterior (Gu & Kong 2021, Figure 5): how many dimensions they use."""

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
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
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
            found[row] = (mean[place][kept].double().cpu().numpy(), variance[place][kept].cpu().numpy())
    return [found[row] for row in range(len(sources))]


def component_shares(points: np.ndarray) -> np.ndarray:
    """Shares (Z,) of the variance of points (N, Z) that their principal components hold, the largest first.

    They are the eigenvalues of the covariance over their sum; all 0 where the points do not differ.
    """
    centred = points - points.mean(axis=0)
    values = np.linalg.eigvalsh(centred.T @ centred / len(points))[::-1].clip(min=0.0)
    total = values.sum()
    return values / total if total > 0 else np.zeros_like(values)


def enough(shares: np.ndarray, wanted: float) -> int:
    """The fewest components that together hold at least `wanted` of the variance; 0 where there is none."""
    if not shares.any():
        return 0
    # A share that is reached exactly counts, whatever the sum rounds to.
    return int(np.argmax(shares.cumsum() >= wanted - 1e-9)) + 1


def summary(latents: Sequence[tuple[np.ndarray, np.ndarray]], wanted: float) -> dict[str, Any]:
    """What the latents of a system show, from the means and variances of `posterior_latents`.

    `shares` are those of the components of all means, `components` how many hold the share `wanted`. `participation` is
    (sum of the eigenvalues)^2 / sum of their squares, the number of equally large components that would spread alike.
    `variance` is the mean of |mean - its average|^2 over latents, `noise` that of the variance of q: latents that
    carry nothing have little of the first beside the second.
    """
    means = np.concatenate([mean for mean, _ in latents])
    shares = component_shares(means)
    squares = float((shares**2).sum())
    return {
        "latents": len(means),
        "width": means.shape[1],
        "shares": shares.tolist(),
        "components": enough(shares, wanted),
        "participation": 1 / squares if squares else 0.0,
        "variance": float(means.var(axis=0).sum()),
        "noise": float(np.concatenate([variance for _, variance in latents]).sum(axis=1).mean()),
    }
