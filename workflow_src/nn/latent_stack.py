"""Layers over latents, of networks that point from a latent to a better one (Lee et al. 2020, section 3.2).

The networks read latents (B, T, Z) and the source states of the latent-variable model, and no words. Their output
approximates +grad log p and is *added* to z.
"""

from __future__ import annotations

from torch import Tensor, nn

from workflow_src.nn.layers import Memory, Stack, attention_bias, check_length, dropout, sinusoidal_positions
from workflow_src.nn.models import Refiner
from workflow_src.nn.settings import RefinerConfig
from workflow_src.nn.weights import copy_matching, renamed

# Where weights of a model with latents go.
PLACES = {
    "decoder_stack.": ("stack.",),
    "decoder.": ("stack.",),
    "latents.projection.": ("latent_projection.",),
}


class LatentStack(Refiner):
    """Decoder layers over projected latents with positions: (B, T, Z) -> (B, T, D)."""

    positions: Tensor

    def __init__(self, config: RefinerConfig):
        super().__init__()
        self.config = config
        self.latent_projection = nn.Linear(config.latent_dim, config.dim)
        self.stack = Stack(config, config.layers, cross=True)
        codes = sinusoidal_positions(config.max_positions, config.dim)
        self.register_buffer("positions", codes, persistent=False)

    def hidden(self, memory: Memory, z: Tensor, mask: Tensor) -> Tensor:
        check_length(z.size(1), self.positions.size(0))
        inputs = self.latent_projection(z.to(self.latent_projection.weight.dtype))
        if self.config.positions:
            inputs = inputs + self.positions[: z.size(1)]
        inputs = dropout(inputs, self.config.dropout, self.training)
        return self.stack(inputs, attention_bias(mask), memory)

    def start_from_base(self, weights: dict[str, Tensor]) -> list[str]:
        """Copy the decoder's layers of a model with latents and its projection of z; returns the names of both."""
        return copy_matching(self, renamed(weights, PLACES))
