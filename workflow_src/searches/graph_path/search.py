"""Greedy and lookahead search (Huang et al. 2022, section 3.4): from each vertex to the best next one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from workflow_src.decoding.graphs import best_words, graph_of, merged
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.errors import InputError
from workflow_src.losses.path_scores import source_positions
from workflow_src.runtime.device import on_cpu
from workflow_src.types import Hypotheses


class GraphPath(SearchModule):
    """`forward` returns the best word of each vertex (B, L), the vertex after it (B, L), which is itself at the end and
    beyond, and the log-probability (B, L) of the move to the vertex after it and of the word there; where no scores
    are asked for, that is one 0 a sentence."""

    outputs = ("words", "following", "gains")

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        logits, transitions, mask = graph_of(self.model, self.encode(source))
        words, gains = best_words(logits, mask, self.scored or self.settings.lookahead > 0)
        vertex = torch.arange(mask.size(1), device=mask.device)
        following = (transitions + self.settings.lookahead * gains[:, None]).argmax(-1)
        following = torch.where((vertex < mask.sum(1, keepdim=True) - 1), following, vertex)
        if not self.scored:
            return words, following, logits.new_zeros(logits.size(0), 1)
        moves = transitions.gather(-1, following[..., None])[..., 0]
        return words, following, moves + gains.gather(1, following)

    @torch.no_grad()
    def hypotheses(self, _source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        words, following, gains = on_cpu(*outputs)
        paths = [path_of(row) for row in following.tolist()]
        # The last vertex of a path puts out the end symbol.
        translations = [[row[vertex] for vertex in path[1:-1]] for row, path in zip(words.tolist(), paths, strict=True)]
        if self.settings.merge_equal:
            translations = list(map(merged, translations))
        if not self.scored:
            return Hypotheses(translations, [0.0] * len(paths))
        scores = [
            sum(row[vertex] for vertex in path[:-1]) / (len(path) - 1)
            for row, path in zip(gains.tolist(), paths, strict=True)
        ]
        return Hypotheses(translations, scores)

    def origins(self, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """The source position of the vertex that put out each subword of outputs of source (B, S), on the most probable
        path of the output."""
        return source_positions(self.model, source, outputs)


def path_of(following: Sequence[int]) -> list[int]:
    """The vertices on the path from vertex 0 to one that is followed by itself.

    Raises InputError for one that does not go forward: a transition that is no number is the largest of its vertex.
    """
    path = [0]
    while following[path[-1]] > path[-1]:
        path.append(following[path[-1]])
    if following[path[-1]] < path[-1] or len(path) == 1:
        problem = "gives transitions that are no numbers (NaN), so a sentence has no path through its graph"
        raise InputError("the model", problem, "use weights that are finite")
    return path
