"""What searches read of a graph: words and transitions of its vertices."""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.nn.layers import Memory
from workflow_src.nn.models import GraphModel
from workflow_src.types import PAD, wide


def graph_of(model: GraphModel, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of words (B, L, V), log-probabilities of transitions (B, L, L), and the mask (B, L) of real vertices."""
    hidden, mask = model.hidden(memory)
    return wide(model.logits(hidden)), model.transitions(hidden, mask), mask


def best_words(logits: Tensor, mask: Tensor, scored: bool = True) -> tuple[Tensor, Tensor]:
    """The best word of each vertex, and, if `scored`, its log-probability, else 0, both (B, L), of logits (B, L, V).

    The log-probability is 0 at the last vertex of each sentence, which puts out the end for certain.
    """
    if not scored:
        return logits.argmax(-1), torch.zeros_like(logits[..., 0])
    # ONNX Runtime has a fast kernel for this, and a slow one for the logarithm of the sum alone.
    best, words = logits.log_softmax(-1).max(-1)
    end = torch.arange(mask.size(1), device=mask.device) == mask.sum(1, keepdim=True) - 1
    return words, torch.where(end, 0.0, best)


def merged(outputs: list[int]) -> list[int]:
    """An output whose equal neighbours are one."""
    return [word for word, before in zip(outputs, [PAD, *outputs], strict=False) if word != before]
