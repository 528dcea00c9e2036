"""Greedy and lookahead search (Huang et al. 2022, section 3.4): from each vertex to the best next one."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.decoding.candidates import kept_symbols
from workflow_src.decoding.graphs import best_words, graph_of
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.types import PAD


class GraphPath(SearchModule):
    """`forward` returns the words of the path (B, L), padded, and the mean log-probability of its words and moves."""

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        logits, transitions, mask = graph_of(self.model, self.encode(source))
        words, gains = best_words(logits, mask, self.scored or self.settings.lookahead > 0)
        vertex = torch.arange(mask.size(1), device=mask.device)
        end = vertex == mask.sum(1, keepdim=True) - 1
        following = (transitions + self.settings.lookahead * gains[:, None]).argmax(-1)
        # The end, and vertices beyond it, go nowhere.
        following = torch.where((vertex < mask.sum(1, keepdim=True) - 1), following, vertex)
        visited = reached(following, self.model.config.max_positions)
        outputs = kept_symbols(words, visited & ~end & (vertex > 0))
        if self.settings.merge_equal:
            new = F.pad(outputs[:, 1:] != outputs[:, :-1], (1, 0), value=True)
            outputs = kept_symbols(outputs, new & (outputs != PAD))
        if not self.scored:
            return outputs, logits.new_zeros(logits.size(0))
        moved = transitions.gather(-1, following[..., None])[..., 0]
        moves = torch.where(visited & ~end, moved, 0.0)
        words_and_moves = (visited & ~end).sum(1)
        return outputs, (moves + torch.where(visited & (vertex > 0), gains, 0.0)).sum(1) / words_and_moves


def reached(following: Tensor, most: int) -> Tensor:
    """The vertices (B, L) on the path from vertex 0, a mask, from the next vertex (B, L) of each; `most` is a bound
    of L.

    Each round doubles the part of the path that is known, so that the number of rounds depends on no value.
    """
    size = following.size(1)
    visited = (torch.arange(size, device=following.device) == 0).long().expand_as(following)
    # The exporter knows no size.
    for _ in range(math.ceil(math.log2(most if torch.compiler.is_exporting() else size))):
        visited = (visited + torch.zeros_like(visited).scatter_add(1, following, visited)).clamp(max=1)
        following = following.gather(1, following)
    return visited.bool()
