"""Networks that point from a latent to a better one: the score and the energy of Lee et al. 2020, section 3.2.

Both read latents (B, T, Z) and the source states of the latent-variable model; no vocabulary anywhere. What they
return approximates +grad log p and is *added* to z.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workflow_src.config.families import RefinerConfig
from workflow_src.families.lvm.model import copy_matching
from workflow_src.nn.layers import (
    Memory,
    Stack,
    attention_bias,
    check_length,
    dropout,
    initialise,
    sinusoidal_positions,
)
from workflow_src.types import wide


class LatentStack(nn.Module):
    """Decoder layers over projected latents with positions: (B, T, Z) -> (B, T, D)."""

    def __init__(self, config: RefinerConfig):
        super().__init__()
        self.config = config
        self.latent_projection = nn.Linear(config.latent_dim, config.dim)
        self.stack = Stack(config, config.layers, cross=True)
        codes = sinusoidal_positions(config.max_positions, config.dim)
        self.register_buffer("positions", codes, persistent=False)

    def hidden(self, memory: Memory, z: Tensor, target_mask: Tensor) -> Tensor:
        check_length(z.size(1), self.positions.size(0))
        inputs = self.latent_projection(z.to(self.latent_projection.weight.dtype))
        if self.config.positions:
            inputs = inputs + self.positions[: z.size(1)]
        inputs = dropout(inputs, self.config.dropout, self.training)
        return self.stack(inputs, attention_bias(target_mask), memory)

    def start_from_lvm(self, weights: dict[str, Tensor]) -> list[str]:
        """Take the decoder's layers of the latent-variable model and its projection of z."""
        given = {name.replace("decoder_stack.", "stack."): tensor for name, tensor in weights.items()}
        return copy_matching(self, given)


class ScoreNetwork(LatentStack):
    """The direction itself, (B, T, Z) -> (B, T, Z)."""

    def __init__(self, config: RefinerConfig):
        super().__init__(config)
        self.head = nn.Linear(config.dim, config.latent_dim)
        initialise(self)
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def direction(self, memory: Memory, z: Tensor, target_mask: Tensor, differentiable: bool = False) -> Tensor:
        del differentiable  # the output is a plain forward pass either way
        return wide(self.head(self.hidden(memory, z, target_mask)))


class EnergyNetwork(LatentStack):
    """A scalar E(z, x) a sentence; the direction is -dE/dz.

    E is linear in the mean over positions of the last states, so that -dE/dz at a position shrinks as 1/T; pooling
    "sum" does not have this property.
    """

    differentiates_twice = True

    def __init__(self, config: RefinerConfig):
        super().__init__(config)
        self.head = nn.Linear(config.dim, 1)
        initialise(self)
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def energy(self, memory: Memory, z: Tensor, target_mask: Tensor) -> Tensor:
        """Energies (B,)."""
        hidden = self.hidden(memory, z, target_mask) * target_mask[..., None]
        pooled = hidden.sum(1)
        if self.config.energy_pooling == "mean":
            # An empty sentence (dev sets may have some) must not become NaN.
            pooled = pooled / target_mask.sum(1, keepdim=True).clamp(min=1)
        return wide(self.head(pooled))[:, 0]

    def direction(self, memory: Memory, z: Tensor, target_mask: Tensor, differentiable: bool = False) -> Tensor:
        """-dE/dz (B, T, Z); `differentiable` keeps the graph, so that a loss on it can train the network."""
        with torch.enable_grad():
            if not z.requires_grad:
                z = z.detach().requires_grad_()
            # Fused attention has no second derivative.
            self.stack.differentiate_twice = differentiable
            try:
                energies = self.energy(memory, z, target_mask)
                (gradient,) = torch.autograd.grad(energies.sum(), z, create_graph=differentiable)
            finally:
                self.stack.differentiate_twice = False
        return -gradient
