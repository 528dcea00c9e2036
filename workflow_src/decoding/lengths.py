"""Length limits of autoregressive outputs."""

from __future__ import annotations

from torch import Tensor

from workflow_src.types import PAD


def limits(source: Tensor, ratio: float, positions: int) -> Tensor:
    """Maximum output length (B,) for source (B, S): ratio * |x| + 10 tokens, at most the model's positions."""
    lengths = (source != PAD).sum(1) - 1
    return (lengths * ratio + 10).long().clamp(max=positions - 1)
