"""The fully non-autoregressive model (Gu & Kong 2021): source states, upsampled to slots, through one parallel decoder.

Every slot puts out a subword or the blank; equal neighbours merge, blanks go (`decoding/ctc.py`). The output's length
follows from that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.decoding.passes import largest
from workflow_src.families.nat import NatConfig
from workflow_src.nn.layers import Embedding, Memory, Stack, attention_bias, initialise
from workflow_src.types import EOS, PAD


class NonAutoregressiveModel(nn.Module):
    """The blank is the last id of the target vocabulary, whose size counts it."""

    def __init__(self, config: NatConfig, source_size: int, target_size: int, joint: bool):
        super().__init__()
        self.config = config
        self.blank = target_size - 1
        self.source_embedding = Embedding(source_size, config)
        self.target_embedding = self.source_embedding if joint else Embedding(target_size, config)
        self.encoder = Stack(config, config.encoder_layers, cross=False)
        self.decoder = Stack(config, config.layers, cross=True)
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        initialise(self)

    def encode(self, source: Tensor) -> Memory:
        """Source (B, S) -> states (B, S, D) for the slots and the decoder."""
        mask = source != PAD
        bias = attention_bias(mask)
        return Memory(self.encoder(self.source_embedding(source), bias), mask, bias)

    def slots(self, memory: Memory) -> Tensor:
        """Slots of each sentence, (B,) int64: `upsample` times the source's subwords, rounded up, the end counted.

        Never more than the model has positions; a source that fills them has as many slots as subwords.
        """
        lengths = memory.mask.sum(1)
        return (lengths * self.config.upsample).ceil().long().clamp(max=self.source_embedding.positions.size(0))

    def hidden(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Last decoder states (B, N, D) and the mask (B, N) of real slots."""
        slots = self.slots(memory)
        width = largest(slots, self.source_embedding.positions.size(0))
        place = torch.arange(width, device=slots.device)
        mask = place < slots[:, None]
        inputs = self.copied(memory, slots, place) + self.source_embedding.positions[:width]
        return self.decoder(inputs, attention_bias(mask), memory), mask

    def copied(self, memory: Memory, slots: Tensor, place: Tensor) -> Tensor:
        """The source states that slots begin with, (B, N, D), from slots (B,) and places (N,) in a sentence."""
        lengths = memory.mask.sum(1)
        if self.config.copy_source == "uniform":
            # Slot n of N reads state floor(n S / N); padded slots read the last, and are masked later.
            source = (place * lengths[:, None] // slots[:, None]).clamp(max=memory.states.size(1) - 1)
            return memory.states.gather(1, source[..., None].expand(-1, -1, memory.states.size(2)))
        # The middle of slot n in source positions (Wei et al. 2019 for the weights).
        centre = (place + 0.5) * (lengths / slots)[:, None] - 0.5
        distance = (centre[..., None] - torch.arange(memory.states.size(1), device=slots.device)).abs()
        scores = (-distance / self.config.copy_temperature).masked_fill(~memory.mask[:, None], float("-inf"))
        return scores.softmax(-1).to(memory.states.dtype) @ memory.states

    def logits(self, hidden: Tensor, blank_penalty: float = 0.0) -> Tensor:
        """Scores over what may be put out, vocabulary and blank, (..., D) -> (..., V).

        Padding, start and end symbols get -inf; `blank_penalty` is taken off the blank's.
        """
        # Added to the bias, which is small, and not to the logits.
        changes = torch.zeros_like(self.output_bias)
        changes[: EOS + 1], changes[self.blank] = float("-inf"), -blank_penalty
        return F.linear(hidden, self.target_embedding.weight, self.output_bias + changes)

