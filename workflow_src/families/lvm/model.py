"""The latent-variable model of Lee, Shu & Cho 2020, sections 2.2 and 4.2: one Gaussian latent a target position.

p(y|x) = integral of p(y|z,x) p(z|x) dz, with z of shape (T, Z). Prior p(z|x), approximate posterior q(z|y,x) and
decoder p(y|z,x) are each a stack of non-causal decoder layers over the same source states.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.lvm import LvmConfig
from workflow_src.nn.gaussian import GaussianHead
from workflow_src.nn.layers import Memory, Stack, attention_bias, check_length, dropout, initialise
from workflow_src.nn.length import MOST_PROBABLE, LengthChoice, LengthHead
from workflow_src.nn.models import EncoderDecoder, LatentModel
from workflow_src.nn.weights import copy_places, symbols_of
from workflow_src.nn.widths import places
from workflow_src.types import EOS, PAD, Batch, wide, with_end


class LatentVariableModel(LatentModel, EncoderDecoder):
    """p(z|x), q(z|y,x) and p(y|z,x), and a head of target lengths."""

    places = {"decoder.": ("prior_stack.", "posterior_stack.", "decoder_stack.")}

    def __init__(self, config: LvmConfig, source_size: int, target_size: int, joint: bool):
        # The end symbol is the only special symbol that may be put out, and only where targets have one.
        barred = range(EOS if config.end_symbol else EOS + 1)
        super().__init__(config, source_size, target_size, joint, barred)
        # One latent beside those of words: for the end symbol, where targets have one.
        self.extra_positions = int(config.end_symbol)
        self.length = LengthHead(
            config.dim,
            config.max_length_difference,
            config.max_positions,
            config.max_positions - self.extra_positions,
            config.length_pooling,
        )
        self.prior_stack = Stack(config, config.layers, cross=True)
        self.posterior_stack = Stack(config, config.layers, cross=True)
        self.decoder_stack = Stack(config, config.layers, cross=True, skip=config.decoder_skip)
        self.prior_head = GaussianHead(config.dim, config.latent_dim)
        self.posterior_head = GaussianHead(config.dim, config.latent_dim)
        self.latent_projection = nn.Linear(config.latent_dim, config.dim)
        initialise(self)
        for head in (self.prior_head, self.posterior_head):
            head.scale(config.head_scale)

    # 1. Targets and their lengths.

    def whole_target(self, target: Tensor) -> Tensor:
        """Target (B, T) with its end symbol, (B, T+1), where targets have one."""
        return with_end(target) if self.config.end_symbol else target

    def batch_mask(self, batch: Batch) -> Tensor:
        return self.whole_target(batch.target) != PAD

    def latent_mask(self, memory: Memory, choice: LengthChoice = MOST_PROBABLE) -> Tensor:
        lengths = self.length.predict(memory, choice) + self.extra_positions
        return places(lengths, self.config.max_positions, memory)[1]

    # 2. Prior and posterior.

    def positions(self, mask: Tensor) -> Tensor:
        """Position codes (T, D) for a mask (B, T). Raises ConfigError beyond the model's positions."""
        length = mask.size(1)
        codes = self.target_embedding.positions
        check_length(length, codes.size(0))
        return codes[:length]

    def prior(self, memory: Memory, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), (B, T, Z) each, from target positions alone."""
        codes = self.positions(mask).expand(mask.size(0), -1, -1)
        inputs = dropout(codes, self.config.dropout, self.training)
        return self.prior_head(self.prior_stack(inputs, attention_bias(mask), memory))

    def posterior(self, memory: Memory, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|y,x), (B, T, Z) each, for target (B, T)."""
        inputs = self.target_embedding(target)
        return self.posterior_head(self.posterior_stack(inputs, attention_bias(mask), memory))

    # 3. The decoder over latents.

    def hidden(self, memory: Memory, z: Tensor, mask: Tensor) -> Tensor:
        """Last decoder states (B, T, D) given latents (B, T, Z)."""
        inputs = self.latent_projection(z.to(self.latent_projection.weight.dtype)) + self.positions(mask)
        inputs = dropout(inputs, self.config.dropout, self.training)
        return self.decoder_stack(inputs, attention_bias(mask), memory)

    def read(
        self, memory: Memory, z: Tensor, mask: Tensor, _choice: LengthChoice = MOST_PROBABLE, scored: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Outputs (B, T) have their end symbols, since the posterior reads them."""
        return self.read_symbols(self.logits(self.hidden(memory, z, mask)), mask, scored)

    def log_likelihood(self, memory: Memory, z: Tensor, target: Tensor) -> Tensor:
        """log p(y|x,z), (B,) nats, of targets (B, T), padded; an end symbol counts where targets have one."""
        labels = self.whole_target(target)
        mask = labels != PAD
        logits = F.linear(self.hidden(memory, z, mask), self.target_embedding.weight, self.output_bias)
        return (wide(logits).log_softmax(-1).gather(-1, labels[..., None])[..., 0] * mask).sum(1)


def start(model: Any, tensors: dict[str, Tensor] | None, family: str | None, _base: None) -> list[str] | None:
    """Start a model with latents from another model where names and shapes agree, at random without `tensors`.

    Of a transformer, encoder, embeddings and output bias are taken, and its layers where the model's `places` say.
    Returns the names of the parameters that were set.
    """
    if tensors is None:
        return None
    return copy_places(model, tensors, model.places if family == "transformer" else {}, symbols_of(family))
