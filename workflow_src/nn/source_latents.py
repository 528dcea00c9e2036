"""Gaussian latents at the source positions (Shu et al. 2020; Gu & Kong 2021, section 3.2).

p(y|x) = integral of p(y|z,x) p(z|x) dz with z of shape (S, Z): one latent a source subword, the end symbol counted.
The prior is two linear maps of the encoder's last states. The posterior q(z|x,y) has an encoder of the target and a
decoder over the source's embeddings of its own, and shares only the embeddings with the rest of the model.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from workflow_src.nn.gaussian import GaussianHead
from workflow_src.nn.layers import Memory, Stack, attention_bias
from workflow_src.nn.length import MOST_PROBABLE, LengthChoice
from workflow_src.nn.models import EncoderDecoder, LatentModel
from workflow_src.nn.settings import StackConfig
from workflow_src.types import PAD, Batch, wide, with_end


class SourceLatents(nn.Module):
    """Prior and posterior of latents of `latent_dim` numbers, and their projection to the model's width.

    The posterior's encoder and its decoder have `posterior_layers` each; `head_scale` scales the mean and deviation
    heads at the start (`scale_heads`).
    """

    def __init__(self, config: StackConfig, latent_dim: int, posterior_layers: int):
        super().__init__()
        self.prior_head = GaussianHead(config.dim, latent_dim)
        self.target_encoder = Stack(config, posterior_layers, cross=False)
        self.source_decoder = Stack(config, posterior_layers, cross=True)
        self.posterior_head = GaussianHead(config.dim, latent_dim)
        self.projection = nn.Linear(latent_dim, config.dim)

    def scale_heads(self, factor: float) -> None:
        for head in (self.prior_head, self.posterior_head):
            head.scale(factor)

    def prior(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), (B, S, Z) each."""
        return self.prior_head(memory.states)

    def posterior(self, memory: Memory, target: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|x,y), (B, S, Z) each, from a target (B, T), padded, and its embeddings."""
        mask = target != PAD
        # Outputs are shorter than their slots, also where a graph is for single sentences.
        bias = attention_bias(mask, alone=False)
        encoded = Memory(self.target_encoder(embedded, bias), mask, bias, target, embedded)
        return self.posterior_head(self.source_decoder(memory.embedded, memory.bias, encoded))

    def projected(self, z: Tensor) -> Tensor:
        """Latents (..., Z) as wide as the model, (..., D)."""
        return self.projection(z.to(self.projection.weight.dtype))

    def added(self, memory: Memory, z: Tensor) -> Memory:
        """Source states with the projected latents (B, S, Z) added."""
        return dataclasses.replace(memory, states=memory.states + self.projected(z))


class SourceLatentModel(LatentModel, EncoderDecoder):
    """A model with latents of source positions; without `latents`, searches of these are refused (`lacks`)."""

    latents: SourceLatents | None

    def batch_mask(self, batch: Batch) -> Tensor:
        return batch.source_mask

    def latent_mask(self, memory: Memory, _choice: LengthChoice = MOST_PROBABLE) -> Tensor:
        return memory.mask

    def prior(self, memory: Memory, _mask: Tensor) -> tuple[Tensor, Tensor]:
        assert self.latents is not None
        return self.latents.prior(memory)

    def posterior(self, memory: Memory, target: Tensor, _mask: Tensor) -> tuple[Tensor, Tensor]:
        assert self.latents is not None
        # An end symbol, so that there is something to attend to where an output is empty.
        target = with_end(target[:, : self.target_embedding.positions.size(0) - 1])
        return self.latents.posterior(memory, target, self.target_embedding(target))


class LengthTransformation(nn.Module):
    """Latents of the source's length as latents of the target's (Shu et al. 2020, equations 6 to 8).

        z'_j = sum_k w_jk z_k,    w_jk = softmax over k of -(k - j |x| / l)^2 / (2 sigma^2)

    for j = 1 … l and k = 1 … |x|, or both from `first_position` = 0 on, as in the authors' released code. The scale
    sigma is the only parameter; its logarithm is learned, which keeps it above 0. As sigma goes to 0 each position
    reads the latent nearest to its place, and equal lengths change nothing.
    """

    def __init__(self, first_position: int):
        super().__init__()
        self.first_position = first_position
        self.log_sigma = nn.Parameter(torch.zeros(()))

    def weights(self, source_mask: Tensor, lengths: Tensor, width: int) -> Tensor:
        """w (B, width, S) for source positions (B, S) and target lengths (B,); rows of real positions sum to 1.

        Rows past a sentence's length have no meaning.
        """
        scale = wide(self.log_sigma)
        ratio = source_mask.sum(1).to(scale.dtype) / lengths.to(scale.dtype)
        first, device = self.first_position, lengths.device
        target_positions = torch.arange(width, device=device, dtype=scale.dtype) + first
        centre = target_positions[None, :] * ratio[:, None]
        source_positions = torch.arange(source_mask.size(1), device=device, dtype=scale.dtype) + first
        distance = source_positions - centre[..., None]
        scores = -0.5 * (distance * (-scale).exp()) ** 2
        return scores.masked_fill(~source_mask[:, None], float("-inf")).softmax(-1)

    def forward(self, z: Tensor, source_mask: Tensor, lengths: Tensor, width: int) -> Tensor:
        """Latents (B, width, Z) of target positions from latents (B, S, Z) of source positions."""
        return self.weights(source_mask, lengths, width).to(z.dtype) @ z
