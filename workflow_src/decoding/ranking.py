"""Ranking candidates: by a model that scores them in one parallel pass, or by their own scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workflow_src.data.batching import pad
from workflow_src.nn.models import Scorer
from workflow_src.runtime.device import on_device
from workflow_src.spec import ROWS
from workflow_src.types import EOS, PAD, UNK, Hypotheses, Ranked, with_end

# Scores by output; the first of equal ones wins.
Candidates = Mapping[tuple[int, ...], float]


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of a network that searches call, as one function of tensors; see `Role.program`.

    module    forward(source (B, S) int64, …) -> a tensor for each of `outputs`
    inputs    names of the inputs after the source, with the indices of axes that vary
    alone     example inputs for exporters, with any values: one sentence without padding
    together  example inputs for several sentences
    outputs   names of the results
    by_row    whether the results of a word must not depend on the words beside it, in 8 bits too
    """

    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    alone: tuple[Tensor, ...]
    together: tuple[Tensor, ...]
    outputs: tuple[str, ...] = ("result",)
    by_row: bool = False


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A network and its role's function, computed by an engine; searches get it in place of the network."""

    network: nn.Module
    function: Callable[..., Tensor]

    @property
    def config(self) -> Any:
        return self.network.config


# Sources for exporters; a graph does not depend on their ids.
EXAMPLES = torch.tensor([[5, 6, 7, 8, EOS], [9, 6, EOS, PAD, PAD]])


class Scoring(nn.Module):
    """log p(y|x) of outputs, end symbols counted: source (B, S), the row of the source of each output (C,), and outputs
    (C, T) -> (C,). Source states are computed once a sentence."""

    def __init__(self, rescorer: Scorer):
        super().__init__()
        self.rescorer = rescorer

    def forward(self, source: Tensor, rows: Tensor, target: Tensor) -> Tensor:
        states = self.rescorer.scoring_states(source)
        if source.size(0) > 1 or not self.rescorer.shares_source:
            states = states.select(rows)
        return self.rescorer.log_probability(states, target)


def scoring(network: Scorer) -> Function | None:
    """`Scoring` of a rescorer for engines that compile it; None where it is no function of fixed operators."""
    if not network.shares_source:
        return None
    word = UNK + 1
    outputs = torch.tensor([[word, word, word], [word, word, PAD]])
    return Function(
        Scoring(network),
        {"rows": (0,), "target": (0, 1)},
        (EXAMPLES[:1], torch.tensor([0, 0]), outputs),
        (EXAMPLES, torch.tensor([0, 1, 1]), outputs[[0, 1, 1]]),
    )


def rescored(
    rescorer: Scorer | Compiled,
    source: Tensor,
    candidates: Sequence[Candidates],
    weight: float | None = None,
    scored: bool = True,
) -> list[dict[tuple[int, ...], float]]:
    """The candidates of each sentence of source (B, S) with the rescorer's log p(y|x) / (|y| + 1) in nats.

    With a `weight`, weight x rescorer's score is added to the candidates' own scores. Outputs with more subwords than
    the rescorer's positions are left out. Candidates keep their own scores where the rescorer cannot score the source
    or any of them, and, unless `scored`, where there is one candidate, which wins in any case.
    """
    if weight == 0:
        return [dict(own_scores) for own_scores in candidates]
    function = rescorer.function if isinstance(rescorer, Compiled) else Scoring(rescorer)
    limit = rescorer.config.max_positions - 1
    lengths = (source != PAD).sum(1).tolist()
    fits = [length <= rescorer.config.max_positions for length in lengths]
    rows_to_score = [row for row, outputs in enumerate(candidates) if fits[row] and (scored or len(outputs) > 1)]
    flat = [(row, output) for row in rows_to_score for output in candidates[row] if len(output) <= limit]
    rescored_scores: list[dict[tuple[int, ...], float]] = [{} for _ in candidates]
    for start in range(0, len(flat), ROWS):
        chunk = flat[start : start + ROWS]
        # Only sentences of this chunk are encoded.
        places = {row: place for place, row in enumerate(dict.fromkeys(row for row, _ in chunk))}
        rows = on_device([places[row] for row, _ in chunk], source.device)
        target = pad([output for _, output in chunk], eos=False).to(source.device, non_blocking=True)
        # Cut to the longest source: a single sentence is computed without padding.
        sources = source[on_device(list(places), source.device), : max(lengths[row] for row in places)]
        mean = function(sources, rows, target) / (with_end(target) != PAD).sum(1)
        for (row, output), score in zip(chunk, mean.tolist(), strict=True):
            rescored_scores[row][output] = score if weight is None else candidates[row][output] + weight * score
    return [
        scores if any(map(math.isfinite, scores.values())) else dict(own_scores)
        for scores, own_scores in zip(rescored_scores, candidates, strict=True)
    ]


def best_of(candidates: Sequence[Candidates]) -> Hypotheses:
    """The best candidate of each sentence, with its score and the number of candidates."""
    best = [max(scores, key=scores.__getitem__) for scores in candidates]
    return Hypotheses(
        [list(output) for output in best],
        [scores[output] for scores, output in zip(candidates, best, strict=True)],
        candidates=[len(scores) for scores in candidates],
        ranked=lambda: [_ranked(scores) for scores in candidates],
    )


def _ranked(scores: Candidates) -> Ranked:
    """The candidates of a sentence, best first; of equal scores the first comes first, as in `best_of`."""
    order = sorted(scores, key=scores.__getitem__, reverse=True)
    return [(scores[output], list(output)) for output in order]
