"""The latent-variable model of Lee, Shu & Cho 2020, sections 2.2 and 4.2: one Gaussian latent a target position.

p(y|x) = integral of p(y|z,x) p(z|x) dz, with z of shape (T, Z). Prior p(z|x), approximate posterior q(z|y,x) and
decoder p(y|z,x) are each a stack of non-causal decoder layers over the same source states.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.lvm import LvmConfig
from workflow_src.nn.gaussian import GaussianHead
from workflow_src.nn.layers import Embedding, Memory, Stack, attention_bias, check_length, dropout, initialise
from workflow_src.nn.length import LengthHead
from workflow_src.nn.weights import copy_places
from workflow_src.types import PAD, with_end


class LatentVariableModel(nn.Module):
    """p(z|x), q(z|y,x) and p(y|z,x), and a head of target lengths (`types.LatentModel`)."""

    def __init__(self, config: LvmConfig, source_size: int, target_size: int, joint: bool):
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(source_size, config)
        self.target_embedding = self.source_embedding if joint else Embedding(target_size, config)
        self.encoder = Stack(config, config.encoder_layers, cross=False)
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
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        initialise(self)
        with torch.no_grad():
            # Large heads at the start make a KL of tens of nats that training first has to undo.
            for head in (self.prior_head, self.posterior_head):
                head.linear.weight.mul_(config.head_scale)

    # 1. Targets, the source, and the length.

    @property
    def extra_positions(self) -> int:
        """Latents of a sentence beside those of its words: one for the end symbol, where targets have one."""
        return int(self.config.end_symbol)

    def whole_target(self, target: Tensor) -> Tensor:
        """Target (B, T) as the model reads it: with its end symbol, (B, T+1), where targets have one."""
        return with_end(target) if self.config.end_symbol else target

    def encode(self, source: Tensor) -> Memory:
        """Source (B, S) -> states for the three stacks and the length head."""
        mask = source != PAD
        bias = attention_bias(mask)
        return Memory(self.encoder(self.source_embedding(source), bias), mask, bias)

    def predict_lengths(self, memory: Memory, quantile: float | None = None, lengthening: float = 0.0) -> Tensor:
        """Target lengths in words, (B,): the most probable, or a quantile."""
        return self.length.predict(memory, quantile, lengthening)

    # 2. Prior and posterior.

    def positions(self, target_mask: Tensor) -> Tensor:
        """Position codes (T, D) for a mask (B, T). Raises ConfigError beyond the model's positions."""
        length = target_mask.size(1)
        codes = self.target_embedding.positions
        check_length(length, codes.size(0))
        return codes[:length]

    def prior(self, memory: Memory, target_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), (B, T, Z) each, from target positions alone."""
        codes = self.positions(target_mask).expand(target_mask.size(0), -1, -1)
        inputs = dropout(codes, self.config.dropout, self.training)
        return self.prior_head(self.prior_stack(inputs, attention_bias(target_mask), memory))

    def posterior(self, memory: Memory, target: Tensor, target_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|y,x), (B, T, Z) each, for target (B, T)."""
        inputs = self.target_embedding(target)
        return self.posterior_head(self.posterior_stack(inputs, attention_bias(target_mask), memory))

    # 3. The decoder over latents.

    def decoder_hidden(self, memory: Memory, z: Tensor, target_mask: Tensor) -> Tensor:
        """Last decoder states (B, T, D) given latents (B, T, Z)."""
        inputs = self.latent_projection(z.to(self.latent_projection.weight.dtype)) + self.positions(target_mask)
        inputs = dropout(inputs, self.config.dropout, self.training)
        return self.decoder_stack(inputs, attention_bias(target_mask), memory)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, (..., D) -> (..., V)."""
        return F.linear(hidden, self.target_embedding.weight, self.output_bias)

    def decode(self, memory: Memory, z: Tensor, target_mask: Tensor) -> Tensor:
        """Logits (B, T, V) of p(y|z,x) at every position."""
        return self.logits(self.decoder_hidden(memory, z, target_mask))


def start(
    model: LatentVariableModel, tensors: dict[str, Tensor] | None, family: str | None, _base: None
) -> list[str] | None:
    """Start from another model where names and shapes agree, at random without `tensors`.

    Of a transformer, encoder, embeddings and output bias are taken, and its decoder layers for all three stacks; of a
    latent-variable model, everything. Returns the names of the parameters that were set.
    """
    if tensors is None:
        return None
    return copy_places(model, tensors, _own_names if family == "transformer" else None)


def _own_names(teacher_name: str) -> list[str]:
    """Names of the parameters that a teacher's parameter initialises."""
    if teacher_name.startswith("decoder."):
        suffix = teacher_name.removeprefix("decoder.")
        return [f"{stack}.{suffix}" for stack in ("prior_stack", "posterior_stack", "decoder_stack")]
    return [teacher_name]
