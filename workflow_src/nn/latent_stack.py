"""What networks share that point from a latent to a better one (Lee et al. 2020, section 3.2): layers over latents.

They read latents (B, T, Z) and the source states of the latent-variable model; no vocabulary anywhere. What they
return approximates +grad log p and is *added* to z.
"""

from __future__ import annotations

from torch import Tensor, nn

from workflow_src.nn.layers import (
    Memory,
    Stack,
    attention_bias,
    check_length,
    dropout,
    sinusoidal_positions,
)
from workflow_src.nn.settings import RefinerConfig
from workflow_src.nn.weights import copy_matching


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
