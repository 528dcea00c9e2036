"""Mask-predict (Ghazvininejad et al. 2019, section 3): the least confident subwords are masked and predicted again.

In the first of T passes all N subwords of an output are masked. Before pass t = 1 … T-1, the floor(N (T - t) / T)
subwords with the lowest probability are masked again; other subwords keep their probability from earlier passes. The
most probable lengths are decoded side by side; outputs are ranked by the log-probability of their subwords in the
passes that predicted them, divided by their number ** `length_penalty` (the mean, by default), or by a rescorer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.nn.layers import Memory
from workflow_src.nn.models import MaskedModel
from workflow_src.types import PAD, wide


class MaskPredict(SearchModule):
    def forward(self, source: Tensor, lengths: Tensor | None = None, watch: Watch | None = None) -> tuple[Tensor, ...]:
        model: MaskedModel = self.model
        memory, choice = self.encode(source), self.choice(lengths)
        if self.width == 1:
            lengths = model.length.predict(memory, choice)
        else:
            # The decoder reads the rows of a sentence side by side.
            lengths = model.length.likely(memory, self.width, choice.lengthening).flatten()
        iterations = self.settings.iterations
        hidden, mask = model.hidden(memory, lengths)
        symbols = torch.where(mask, model.mask_symbol, PAD)
        symbols, chances = _predicted(model, memory, hidden, mask, symbols, wide(hidden.new_zeros(mask.shape)))
        for passes in range(1, iterations):
            if watch:
                watch(model.output(symbols, mask))
            masked = least_confident(chances, mask, masked_again(lengths, passes, iterations))
            # Short outputs have nothing to mask in the last passes. A graph is wider than its outputs.
            if memory.fixed or mask.size(1) * (iterations - passes) // iterations:
                hidden = model.states(memory, torch.where(masked, model.mask_symbol, symbols), mask)
                symbols, chances = _predicted(model, memory, hidden, masked, symbols, chances)
        outputs = model.output(symbols, mask)
        if watch:
            watch(outputs)
        return outputs, mean_chance(chances, mask)


def masked_again(lengths: Tensor, passes: int, iterations: int) -> Tensor:
    """Number of subwords that are masked after `passes` passes, (C,): floor(N (T - t) / T)."""
    return lengths * (iterations - passes) // iterations


def least_confident(chances: Tensor, mask: Tensor, count: Tensor) -> Tensor:
    """A mask (C, N) of the `count` (C,) positions with the lowest chances (C, N); of equal ones, the first."""
    # By comparing pairs: ONNX has no stable sort, and outputs are short.
    chances = chances.masked_fill(~mask, float("inf"))
    place = torch.arange(chances.size(1), device=chances.device)
    chance, other_chance = chances[:, :, None], chances[:, None, :]
    precedes = (other_chance < chance) | ((other_chance == chance) & (place < place[:, None]))
    return (precedes.sum(-1) < count[:, None]) & mask


def mean_chance(chances: Tensor, mask: Tensor) -> Tensor:
    """Mean log-probability of the subwords of an output, (C,), from chances (C, N) at the places of mask (C, N)."""
    return (chances * mask).sum(1) / mask.sum(1)


def _predicted(
    model: MaskedModel, memory: Memory, hidden: Tensor, places: Tensor, symbols: Tensor, chances: Tensor
) -> tuple[Tensor, Tensor]:
    """Symbols and their log-probabilities (C, N), predicted from states (C, N, D) at `places` (C, N)."""
    if memory.fixed:
        # A graph has one shape for all passes.
        chance, best = _best(model, hidden)
        return torch.where(places, best, symbols), torch.where(places, chance, chances)
    # The product with the vocabulary is the largest: it is computed at predicted places only.
    chance, best = _best(model, hidden[places])
    return symbols.masked_scatter(places, best), chances.masked_scatter(places, chance)


def _best(model: MaskedModel, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability (...,) and id (...,) of the most probable subword of states (..., D)."""
    logits = wide(model.logits(hidden))
    best, symbols = logits.max(-1)
    return best - logits.logsumexp(-1), symbols
