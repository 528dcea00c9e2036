"""Ranking candidates: by an autoregressive model in one parallel pass, or by the scores that they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.types import PAD, Hypotheses, with_end

# Candidates whose logits are held at once. They do not influence each other, so that this changes memory alone.
ROWS = 512

# Scores by output; the first of equal ones wins.
Candidates = Mapping[tuple[int, ...], float]


class Rescorer(Protocol):
    """What ranking needs of an autoregressive model; `config.max_positions` counts the end symbol."""

    config: Any

    def encode(self, source: Tensor): ...

    def log_probabilities(self, source: Tensor, target: Tensor, memory=None) -> Tensor:
        """log p(y_t | y_<t, x) of target (B, T) and of its end symbol, (B, T+1); 0 at padding."""


def rescored(
    rescorer: Rescorer, source: Tensor, candidates: Sequence[Candidates]
) -> list[dict[tuple[int, ...], float]]:
    """The candidates of each sentence of source (B, S) with the rescorer's log p(y|x) / (|y| + 1) in nats.

    Source states are computed once a sentence. Outputs longer than the rescorer has positions are left out, unless a
    sentence has no other.
    """
    limit = rescorer.config.max_positions - 1
    memory = rescorer.encode(source)
    flat = [(row, choice) for row, found in enumerate(candidates) for choice in found if len(choice) <= limit]
    scored: list[dict[tuple[int, ...], float]] = [{} for _ in candidates]
    for start in range(0, len(flat), ROWS):
        part = flat[start : start + ROWS]
        rows = torch.tensor([row for row, _ in part], device=source.device)
        target = pad([choice for _, choice in part], eos=False).to(source.device)
        found = rescorer.log_probabilities(source[rows], target, memory.select(rows))
        mean = found.sum(1) / (with_end(target) != PAD).sum(1)
        for (row, choice), score in zip(part, mean.tolist(), strict=True):
            scored[row][choice] = score
    return [found or dict(before) for found, before in zip(scored, candidates, strict=True)]


def best_of(candidates: Sequence[Candidates]) -> Hypotheses:
    """The best candidate of each sentence, with its score and the number of candidates."""
    best = [max(found, key=found.__getitem__) for found in candidates]
    return Hypotheses(
        [list(choice) for choice in best],
        [found[choice] for found, choice in zip(candidates, best, strict=True)],
        candidates=[len(found) for found in candidates],
    )
