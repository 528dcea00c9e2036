"""Greedy decoding of latent alignments (Graves et al. 2006, best path decoding)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.ctc import collapse, slot_logits
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.losses.ctc_origins import source_positions
from workflow_src.nn.models import mean_gains
from workflow_src.runtime.device import on_cpu
from workflow_src.types import PAD, Hypotheses


class CtcGreedy(SearchModule):
    """`forward` returns the best symbol of every slot (B, N), and their mean log-probability."""

    outputs = ("symbols", "scores")

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        logits, mask = slot_logits(self.model, self.encode(source), self.settings.blank_penalty)
        symbols = torch.where(mask, logits.argmax(-1), PAD)
        return symbols, mean_gains(logits, mask) if self.scored else logits.new_zeros(logits.size(0))

    def hypotheses(self, _source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        symbols, scores = on_cpu(*outputs)
        return Hypotheses([collapse(row, self.model.blank) for row in unpadded(symbols)], scores.tolist())

    @torch.no_grad()
    def origins(self, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """The source position that each subword of outputs of source (B, S) was read off."""
        logits, mask = slot_logits(self.model, self.encode(source), self.settings.blank_penalty)
        return source_positions(self.model, source, logits, mask.sum(1), outputs)
