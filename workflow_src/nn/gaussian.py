"""Diagonal Gaussians over latents."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.types import wide


class GaussianHead(nn.Module):
    """Last states (B, T, D) -> mean and deviation (B, T, Z); the deviation is softplus of a linear output."""

    def __init__(self, dim: int, latent_dim: int):
        super().__init__()
        self.linear = nn.Linear(dim, 2 * latent_dim)

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        """Large heads at the start make a KL of tens of nats that training first has to undo."""
        self.linear.weight.mul_(factor)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = wide(self.linear(hidden)).chunk(2, -1)
        # A floor keeps log-deviations finite when the posterior becomes certain.
        return mean, F.softplus(raw) + 1e-4
