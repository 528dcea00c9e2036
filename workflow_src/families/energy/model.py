"""The energy of Lee et al. 2020, section 3.2: a scalar over latents, whose negative gradient is the direction."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workflow_src.families.energy import EnergyConfig
from workflow_src.nn.latent_stack import LatentStack
from workflow_src.nn.layers import Memory, initialise
from workflow_src.types import wide


class EnergyNetwork(LatentStack):
    """A scalar E(z, x) a sentence; the direction is -dE/dz.

    E is linear in the mean over positions of the last states, so that -dE/dz at a position shrinks as 1/T; pooling
    "sum" does not have this property.
    """

    differentiates_twice = True
    config: EnergyConfig

    def __init__(self, config: EnergyConfig, *_vocabulary: int):
        super().__init__(config)
        self.head = nn.Linear(config.dim, 1)
        initialise(self)
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def energy(self, memory: Memory, z: Tensor, mask: Tensor) -> Tensor:
        """Energies (B,)."""
        hidden = self.hidden(memory, z, mask) * mask[..., None]
        pooled = hidden.sum(1)
        if self.config.energy_pooling == "mean":
            # An empty sentence (dev sets may have some) must not become NaN.
            pooled = pooled / mask.sum(1, keepdim=True).clamp(min=1)
        return wide(self.head(pooled))[:, 0]

    def direction(self, memory: Memory, z: Tensor, mask: Tensor, differentiable: bool = False) -> Tensor:
        """-dE/dz (B, T, Z); `differentiable` keeps the graph, so that a loss on it can train the network."""
        with torch.enable_grad():
            if not z.requires_grad:
                z = z.detach().requires_grad_()
            # Fused attention has no second derivative.
            self.stack.differentiate_twice = differentiable
            try:
                energies = self.energy(memory, z, mask)
                (gradient,) = torch.autograd.grad(energies.sum(), z, create_graph=differentiable)
            finally:
                self.stack.differentiate_twice = False
        return -gradient
