"""Joint Viterbi search of words and path (Shao et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from workflow_src.decoding.graphs import best_words, graph_of, merged
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.losses.path_scores import source_positions
from workflow_src.runtime.device import on_cpu
from workflow_src.types import PAD, Hypotheses

# Outputs have at most this times the source's subwords, as in the authors' released code.
LONGEST = 2


class GraphViterbi(SearchModule):
    """`forward` returns the best word of each vertex and its log-probability (B, L), transitions (B, L, L) and numbers
    of vertices (B,)."""

    outputs = ("words", "gains", "transitions", "vertices")

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        logits, transitions, mask = graph_of(self.model, self.encode(source))
        return *best_words(logits, mask), transitions, mask.sum(1)

    @torch.no_grad()
    def hypotheses(self, source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        words, gains, transitions, vertices, lengths = on_cpu(*outputs, (source != PAD).sum(1))
        translations, scores = [], []
        rows = zip(words.numpy(), gains.numpy(), transitions.numpy(), vertices.tolist(), lengths.tolist(), strict=True)
        for words_row, gains_row, moves, count, length in rows:
            score, path = best_path(
                gains_row[:count], moves[:count, :count], LONGEST * length, self.settings.length_penalty
            )
            output = words_row[path].tolist()
            translations.append(merged(output) if self.settings.merge_equal else output)
            scores.append(score)
        return Hypotheses(translations, scores)

    def origins(self, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """The source position of the vertex that put out each subword of outputs of source (B, S), on the most probable
        path of the output."""
        return source_positions(self.model, source, outputs)


def best_path(
    gains: np.ndarray, transitions: np.ndarray, longest: int, length_penalty: float
) -> tuple[float, list[int]]:
    """The best score, and the vertices that put out words on its path, at most `longest`.

    gains (L,) log-probabilities of the vertices' words, log-probabilities of transitions (L, L).
    """
    last = len(gains) - 1
    totals = np.full(len(gains), -np.inf)
    totals[0] = 0.0
    came_from: list[np.ndarray] = []
    best_score, best_moves = -np.inf, 1
    for moves in range(1, min(longest + 1, last) + 1):
        candidates = totals[:, None] + transitions
        came_from.append(candidates.argmax(0))
        totals = np.take_along_axis(candidates, came_from[-1][None], 0)[0] + gains
        score = totals[last] / moves**length_penalty
        if score > best_score:
            best_score, best_moves = score, moves
    path, vertex = [], last
    for came in came_from[best_moves - 1 : 0 : -1]:
        vertex = int(came[vertex])
        path.append(vertex)
    return float(best_score), path[::-1]
