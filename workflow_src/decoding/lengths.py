"""How long an autoregressive output may become."""

from __future__ import annotations

from torch import Tensor

from workflow_src.types import PAD


def limits(source: Tensor, ratio: float, positions: int) -> Tensor:
    """Longest output (B,) for source (B, S): ratio * |x| + 10 tokens, but never past the model's positions."""
    lengths = (source != PAD).sum(1) - 1
    return (lengths * ratio + 10).long().clamp(max=positions - 1)
