"""Joint Viterbi search of words and path (Shao et al. 2022)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from workflow_src.decoding.compiled import interpreted, usable
from workflow_src.decoding.graphs import best_words, graph_of, merged
from workflow_src.decoding.search import SearchModule, Watch, scores_not_finite
from workflow_src.losses.path_scores import source_positions
from workflow_src.runtime.device import on_cpu
from workflow_src.searches.graph_viterbi import compiled
from workflow_src.types import PAD, Hypotheses

# Outputs have at most this times the source's subwords, the end symbol counted, as in the authors' released code.
LONGEST = 2


def try_out() -> None:
    """Compile the search, or read it from the cache, and run it."""
    compiled.search(np.zeros(3, np.float32), np.zeros((3, 3), np.float32), 2, 1.0)


@functools.cache
def search_function() -> Callable:
    """The search for a sentence, compiled where possible."""
    return compiled.search if usable(compiled.search, try_out) else interpreted(compiled.search)


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
        # No comparison takes a vertex without a number: the output would be empty.
        if gains.isnan().any():
            raise scores_not_finite(self.declared.name)
        search, penalty = search_function(), float(self.settings.length_penalty)
        translations, scores = [], []
        rows = zip(words.numpy(), gains.numpy(), transitions.numpy(), vertices.tolist(), lengths.tolist(), strict=True)
        for words_row, gains_row, moves, count, length in rows:
            # Numba compiles a function for each layout of its arrays.
            moves = np.ascontiguousarray(moves[:count, :count])
            score, path = search(gains_row[:count], moves, LONGEST * length, penalty)
            output = words_row[path].tolist()
            translations.append(merged(output) if self.settings.merge_equal else output)
            scores.append(score)
        return Hypotheses(translations, scores)

    def origins(self, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """The source position of the vertex that put out each subword of outputs of source (B, S), on the most probable
        path of the output."""
        return source_positions(self.model, source, outputs)
