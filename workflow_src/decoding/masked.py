"""Mask-predict (Ghazvininejad et al. 2019, section 3): the least confident subwords are masked and predicted again.

In the first of T passes all N subwords of an output are masked. Before pass t = 1 … T-1, the floor(N (T - t) / T)
subwords with the lowest probability are masked again; other subwords keep their probability from earlier passes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.passes import fixed
from workflow_src.types import PAD, EncoderOutput, Hypotheses, MaskedModel, wide

# Called after a pass with the subwords (C, N) and the mask (C, N) of real positions.
Watch = Callable[[Tensor, Tensor], None]


def mask_predict(
    model: MaskedModel,
    memory: EncoderOutput,
    lengths: Tensor,
    iterations: int,
    after_pass: Watch | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Subwords (C, N) of outputs of lengths (C,), their log-probabilities (C, N) and the mask (C, N) of real positions.

    C is the B of the memory or a multiple (`MaskedModel.states`). `after_pass` is called after every pass.
    """
    hidden, mask = model.hidden(memory, lengths)
    symbols = torch.where(mask, model.mask_symbol, PAD)
    symbols, chances = _predicted(model, hidden, mask, symbols, wide(hidden.new_zeros(mask.shape)))
    if after_pass:
        after_pass(symbols, mask)
    for passes in range(1, iterations):
        masked = least_confident(chances, mask, masked_again(lengths, passes, iterations))
        # Short outputs have nothing to mask in the last passes. A graph is wider than its outputs.
        if fixed() or mask.size(1) * (iterations - passes) // iterations:
            hidden = model.states(memory, torch.where(masked, model.mask_symbol, symbols), mask)
            symbols, chances = _predicted(model, hidden, masked, symbols, chances)
        if after_pass:
            after_pass(symbols, mask)
    return symbols, chances, mask


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


def best_outputs(model: MaskedModel, source: Tensor, iterations: int) -> Hypotheses:
    """Outputs of the most probable lengths, without scores."""
    memory = model.encode(source)
    symbols, _, mask = mask_predict(model, memory, model.length.predict(memory), iterations)
    return Hypotheses(unpadded(model.output(symbols, mask)), [0.0] * len(source))


def _predicted(
    model: MaskedModel, hidden: Tensor, places: Tensor, symbols: Tensor, chances: Tensor
) -> tuple[Tensor, Tensor]:
    """Symbols and their log-probabilities (C, N), predicted from states (C, N, D) at `places` (C, N)."""
    if fixed():
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
