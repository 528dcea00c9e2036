"""Reading outputs off slots: the best symbol of each, equal neighbours merged, blanks dropped."""

from __future__ import annotations

import itertools

from torch import Tensor

from workflow_src.types import AlignedLatentModel, wide


def slot_logits(model: AlignedLatentModel, source: Tensor, blank_penalty: float = 0.0) -> tuple[Tensor, Tensor]:
    """Logits (B, N, V) of source (B, S), blank last, and the mask (B, N) of real slots.

    What may not be put out has -inf; `blank_penalty` is taken off the blank's logits.
    """
    hidden, mask = model.hidden(model.encode(source))
    return wide(model.logits(hidden, blank_penalty)), mask


def collapse(slots: list[int], blank: int) -> list[int]:
    """The output that an alignment stands for: equal neighbours merged, then blanks dropped."""
    return [symbol for symbol, _ in itertools.groupby(slots) if symbol != blank]
