"""Inputs of a decoder in one pass: source states copied to its positions, and symbols that glancing shows there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.nn.layers import Embedding, Memory
from workflow_src.nn.widths import beside

# Marks positions at which no symbol of the reference is shown.
NOT_SHOWN = -1
# Temperature of the softmax over distances that weighs source positions.
TEMPERATURE = 0.3


def soft_copy(memory: Memory, lengths: Tensor, positions: Tensor) -> Tensor:
    """Means of source states (B, S, D) around positions (N,) of targets of `lengths` (B,), (B, N, D).

    Position n of N lies at (n + 1/2) S / N - 1/2 of S source positions; weights are softmax(-distance / TEMPERATURE)
    (Wei et al. 2019).
    """
    # As precise as the states: rounding of a softmax may depend on its width, which padding changes.
    dtype = torch.promote_types(memory.states.dtype, torch.float32)
    source_lengths = memory.mask.sum(1).to(dtype)
    centre = (positions + 0.5).to(dtype) * (source_lengths / beside(lengths, memory))[:, None] - 0.5
    distance = (centre[..., None] - torch.arange(memory.states.size(1), device=memory.states.device)).abs()
    scores = (-distance / TEMPERATURE).masked_fill(~memory.mask[:, None], float("-inf"))
    return scores.softmax(-1).to(memory.states.dtype) @ memory.states


def soft_centres(source_lengths: Tensor, lengths: Tensor, positions: Tensor) -> Tensor:
    """The source position (B, N) nearest to the centre of the soft copy of positions (N,) of targets of `lengths` (B,),
    from sources of lengths (B,)."""
    return (2 * positions + 1) * source_lengths[:, None] // (2 * lengths[:, None])


def with_shown(inputs: Tensor, shown: Tensor | None, embedding: Embedding) -> Tensor:
    """Inputs (B, N, D) where `shown` symbols (B, N) that are not NOT_SHOWN replace what stands at their positions."""
    if shown is None:
        return inputs
    symbols = F.embedding(shown.clamp(min=0), embedding.weight) * embedding.scale
    return torch.where((shown == NOT_SHOWN)[..., None], inputs, symbols.to(inputs.dtype))
