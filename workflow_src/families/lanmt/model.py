"""The latent-variable model of Shu et al. 2020, section 3: one Gaussian latent a source position.

    log p(y|x) >= E_q[log p(y|x,z,l) + log p(l|z)] - KL[q(z|x,y) || p(z|x)]        (equation 5)

with z of shape (S, Z), the source's end symbol counted. Targets have an end symbol, so that l = |y| + 1 positions are
compared with S = |x| + 1; a position of an output that puts out an end symbol stays empty. The length is a function of
z (and of x, with `length_reads: states`): so that moving the latents moves the length too.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.decoding.candidates import kept_symbols
from workflow_src.families.lanmt import LanmtConfig
from workflow_src.nn.layers import Memory, Stack, attention_bias, dropout, initialise
from workflow_src.nn.length import MOST_PROBABLE, LatentLengthHead, LengthChoice
from workflow_src.nn.source_latents import LengthTransformation, SourceLatentModel, SourceLatents
from workflow_src.nn.widths import beside, places
from workflow_src.types import EOS, PAD, wide, with_end


class SourceLatentVariableModel(SourceLatentModel):
    """p(z|x), q(z|x,y), p(l|z) and p(y|x,z,l)."""

    latents: SourceLatents
    # Position of the end symbol.
    extra_positions = 1
    places = {
        "encoder.": ("encoder.", "latents.target_encoder."),
        "decoder.": ("decoder.", "latents.source_decoder."),
    }

    def __init__(self, config: LanmtConfig, source_size: int, target_size: int, joint: bool):
        super().__init__(config, source_size, target_size, joint, barred=range(EOS))
        self.latents = SourceLatents(config, config.latent_dim, config.posterior_layers)
        longest = config.max_positions - self.extra_positions
        projection = self.latents.projection if config.length_reads == "states" else None
        self.length = LatentLengthHead(config.latent_dim, config.max_length_difference, longest, projection)
        self.transformation = LengthTransformation(first_position=config.first_position)
        self.decoder = Stack(config, config.layers, cross=True, skip=config.decoder_skip)
        self.length_embedding: nn.Embedding | None = None
        if config.decoder_input == "scaled":
            self.length_embedding = nn.Embedding(config.max_positions + 1, config.dim)
            nn.init.xavier_uniform_(self.length_embedding.weight)
        initialise(self)
        self.latents.scale_heads(config.head_scale)

    # 1. The decoder over latents of the target's length.

    def hidden(self, memory: Memory, z: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Last decoder states (B, T+1, D) for latents (B, S, Z) and numbers of positions (B,): those of an output's
        words and its end. Also the mask (B, T+1)."""
        codes = self.target_embedding.positions
        _, mask = places(positions, codes.size(0), memory)
        width, positions = mask.size(1), beside(positions, memory)
        inputs = self.latents.projected(self.transformation(z, memory.mask, positions, width))
        if self.length_embedding is None:
            inputs = inputs + codes[:width]
        else:
            lengths = self.length_embedding(positions.clamp(max=codes.size(0)))[:, None]
            inputs = math.sqrt(0.5) * inputs + 0.5 * codes[:width] + 0.5 * lengths
        inputs = dropout(inputs, self.config.dropout, self.training)
        return self.decoder(inputs, attention_bias(mask), memory), mask

    def read(
        self, memory: Memory, z: Tensor, _mask: Tensor, choice: LengthChoice = MOST_PROBABLE, scored: bool = False
    ) -> tuple[Tensor, Tensor]:
        lengths = self.length.predict(memory, choice, z)
        hidden, mask = self.hidden(memory, z, lengths + self.extra_positions)
        return self.read_symbols(self.logits(hidden), mask, scored)

    def output(self, symbols: Tensor, mask: Tensor) -> Tensor:
        """The words of symbols (B, T+1) at the positions of `mask`, (B, T+1), padded: end symbols are dropped."""
        return kept_symbols(symbols, mask & (symbols != EOS))

    def log_likelihood(self, memory: Memory, z: Tensor, target: Tensor) -> Tensor:
        """log p(y|x,z,l) + log p(l|z), (B,) nats, of target (B, T), padded; its end symbol is counted."""
        labels, lengths = with_end(target), (target != PAD).sum(1)
        hidden, mask = self.hidden(memory, z, lengths + self.extra_positions)
        scores = wide(F.linear(hidden, self.target_embedding.weight, self.output_bias)).log_softmax(-1)
        words = (scores.gather(-1, labels[:, : mask.size(1), None])[..., 0] * mask).sum(1)
        classes = self.length.classes(memory, lengths)
        return words + wide(self.length(memory, z)).log_softmax(-1).gather(1, classes[:, None])[:, 0]
