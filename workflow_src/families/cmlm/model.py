"""The conditional masked language model (Ghazvininejad et al. 2019): p(masked subwords | the others, x), in one pass.

The decoder is that of a Transformer without its causal mask. Positions of a target hold subwords or the mask symbol,
and the output distribution of every position depends on all of them. A length head predicts the number of positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.families.cmlm import CmlmConfig
from workflow_src.nn.layers import Memory, Stack, attention_bias, initialise
from workflow_src.nn.length import LengthHead
from workflow_src.nn.models import EncoderDecoder, MaskedModel
from workflow_src.nn.widths import places
from workflow_src.types import EOS, PAD


class MaskedLanguageModel(EncoderDecoder, MaskedModel):
    """The mask is the last id of the target vocabulary, whose size counts it."""

    def __init__(self, config: CmlmConfig, source_size: int, target_size: int, joint: bool):
        # Padding, start and end symbols and the mask are no outputs. They are in the normaliser of the loss.
        super().__init__(config, source_size, target_size, joint, barred=(*range(EOS + 1), target_size - 1))
        self.mask_symbol = target_size - 1
        self.decoder = Stack(config, config.layers, cross=True)
        self.length = LengthHead(
            config.dim, config.max_length_difference, config.max_positions, pooling=config.length_pooling
        )
        initialise(self)

    def states(self, memory: Memory, target: Tensor, mask: Tensor) -> Tensor:
        return self.decoder(self.target_embedding(target), attention_bias(mask), memory)

    def hidden(self, memory: Memory, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """`states` (C, N, D) where every subword of targets of these lengths (C,) is masked, and their mask (C, N)."""
        _, mask = places(lengths, self.target_embedding.positions.size(0), memory)
        return self.states(memory, torch.where(mask, self.mask_symbol, PAD), mask), mask
