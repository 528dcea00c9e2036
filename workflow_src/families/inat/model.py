"""Two non-causal decoders over one encoder (Lee, Mansimov & Cho 2018).

The first reads source embeddings, copied to as many positions as the output has, and guesses all words at once. The
second reads the embeddings of a guess, plus the last states of the decoder that made it, and guesses again; the same
second decoder serves every later pass. No gradient goes from a pass to the one before: those states are constants.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.inat import InatConfig
from workflow_src.nn.layers import Memory, Stack, attention_bias, dropout, initialise
from workflow_src.nn.length import LengthHead
from workflow_src.nn.models import EncoderDecoder, IterativeModel
from workflow_src.nn.weights import copy_matching, symbols_of
from workflow_src.nn.widths import beside, places
from workflow_src.types import EOS


class IterativeRefinementModel(EncoderDecoder, IterativeModel):
    """p(y^1|x) of the first decoder, and p(y^l | y^(l-1), x) of the second, at a length that a head predicts."""

    def __init__(self, config: InatConfig, source_size: int, target_size: int, joint: bool):
        # Padding, start and end symbols are no words.
        super().__init__(config, source_size, target_size, joint, barred=range(EOS + 1))
        self.decoder = Stack(config, config.layers, cross=True)
        self.refiner = Stack(config, config.layers, cross=True)
        self.length = LengthHead(config.dim, config.max_length_difference, config.max_positions)
        initialise(self)

    # 1. The first decoder: p(y^1|x).

    def copied(self, memory: Memory, lengths: Tensor, positions: Tensor) -> Tensor:
        """The source's ids that positions begin with, (B, N), from output lengths (B,) and positions (N,).

        Position n of N copies word floor(n |x| / N): words in order, each as often as the next, the end symbol never.
        """
        words = (memory.mask.sum(1, keepdim=True) - 1).clamp(min=1)
        # Positions beyond an output copy its last word, and are masked.
        return memory.tokens.gather(1, torch.minimum(positions * words // lengths[:, None], words - 1))

    def hidden(self, memory: Memory, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The first pass: states (B, N, D) of the first decoder, and the mask (B, N) of outputs of lengths (B,)."""
        codes, table = self.target_embedding.positions, self.source_embedding
        indices, mask = places(lengths, codes.size(0), memory)
        ids = self.copied(memory, beside(lengths, memory), indices)
        inputs = F.embedding(ids, table.weight) * table.scale + codes[: indices.size(0)]
        inputs = dropout(inputs, self.config.dropout, self.training)
        return self.decoder(inputs, attention_bias(mask), memory), mask

    # 2. The second decoder: p(y^l | y^(l-1), x).

    def refine(self, memory: Memory, guess: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        inputs = self.target_embedding(guess)
        if self.config.carry_states:
            inputs = inputs + hidden.detach()
        return self.refiner(inputs, attention_bias(mask), memory)


def start(
    model: IterativeRefinementModel, tensors: dict[str, Tensor] | None, family: str | None, _base: nn.Module | None
) -> list[str] | None:
    """Start from weights where names and shapes agree; returns the names of the parameters that were set.

    Both decoders begin as the decoder of weights that have only one, such as a teacher's.
    """
    if tensors is None:
        return None
    refiner = {name.replace("decoder.", "refiner.", 1): x for name, x in tensors.items() if name.startswith("decoder.")}
    return copy_matching(model, refiner | tensors, symbols_of(family))
