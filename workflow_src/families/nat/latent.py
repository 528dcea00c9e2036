"""Gaussian latents at the source positions (Gu & Kong 2021, section 3.2, after Shu et al. 2020).

p(y|x) = integral of p(y|z,x) p(z|x) dz with z of shape (S, Z): one latent a source subword, the end symbol counted.
The prior is two linear maps of the encoder's last states. The posterior q(z|x,y) has an encoder of the target and a
decoder over the source's embeddings of its own, and shares only the embeddings with the rest of the model.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from workflow_src.families.nat import NatConfig
from workflow_src.nn.gaussian import GaussianHead
from workflow_src.nn.layers import Memory, Stack, attention_bias, with_padding


@dataclasses.dataclass(frozen=True)
class LatentMemory(Memory):
    """Source states, and the embeddings (B, S, D) that they were computed from, which the posterior reads."""

    embedded: Tensor

    def select(self, rows: Tensor) -> LatentMemory:
        chosen = super().select(rows)
        return LatentMemory(chosen.states, chosen.mask, chosen.bias, self.embedded.index_select(0, rows))


class Latents(nn.Module):
    def __init__(self, config: NatConfig):
        super().__init__()
        self.prior_head = GaussianHead(config.dim, config.latent_dim)
        self.target_encoder = Stack(config, config.posterior_layers, cross=False)
        self.source_decoder = Stack(config, config.posterior_layers, cross=True)
        self.posterior_head = GaussianHead(config.dim, config.latent_dim)
        self.projection = nn.Linear(config.latent_dim, config.dim)

    @torch.no_grad()
    def scale_heads(self, factor: float) -> None:
        """Large heads at the start make a KL of tens of nats that training first has to undo."""
        for head in (self.prior_head, self.posterior_head):
            head.linear.weight.mul_(factor)

    def prior(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), (B, S, Z) each."""
        return self.prior_head(memory.states)

    def posterior(self, memory: LatentMemory, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|x,y), (B, S, Z) each, from the target's embeddings (B, T, D) at `mask` (B, T)."""
        # Outputs have padding also in a graph of single sentences: they are shorter than their slots.
        with with_padding():
            bias = attention_bias(mask)
        target = Memory(self.target_encoder(embedded, bias), mask, bias)
        return self.posterior_head(self.source_decoder(memory.embedded, memory.bias, target))

    def added(self, memory: Memory, z: Tensor) -> Memory:
        """Source states with the projected latents (B, S, Z) added."""
        return dataclasses.replace(memory, states=memory.states + self.projection(z.to(self.projection.weight.dtype)))
