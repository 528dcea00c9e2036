"""Random graphs, and all of their paths one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from workflow_src.nn.logarithms import NEVER


def random_graphs(vertices: Tensor, symbols: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """log P(y_m|v_j) (B, L, M) and log E (B, L, L) of graphs with numbers of vertices (B,), float64."""
    generator = torch.Generator().manual_seed(seed)
    B, L = len(vertices), int(vertices.max())
    emissions = 3 * torch.randn(B, L, symbols, generator=generator, dtype=torch.float64) - 4
    scores = 2 * torch.randn(B, L, L, generator=generator, dtype=torch.float64)
    place = torch.arange(L)
    possible = (place > place[:, None]) & (place < vertices[:, None])[:, None]
    return emissions, scores.masked_fill(~possible, NEVER).log_softmax(-1).masked_fill(~possible, NEVER)


def paths(vertices: int, symbols: int) -> Iterator[tuple[int, ...]]:
    """The vertices of every path from the first to the last that visits as many as there are symbols."""
    for middle in itertools.combinations(range(1, vertices - 1), symbols - 2):
        yield (0, *middle, vertices - 1)


def log_probability(emissions: Tensor, transitions: Tensor, path: tuple[int, ...]) -> Tensor:
    """Of emissions (L, M) and transitions (L, L) of one sentence."""
    moves = [transitions[i, j] for i, j in itertools.pairwise(path)]
    return sum(emissions[vertex, symbol] for symbol, vertex in enumerate(path)) + sum(moves)
