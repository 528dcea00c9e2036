"""The conditional masked language model (Ghazvininejad et al. 2019): p(masked subwords | the others, x), in one pass.

The decoder is that of a Transformer without its causal mask. Positions of a target hold subwords or the mask symbol,
and the output distribution of every position depends on all of them. A length head predicts the number of positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.decoding.passes import places
from workflow_src.families.cmlm import CmlmConfig
from workflow_src.nn.layers import Embedding, Memory, Stack, attention_bias, barred, initialise
from workflow_src.nn.length import LengthHead
from workflow_src.types import EOS, PAD


class MaskedLanguageModel(nn.Module):
    """The mask is the last id of the target vocabulary, whose size counts it (`types.MaskedModel`)."""

    def __init__(self, config: CmlmConfig, source_size: int, target_size: int, joint: bool):
        super().__init__()
        self.config = config
        self.mask_symbol = target_size - 1
        self.source_embedding = Embedding(source_size, config)
        self.target_embedding = self.source_embedding if joint else Embedding(target_size, config)
        self.encoder = Stack(config, config.encoder_layers, cross=False)
        self.decoder = Stack(config, config.layers, cross=True)
        self.length = LengthHead(
            config.dim, config.max_length_difference, config.max_positions, pooling=config.length_pooling
        )
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        initialise(self)

    # 1. The source.

    def encode(self, source: Tensor) -> Memory:
        """Source (B, S) -> states (B, S, D) for the decoder and the length head."""
        mask = source != PAD
        bias = attention_bias(mask)
        return Memory(self.encoder(self.source_embedding(source), bias), mask, bias)

    # 2. The decoder over a target with masked places.

    def states(self, memory: Memory, target: Tensor, mask: Tensor) -> Tensor:
        """Last decoder states (C, N, D) of target (C, N), some of it the mask symbol, at the positions of mask (C, N).

        C is the B of the memory, or a multiple: the rows of a sentence then stand side by side, as many for each.
        """
        return self.decoder(self.target_embedding(target), attention_bias(mask), memory)

    def hidden(self, memory: Memory, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """`states` (C, N, D) where every subword of targets of these lengths (C,) is masked, and their mask (C, N)."""
        _, mask = places(lengths, self.target_embedding.positions.size(0))
        return self.states(memory, torch.where(mask, self.mask_symbol, PAD), mask), mask

    # 3. Subwords.

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores over the whole vocabulary, as they are trained, (..., D) -> (..., V)."""
        return F.linear(hidden, self.target_embedding.weight, self.output_bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, (..., D) -> (..., V): -inf for padding, start and end symbols and the mask."""
        bias = barred(self.output_bias, EOS + 1, self.mask_symbol)
        return F.linear(hidden, self.target_embedding.weight, bias)

    def output(self, symbols: Tensor, mask: Tensor) -> Tensor:
        """The outputs (C, N), padded, of symbols (C, N) at the positions of mask (C, N): each symbol is a subword."""
        return torch.where(mask, symbols, PAD)
