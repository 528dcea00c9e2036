"""Reading outputs off slots: the best symbol of each, equal neighbours merged, blanks dropped."""

from __future__ import annotations

import itertools

from torch import Tensor

from workflow_src.nn.layers import Memory
from workflow_src.nn.models import AlignedModel
from workflow_src.types import wide


def slot_logits(
    model: AlignedModel, memory: Memory, blank_penalty: float = 0.0, z: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (B, N, V) at the slots, blank last, and the mask (B, N) of real slots.

    Symbols that may not be output have -inf; `blank_penalty` is subtracted from the blank's logits. Latents z (B, S, Z)
    replace the prior's mean.
    """
    hidden, mask = model.hidden(memory, z=z)
    return wide(model.logits(hidden, blank_penalty)), mask


def collapse(slots: list[int], blank: int) -> list[int]:
    """The output of an alignment: equal neighbours merged, then blanks dropped."""
    return [symbol for symbol, _ in itertools.groupby(slots) if symbol != blank]
