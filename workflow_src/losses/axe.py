"""Aligned cross-entropy (Ghazvininejad et al. 2020) in batched tensor code, for CPUs and GPUs.

Target tokens y_1 … y_T are aligned with predictions p_1 … p_N, in order. The loss is the cheapest alignment's:
    A(i, j) = min of  A(i-1, j-1) - log p_j(y_i)              align
                      A(i, j-1)   - log p_j(skip)             skip a prediction, which puts out the skip symbol
                      A(i-1, j)   - delta log p_j(y_i)        skip a target, which shares the prediction j
with A(0, 0) = 0 and, before the first prediction, targets that share the first one. The skip symbol is the family's
blank. Shapes as in `aligned.py`.

A row of A is one running minimum: with E_j the cost of skipping predictions 1 … j, A(i, j) is E_j plus the smallest
C(i, k) - E_k of k <= j, C the cheaper of the two other moves. The recursion needs one step for each target position.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.losses.aligned import Aligned, aligned_loss, own_symbols
from workflow_src.types import PAD, Cells

# Cost of a cell that no alignment reaches.
NEVER = 1e30
ALIGN, SKIP_PREDICTION, SKIP_TARGET = range(3)


def axe_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    target: Tensor,
    blank: int,
    skip_penalty: float,
    real: Cells | None = None,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The aligned cross-entropy in nats, (B,), summed over each target: with label smoothing, and without it and
    without a gradient.

    hidden (B, N, D) of predictions where mask (B, N) is True (the first of each sentence, at least one), output
    projection weight (V, D) and bias (V,), target (B, T) padded; `skip_penalty` is delta. `real` are the
    cells of the mask; without them, the CPU waits to read the mask.
    """
    lengths = (target != PAD).sum(1)

    def align(emissions: Tensor) -> Aligned:
        shares = cheapest(emissions, lengths, mask.sum(1), skip_penalty)
        losses = -(shares * emissions).sum((1, 2))
        return Aligned(losses, shares, torch.ones_like(lengths, dtype=torch.bool), normalised=False)

    return aligned_loss(hidden, weight, bias, mask, own_symbols(target, blank), align, real, smoothing)


def cheapest(emissions: Tensor, lengths: Tensor, predictions: Tensor, skip_penalty: float) -> Tensor:
    """How often the cheapest alignment counts each log-probability of own symbols (B, N, U), the skip symbol first.

    `lengths` (B,) of the targets and number of `predictions` (B,). Aligned tokens and skipped predictions count 1,
    skipped targets `skip_penalty`. The minimum is the cost of this
    alignment, so that the counts are its gradient, up to the sign.
    """
    moves = _moves(emissions, skip_penalty)
    B, N, U = emissions.shape
    counts = torch.zeros_like(emissions)
    sentences = torch.arange(B, device=emissions.device)
    i, j = lengths.clone(), predictions.clone()
    # Each move leads one target or one prediction back.
    for _ in range(U - 1 + N):
        unfinished = (i > 0) | (j > 0)
        move = moves[i, sentences, j]
        # Before the first prediction, targets share the first.
        slot = (j - 1).clamp(min=0)
        symbol = torch.where(move == SKIP_PREDICTION, 0, i)
        weight = torch.ones_like(counts[:, 0, 0]).masked_fill(move == SKIP_TARGET, skip_penalty)
        counts[sentences, slot, symbol] += weight * unfinished
        i = i - ((move != SKIP_PREDICTION) & unfinished).long()
        j = j - ((move != SKIP_TARGET) & unfinished).long()
    return counts


def _moves(emissions: Tensor, skip_penalty: float) -> Tensor:
    """The last move of the cheapest alignment of i targets with j predictions, (T + 1, B, N + 1)."""
    B, N, U = emissions.shape
    # Sums over many predictions are subtracted from each other.
    costs = -emissions.double()
    skip_costs = F.pad(costs[..., 0].cumsum(1), (1, 0))
    moves = torch.full((U, B, N + 1), SKIP_PREDICTION, dtype=torch.int64, device=emissions.device)
    row = skip_costs
    for i in range(1, U):
        target_costs = costs[..., i]
        aligned = F.pad(row[:, :-1] + target_costs, (1, 0), value=NEVER)
        shared = row + skip_penalty * torch.cat([target_costs[:, :1], target_costs], 1)
        entry_costs = torch.minimum(aligned, shared)
        entry_moves = torch.where(aligned <= shared, ALIGN, SKIP_TARGET)
        lowest, origin = (entry_costs - skip_costs).cummin(1)
        row = lowest + skip_costs
        entered = origin == torch.arange(N + 1, device=origin.device)
        moves[i] = torch.where(entered, entry_moves, SKIP_PREDICTION)
    return moves
