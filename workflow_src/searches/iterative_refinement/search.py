"""y^1 = argmax p(y|x), y^l = argmax p(y | y^(l-1), x) (Lee, Mansimov & Cho 2018): a number of passes, or until the
output repeats.

A model guesses all words at once at the likeliest lengths; each later pass reads the last guess and the model's states,
and makes another guess. A guess has the most probable word of each position.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.candidates import likely_lengths
from workflow_src.decoding.search import SearchModule, State, Watch, run_steps
from workflow_src.nn.layers import Memory
from workflow_src.nn.models import IterativeModel
from workflow_src.types import Networks


class IterativeRefinement(SearchModule):
    """With `stop: adaptive`, a sentence stops after `patience` passes in a row that repeat the output before them."""

    def __init__(self, networks: Networks, settings: Any, scored: bool = True):
        super().__init__(networks, settings, scored)
        self.steps = settings.passes

    def forward(self, source: Tensor, lengths: Tensor | None = None, watch: Watch | None = None) -> tuple[Tensor, ...]:
        model: IterativeModel = self.model
        passes, adaptive = self.settings.passes, self.settings.stop == "adaptive"
        memory, lengths = likely_lengths(model, self.encode(source), self.width, self.choice(lengths))
        hidden, mask = model.hidden(memory, lengths)

        def read(number: int, hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            scored = self.ranks and (adaptive or number == passes)
            return model.read_symbols(model.logits(hidden), mask, scored)

        def advance(number: int, state: State, memory: Memory, mask: Tensor) -> State:
            guess, _, hidden, repeated = state
            hidden = model.refine(memory, guess, hidden, mask)
            outputs, scores = read(number + 1, hidden, mask)
            if adaptive:
                repeated = torch.where((outputs == guess).all(1), repeated + 1, 0)
            return outputs, scores, hidden, repeated

        def stopped(_before: State, after: State, _mask: Tensor) -> Tensor:
            return after[3] >= self.settings.patience

        state = *read(1, hidden, mask), hidden, torch.zeros_like(lengths)
        show = None if watch is None else lambda state: watch(state[0])
        (outputs, scores, *_), counts = run_steps(
            state, advance, passes - 1, memory, mask, stopped if adaptive else None, show
        )
        return (outputs, scores) if counts is None else (outputs, scores, counts + 1)
