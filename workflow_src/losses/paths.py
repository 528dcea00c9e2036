"""Sums and maxima over the paths of a directed acyclic graph that put out a target (Huang et al. 2022, section 3).

A path begins at vertex 0, ends at the last vertex of its sentence and puts out one symbol at every vertex that it
visits. Targets y have M symbols, a start symbol and an end symbol among them:
    f_1(0) = log P(y_1|v_0);    f_m(j) = log P(y_m|v_j) + logsumexp over i < j of f_{m-1}(i) + log E_ij
and log p(y|x) = f_M(L - 1). All recursions are over logarithms: no probability is too small.
Shapes: B sentences, L vertices, M symbols.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.nn.logarithms import NEVER, exp, logsumexp
from workflow_src.types import BOS, PAD, with_end


@dataclasses.dataclass(frozen=True)
class Paths:
    """The paths of targets with symbols (B, M), padded, through graphs with `vertices` (B,) vertices."""

    symbols: Tensor
    vertices: Tensor

    @classmethod
    def of(cls, target: Tensor, vertices: Tensor) -> Paths:
        """Those of targets (B, T) without start and end symbols."""
        return cls(F.pad(with_end(target), (1, 0), value=BOS), vertices)

    @property
    def counts(self) -> Tensor:
        """(B,), the number of symbols of each target."""
        return (self.symbols != PAD).sum(1)

    @property
    def reachable(self) -> Tensor:
        """(B,), True where there is a path: a vertex for each symbol."""
        return self.counts <= self.vertices

    def at_end(self, values: Tensor) -> Tensor:
        """(B,), of values (M, B, L) those of the last symbol at the last vertex."""
        rows = torch.arange(values.size(1), device=values.device)
        return values[self.counts - 1, rows, self.vertices - 1]


@dataclasses.dataclass(frozen=True)
class Posterior:
    """What `posterior` returns.

    total        (B,) log p(y|x), far below any probability where there is no path
    visits       (B, L, M) probability that a path puts out the symbol m at vertex j: the gradient of the total by
                 log-probabilities of symbols
    transitions  (B, L, L) probability that a path goes from vertex i to j: its gradient by log E
    Both are 0 in sentences that have no path.
    """

    total: Tensor
    visits: Tensor
    transitions: Tensor


def _forward(emissions: Tensor, transitions: Tensor) -> Tensor:
    """f_m(j) of all m, (M, B, L)."""
    B, L, M = emissions.shape
    symbol_scores = emissions.permute(2, 0, 1).contiguous()
    # Rows of the columns: sums over the last axis are faster.
    into = transitions.transpose(1, 2).contiguous()
    sums = emissions.new_full((M, B, L), NEVER)
    sums[0, :, 0] = symbol_scores[0, :, 0]
    for m in range(1, M):
        # Impossible places stay near NEVER: sums of it would leave the range of float32 after 1e8 symbols.
        sums[m] = symbol_scores[m] + logsumexp(into + sums[m - 1][:, None])
    return sums


def log_probability(emissions: Tensor, transitions: Tensor, paths: Paths) -> Tensor:
    """log p(y|x) (B,), far below any probability where there is no path. Arguments as `posterior`."""
    return paths.at_end(_forward(emissions, transitions))


@torch.no_grad()
def posterior(emissions: Tensor, transitions: Tensor, paths: Paths) -> Posterior:
    """Forward-backward recursions over log P(y_m|v_j) (B, L, M) and log E (B, L, L), NEVER where there is none."""
    M = emissions.size(2)
    sums = _forward(emissions, transitions)
    total, reachable = paths.at_end(sums), paths.reachable
    visits = torch.zeros_like(sums)
    used = torch.zeros_like(transitions)
    last = paths.counts - 1
    ending = torch.full_like(sums[0], NEVER).scatter_(1, (paths.vertices - 1)[:, None], 0.0)
    behind = ending
    for m in range(M - 1, -1, -1):
        shares = None
        if m < M - 1:
            # log E_ij + log P(y_{m+1}|v_j) + what follows, whose softmax over j are the shares of what follows i.
            behind = (emissions[:, :, m + 1] + behind)[:, None]
            scores = transitions + behind
            most = scores.amax(-1, keepdim=True)
            shares = exp(scores.sub_(most))
            norm = shares.sum(-1, keepdim=True)
            behind = (most + norm.log())[..., 0]
            shares = shares.div_(norm)
        # Where the target ends, nothing follows.
        behind = torch.where((last == m)[:, None], ending, behind)
        real = (reachable & (last >= m))[:, None]
        visits[m] = exp((sums[m] + behind - total[:, None]).clamp(max=0)) * real
        if shares is not None:
            used.addcmul_(shares, (visits[m] * (last > m)[:, None])[..., None])
    return Posterior(total, visits.permute(1, 2, 0), used)


@torch.no_grad()
def best_path(emissions: Tensor, transitions: Tensor, paths: Paths) -> Tensor:
    """The vertex of every symbol on the most probable path, (B, M) int64; 0 beyond a target. Arguments as `posterior`.

    Sentences without a path have any vertices.
    """
    B, L, M = emissions.shape
    into = transitions.transpose(1, 2).contiguous()
    best = emissions.new_full((B, L), NEVER)
    best[:, 0] = emissions[:, 0, 0]
    came_from = torch.zeros(M, B, L, dtype=torch.int64, device=emissions.device)
    for m in range(1, M):
        best, came_from[m] = (into + best[:, None]).max(-1)
        best = best + emissions[:, :, m]
    path = torch.zeros(B, M, dtype=torch.int64, device=emissions.device)
    vertex, counts = paths.vertices - 1, paths.counts
    for m in range(M - 1, -1, -1):
        real = m < counts
        path[:, m] = torch.where(real, vertex, 0)
        vertex = torch.where(real, came_from[m].gather(1, vertex[:, None])[:, 0], vertex)
    return path
