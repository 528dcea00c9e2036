"""The best symbol of every position, at the most probable lengths (Gu et al. 2018; Ghazvininejad et al. 2020 for axe).

Lengths and the copy of the source are those of the model; outputs of several lengths are ranked by a rescorer, or by
the log-probability of their symbols, divided by their number ** `length_penalty`: the mean, by default.
"""

from __future__ import annotations

from torch import Tensor

from workflow_src.decoding.candidates import likely_lengths
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.nn.models import OnePassModel


class Argmax(SearchModule):
    def forward(self, source: Tensor, lengths: Tensor | None = None, _watch: Watch | None = None) -> tuple[Tensor, ...]:
        model: OnePassModel = self.model
        memory, lengths = likely_lengths(model, self.encode(source), self.width, self.choice(lengths))
        hidden, mask = model.hidden(memory, lengths)
        return model.read_symbols(model.logits(hidden), mask, self.ranks)
