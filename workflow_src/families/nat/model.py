"""The fully non-autoregressive model (Gu & Kong 2021): source states, copied to slots, through one parallel decoder.

With `loss: ctc` there are more slots than the output has subwords. Every slot puts out a subword or the blank; equal
neighbours merge and blanks are dropped (`decoding/ctc.py`), which also gives the output's length. With `axe` and `ce`,
a length head predicts the number of slots, one for each subword; with `axe`, some may put out the blank.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.decoding.candidates import kept_symbols
from workflow_src.decoding.passes import places
from workflow_src.families.nat import NOT_SHOWN, NatConfig
from workflow_src.losses.ctc_scores import SlotStates, output_log_probability, slot_states
from workflow_src.nn.copying import soft_copy
from workflow_src.nn.layers import Embedding, Memory, Stack, attention_bias, barred, initialise
from workflow_src.nn.length import LengthHead
from workflow_src.nn.source_latents import LatentMemory, SourceLatents
from workflow_src.types import EOS, PAD, with_end


class NonAutoregressiveModel(nn.Module):
    """The blank is the last id of the target vocabulary, whose size counts it."""

    # Latents are those of source positions (`types.SourceLatentModel`).
    source_latents = True

    def __init__(self, config: NatConfig, source_size: int, target_size: int, joint: bool):
        super().__init__()
        self.config = config
        self.blank = target_size - 1
        self.source_embedding = Embedding(source_size, config)
        self.target_embedding = self.source_embedding if joint else Embedding(target_size, config)
        self.encoder = Stack(config, config.encoder_layers, cross=False)
        self.decoder = Stack(config, config.layers, cross=True)
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        self.length: LengthHead | None = None
        if config.loss != "ctc":
            self.length = LengthHead(config.dim, config.max_length_difference, config.max_positions)
        self.latents: SourceLatents | None = None
        if config.latent == "vae":
            self.latents = SourceLatents(config, config.latent_dim, config.posterior_layers)
        initialise(self)
        if self.latents is not None:
            self.latents.scale_heads(config.head_scale)

    # 1. The source, and latents at its positions.

    def encode(self, source: Tensor) -> Memory:
        """Source (B, S) -> states (B, S, D) for the slots and the decoder."""
        mask = source != PAD
        bias = attention_bias(mask)
        embedded = self.source_embedding(source)
        states = self.encoder(embedded, bias)
        return Memory(states, mask, bias) if self.latents is None else LatentMemory(states, mask, bias, embedded)

    def prior(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), (B, S, Z) each."""
        assert self.latents is not None, "searches of latents are refused without (`lacks`)"
        return self.latents.prior(memory)

    def posterior(self, memory: Memory, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|x,y), (B, S, Z) each, for target (B, T), padded."""
        assert self.latents is not None and isinstance(memory, LatentMemory), "see `prior`"
        # An end symbol, so that there is something to attend to where an output is empty.
        target = with_end(target[:, : self.target_embedding.positions.size(0) - 1])
        return self.latents.posterior(memory, self.target_embedding(target), target != PAD)

    # 2. The number of slots, and their inputs.

    def slots(self, memory: Memory) -> Tensor:
        """Slots of each sentence, (B,) int64: `upsample` times the source's subwords, rounded up, the end counted.

        Never more than the model has positions; a source that fills them has as many slots as subwords. A model that
        predicts lengths has as many slots as the most probable length.
        """
        if self.length is not None:
            return self.length.predict(memory)
        return self.slots_of(memory.mask.sum(1))

    def slots_of(self, lengths: Tensor) -> Tensor:
        """Slots (B,) of sources of lengths (B,), where the model predicts none."""
        return (lengths * self.config.upsample).ceil().long().clamp(max=self.source_embedding.positions.size(0))

    def most_slots(self, width: int) -> int | None:
        """The most slots of sources (B, width); None where the model predicts lengths."""
        if self.length is not None:
            return None
        return min(math.ceil(width * self.config.upsample), self.source_embedding.positions.size(0))

    def copied(self, memory: Memory, slots: Tensor, indices: Tensor) -> Tensor:
        """The source states that slots begin with, (B, N, D), from slots (B,) and their indices (N,)."""
        if self.config.copy_source == "soft":
            return soft_copy(memory, slots, indices, self.config.copy_temperature)
        # Padded slots read the last state, and are masked later.
        source = self.slot_origins(memory.mask.sum(1), slots, indices).clamp(max=memory.states.size(1) - 1)
        return memory.states.gather(1, source[..., None].expand(-1, -1, memory.states.size(2)))

    def slot_origins(self, lengths: Tensor, slots: Tensor, indices: Tensor) -> Tensor:
        """The source position (B, N) that each slot begins with: slots with indices (N,), sources of lengths (B,).

        Slot n of N reads state floor(n S / N); a soft copy is centred on the nearest to (n + 1/2) S / N - 1/2.
        """
        if self.config.copy_source == "soft":
            return (2 * indices + 1) * lengths[:, None] // (2 * slots[:, None])
        return indices * lengths[:, None] // slots[:, None]

    # 3. The decoder over the slots.

    def hidden(
        self,
        memory: Memory,
        slots: Tensor | None = None,
        z: Tensor | None = None,
        shown: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Last decoder states (B, N, D) and the mask (B, N) of real slots.

        `slots` (B,) replace those that the model counts or predicts, latents z (B, S, Z) the prior's mean. Slots of
        `shown` (B, N) that are not NOT_SHOWN begin with that symbol's embedding in place of source states.
        """
        slots = self.slots(memory) if slots is None else slots
        if self.latents is not None:
            memory = self.latents.added(memory, self.prior(memory)[0] if z is None else z)
        codes = self.source_embedding.positions
        indices, mask = places(slots, codes.size(0), self.most_slots(memory.mask.size(1)))
        inputs = self.copied(memory, slots, indices)
        if shown is not None:
            symbols = F.embedding(shown.clamp(min=0), self.target_embedding.weight) * self.target_embedding.scale
            inputs = torch.where((shown == NOT_SHOWN)[..., None], inputs, symbols.to(inputs.dtype))
        inputs = inputs + codes[: indices.size(0)]
        return self.decoder(inputs, attention_bias(mask), memory), mask

    def decode(self, memory: Memory, z: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, N, V) of p(y|z,x) at the slots, and the mask (B, N) of real ones."""
        hidden, mask = self.hidden(memory, z=z)
        return self.logits(hidden), mask

    # 4. Symbols.

    def symbol_bias(self, blank_penalty: float = 0.0) -> Tensor:
        """The output bias (V,) with -inf for barred symbols; `blank_penalty` is taken off the blank's."""
        if self.config.loss == "ce":
            # Without alignments every slot is a subword.
            return barred(self.output_bias, EOS + 1, self.blank)
        bias = barred(self.output_bias, EOS + 1)
        bias[self.blank] -= blank_penalty
        return bias

    def logits(self, hidden: Tensor, blank_penalty: float = 0.0) -> Tensor:
        """Scores over vocabulary and blank, (..., D) -> (..., V).

        Padding, start and end symbols get -inf; `blank_penalty` is taken off the blank's.
        """
        return F.linear(hidden, self.target_embedding.weight, self.symbol_bias(blank_penalty))

    def output(self, symbols: Tensor, mask: Tensor) -> Tensor:
        """The outputs (B, N), padded, of symbols (B, N) at the slots of `mask`."""
        keep = mask & (symbols != self.blank)
        if self.config.loss == "ctc":
            keep = keep & F.pad(symbols[:, 1:] != symbols[:, :-1], (1, 0), value=True)
        return kept_symbols(symbols, keep)

    def scoring_states(self, source: Tensor) -> SlotStates:
        """The states that outputs of source (B, S) are scored from: those of the whole pass."""
        return slot_states(self, source)

    def log_probability(self, states: SlotStates, target: Tensor) -> Tensor:
        """log p(y|x) of target (B, T), (B,), summed over alignments; -inf where there is none."""
        return output_log_probability(self, states, target)
