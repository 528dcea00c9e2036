"""Two non-causal decoders over one encoder (Lee, Mansimov & Cho 2018).

The first reads source embeddings, copied to as many positions as the output has, and guesses all words at once. The
second reads the embeddings of a guess, plus the last states of the decoder that made it, and guesses again; the same
second decoder serves every later pass. No gradient goes from a pass to the one before: those states are constants.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.decoding.passes import places
from workflow_src.families.inat import InatConfig
from workflow_src.nn.layers import Embedding, Memory, Stack, attention_bias, barred, dropout, initialise
from workflow_src.nn.length import LengthHead
from workflow_src.nn.weights import copy_matching
from workflow_src.registry import families
from workflow_src.types import EOS, PAD


@dataclasses.dataclass(frozen=True)
class CopiedMemory(Memory):
    """Source states, and the source's ids (B, S), whose embeddings are copied."""

    source: Tensor

    def select(self, rows: Tensor) -> CopiedMemory:
        chosen = super().select(rows)
        return CopiedMemory(chosen.states, chosen.mask, chosen.bias, self.source.index_select(0, rows))


class IterativeModel(nn.Module):
    """p(y^1|x) of the first decoder, and p(y^l | y^(l-1), x) of the second, at a length that a head predicts."""

    def __init__(self, config: InatConfig, source_size: int, target_size: int, joint: bool):
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(source_size, config)
        self.target_embedding = self.source_embedding if joint else Embedding(target_size, config)
        self.encoder = Stack(config, config.encoder_layers, cross=False)
        self.decoder = Stack(config, config.layers, cross=True)
        self.refiner = Stack(config, config.layers, cross=True)
        self.length = LengthHead(config.dim, config.max_length_difference, config.max_positions)
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        initialise(self)

    # 1. The source.

    def encode(self, source: Tensor) -> CopiedMemory:
        """Source (B, S) -> states (B, S, D) for both decoders and the length head."""
        mask = source != PAD
        bias = attention_bias(mask)
        return CopiedMemory(self.encoder(self.source_embedding(source), bias), mask, bias, source)

    # 2. The first decoder: p(y^1|x).

    def copied(self, memory: CopiedMemory, lengths: Tensor, positions: Tensor) -> Tensor:
        """The source's ids that positions begin with, (B, N), from output lengths (B,) and positions (N,).

        Position n of N copies word floor(n |x| / N): words in order, each as often as the next, the end symbol never.
        """
        words = (memory.mask.sum(1, keepdim=True) - 1).clamp(min=1)
        # Positions beyond an output copy its last word, and are masked.
        return memory.source.gather(1, torch.minimum(positions * words // lengths[:, None], words - 1))

    def hidden(self, memory: CopiedMemory, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The first pass: states (B, N, D) of the first decoder, and the mask (B, N) of outputs of lengths (B,)."""
        codes, table = self.target_embedding.positions, self.source_embedding
        indices, mask = places(lengths, codes.size(0))
        inputs = (
            F.embedding(self.copied(memory, lengths, indices), table.weight) * table.scale + codes[: indices.size(0)]
        )
        inputs = dropout(inputs, self.config.dropout, self.training)
        return self.decoder(inputs, attention_bias(mask), memory), mask

    # 3. The second decoder: p(y^l | y^(l-1), x).

    def refine(self, memory: CopiedMemory, guess: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        """A later pass: states (B, N, D) of the second decoder.

        It reads a guess (B, N) at the positions of mask (B, N), and the states (B, N, D) of the pass that made it.
        """
        inputs = self.target_embedding(guess)
        if self.config.carry_states:
            inputs = inputs + hidden.detach()
        return self.refiner(inputs, attention_bias(mask), memory)

    # 4. Words.

    def symbol_bias(self) -> Tensor:
        """The output bias (V,) with -inf for padding, start and end symbols, which are no words."""
        return barred(self.output_bias, EOS + 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, (..., D) -> (..., V): -inf for padding, start and end symbols."""
        return F.linear(hidden, self.target_embedding.weight, self.symbol_bias())

    def output(self, symbols: Tensor, mask: Tensor) -> Tensor:
        """The outputs (B, N), padded, of symbols (B, N) at the positions of mask (B, N): each symbol is a subword."""
        return symbols.masked_fill(~mask, PAD)


def start(
    model: IterativeModel, tensors: dict[str, Tensor] | None, family: str | None, _base: nn.Module | None
) -> list[str] | None:
    """Start from weights where names and shapes agree; returns the names of the parameters that were set.

    Both decoders begin as the decoder of weights that have only one, such as a teacher's.
    """
    if tensors is None:
        return None
    refiner = {name.replace("decoder.", "refiner.", 1): x for name, x in tensors.items() if name.startswith("decoder.")}
    declared = families().get(family or "")
    symbols = declared.symbols if declared else None
    return copy_matching(model, refiner | tensors, symbols)
