"""Length limits of autoregressive outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.types import PAD


def limits(source: Tensor, ratio: float, positions: int) -> Tensor:
    """Maximum output length (B,) for source (B, S): ratio * |x| + 10 tokens, at most the model's positions."""
    return longest((source != PAD).sum(1, dtype=torch.float64) - 1, ratio, positions)


def longest(lengths: Tensor, ratio: float, positions: int) -> Tensor:
    """`limits` for source lengths (B,) float64, end symbols not counted."""
    # Limited before the conversion: a float beyond 64 bits has no integer.
    return (lengths * ratio + 10).clamp(max=positions - 1).long()
