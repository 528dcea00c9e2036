"""Ranking candidates: by an autoregressive model in one parallel pass, or by the scores that they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from workflow_src.data.batching import pad
from workflow_src.decoding.passes import Compiled, Function
from workflow_src.types import EOS, PAD, UNK, Hypotheses

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


class Scoring(nn.Module):
    """log p(y|x) of outputs, ends counted: source (B, S), the sentences of outputs, rows (C,), and outputs, target
    (C, T) -> (C,). Source states are computed once a sentence."""

    def __init__(self, rescorer: Rescorer):
        super().__init__()
        self.rescorer = rescorer

    def forward(self, source: Tensor, rows: Tensor, target: Tensor) -> Tensor:
        memory = self.rescorer.encode(source)
        if source.size(0) > 1:
            source, memory = source[rows], memory.select(rows)
        return self.rescorer.log_probabilities(source, target, memory).sum(1)


def scoring(network: nn.Module) -> Function:
    """What ranking asks of a rescorer, for engines that compile it."""
    word, sentences = UNK + 1, torch.tensor([[5, 6, 7, 8, EOS], [9, 6, EOS, PAD, PAD]])
    outputs = torch.tensor([[word, word, word], [word, word, PAD]])
    return Function(
        Scoring(network),
        {"rows": (0,), "target": (0, 1)},
        (sentences[:1], torch.tensor([0, 0]), outputs),
        (sentences, torch.tensor([0, 1, 1]), outputs[[0, 1, 1]]),
    )


def rescored(
    rescorer: Rescorer | Compiled, source: Tensor, candidates: Sequence[Candidates]
) -> list[dict[tuple[int, ...], float]]:
    """The candidates of each sentence of source (B, S) with the rescorer's log p(y|x) / (|y| + 1) in nats.

    Outputs longer than the rescorer has positions are left out, unless a sentence has no other.
    """
    function = rescorer.function if isinstance(rescorer, Compiled) else Scoring(rescorer)
    limit = rescorer.config.max_positions - 1
    flat = [(row, choice) for row, found in enumerate(candidates) for choice in found if len(choice) <= limit]
    scored: list[dict[tuple[int, ...], float]] = [{} for _ in candidates]
    for start in range(0, len(flat), ROWS):
        part = flat[start : start + ROWS]
        # Sentences stand one after another: only those of this part are encoded.
        first, last = part[0][0], part[-1][0]
        rows = torch.tensor([row - first for row, _ in part], device=source.device)
        target = pad([choice for _, choice in part], eos=False).to(source.device)
        totals = function(source[first : last + 1], rows, target).tolist()
        for (row, choice), total in zip(part, totals, strict=True):
            scored[row][choice] = total / (len(choice) + 1)
    return [found or dict(before) for found, before in zip(scored, candidates, strict=True)]


def best_of(candidates: Sequence[Candidates]) -> Hypotheses:
    """The best candidate of each sentence, with its score and the number of candidates."""
    best = [max(found, key=found.__getitem__) for found in candidates]
    return Hypotheses(
        [list(choice) for choice in best],
        [found[choice] for found, choice in zip(candidates, best, strict=True)],
        candidates=[len(found) for found in candidates],
    )
