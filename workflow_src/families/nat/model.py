"""The fully non-autoregressive model (Gu & Kong 2021): source states, copied to slots, through one parallel decoder.

With `loss: ctc` there are more slots than the output has subwords. Every slot puts out a subword or the blank; equal
neighbours merge and blanks are dropped (`decoding/ctc.py`), which also gives the output's length. With `axe` and `ce`,
a length head predicts the number of slots, one for each subword; with `axe`, some may put out the blank.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from workflow_src.decoding.candidates import kept_symbols
from workflow_src.families.nat import NatConfig
from workflow_src.losses.ctc_scores import SlotStates, output_log_probability, slot_states
from workflow_src.nn.copying import soft_centres, soft_copy, with_shown
from workflow_src.nn.layers import Memory, Stack, attention_bias, initialise
from workflow_src.nn.length import MOST_PROBABLE, LengthChoice, LengthHead
from workflow_src.nn.models import AlignedModel, Scorer
from workflow_src.nn.source_latents import SourceLatentModel, SourceLatents
from workflow_src.nn.widths import beside, multiplied, places, ratio_of
from workflow_src.types import EOS


class NonAutoregressiveModel(SourceLatentModel, AlignedModel, Scorer):
    """The blank is the last id of the target vocabulary, whose size counts it.

    With `loss: ctc` it predicts no length.
    """

    def __init__(self, config: NatConfig, source_size: int, target_size: int, joint: bool):
        blank = target_size - 1
        # Without alignments every slot is a subword.
        barred = (*range(EOS + 1), blank) if config.loss == "ce" else range(EOS + 1)
        super().__init__(config, source_size, target_size, joint, barred)
        self.blank = blank
        self.decoder = Stack(config, config.layers, cross=True)
        self.slots_per_subword = ratio_of(config.upsample)
        self.length: LengthHead | None = None
        if config.loss != "ctc":
            self.length = LengthHead(config.dim, config.max_length_difference, config.max_positions)
        self.latents = None
        if config.latent == "vae":
            self.latents = SourceLatents(config, config.latent_dim, config.posterior_layers)
        initialise(self)
        if self.latents is not None:
            self.latents.scale_heads(config.head_scale)

    # 1. The number of slots, and their inputs.

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
        return multiplied(lengths, self.slots_per_subword).clamp(max=self.source_embedding.positions.size(0))

    def most_slots(self, width: int) -> int | None:
        """The most slots of sources (B, width); None where the model predicts lengths."""
        if self.length is not None:
            return None
        return min(multiplied(width, self.slots_per_subword), self.source_embedding.positions.size(0))

    def copied(self, memory: Memory, slots: Tensor, indices: Tensor) -> Tensor:
        """The source states that slots begin with, (B, N, D), from slots (B,) and their indices (N,)."""
        if self.config.copy_source == "soft":
            return soft_copy(memory, slots, indices)
        # Padded slots read the last state, and are masked later.
        source = self.slot_origins(memory.mask.sum(1), slots, indices).clamp(max=memory.states.size(1) - 1)
        return memory.states.gather(1, source[..., None].expand(-1, -1, memory.states.size(2)))

    def slot_origins(self, lengths: Tensor, slots: Tensor, indices: Tensor) -> Tensor:
        """The source position (B, N) that each slot begins with: slots with indices (N,), sources of lengths (B,).

        Slot n of N reads state floor(n S / N); a soft copy is centred on the nearest to (n + 1/2) S / N - 1/2.
        """
        if self.config.copy_source == "soft":
            return soft_centres(lengths, slots, indices)
        return indices * lengths[:, None] // slots[:, None]

    # 2. The decoder over the slots.

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
            memory = self.latents.added(memory, self.latents.prior(memory)[0] if z is None else z)
        codes = self.source_embedding.positions
        indices, mask = places(slots, codes.size(0), memory, self.most_slots(memory.mask.size(1)))
        inputs = self.copied(memory, beside(slots, memory), indices)
        inputs = with_shown(inputs, shown, self.target_embedding) + codes[: indices.size(0)]
        return self.decoder(inputs, attention_bias(mask), memory), mask

    def read(
        self, memory: Memory, z: Tensor, _mask: Tensor, _choice: LengthChoice = MOST_PROBABLE, scored: bool = False
    ) -> tuple[Tensor, Tensor]:
        hidden, mask = self.hidden(memory, z=z)
        return self.read_symbols(self.logits(hidden), mask, scored)

    # 3. Symbols.

    def symbol_bias(self, blank_penalty: float = 0.0) -> Tensor:
        """The output bias (V,) with -inf for barred symbols; `blank_penalty` is taken off the blank's."""
        bias = super().symbol_bias()
        if blank_penalty:
            bias[self.blank : self.blank + 1] -= blank_penalty
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
