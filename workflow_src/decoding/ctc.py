"""Reading outputs off slots: the best symbol of each, equal neighbours merged, blanks dropped."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from workflow_src.types import wide


def slot_logits(model, source: Tensor, blank_penalty: float = 0.0) -> tuple[Tensor, Tensor]:
    """Logits (B, N, V) of source (B, S), blank last, and the mask (B, N) of real slots.

    What may not be put out has -inf; `blank_penalty` is taken off the blank's logits.
    """
    hidden, mask = model.hidden(model.encode(source))
    return wide(model.logits(hidden, blank_penalty)), mask


def collapse(slots: list[int], blank: int) -> list[int]:
    """The output that an alignment stands for: equal neighbours merged, then blanks dropped."""
    return [symbol for symbol, _ in itertools.groupby(slots) if symbol != blank]


def collapsed(best: Tensor, mask: Tensor, blank: int) -> list[list[int]]:
    """Outputs of alignments (B, N) over the real slots of mask (B, N)."""
    # On the device: what a slot adds to its output is kept, so that lists hold no more than words.
    kept = mask & (best != blank)
    kept[:, 1:] &= best[:, 1:] != best[:, :-1]
    return [row[keep].tolist() for row, keep in zip(best.cpu(), kept.cpu(), strict=True)]


def mean_log_probability(logits: Tensor, best: Tensor, mask: Tensor) -> list[float]:
    """Mean over slots of the log-probability of symbols (B, N), one number a sentence."""
    chosen = logits.gather(-1, best[..., None])[..., 0] - torch.logsumexp(logits, -1)
    return ((chosen * mask).sum(1) / mask.sum(1)).tolist()
