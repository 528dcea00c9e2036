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
    # Impossible places stay near NEVER: sums of it would leave the range of float32 after 1e8 symbols.
    sums = emissions.new_full((M, B, L), NEVER)
    sums[0, :, 0] = symbol_scores[0, :, 0]
    # The symbol m is at the vertex m or later.
    for m in range(1, min(M, L)):
        sums[m, :, m:] = symbol_scores[m, :, m:] + logsumexp(into[:, m:, m - 1 :] + sums[m - 1, :, None, m - 1 :])
    return sums


def log_probability(emissions: Tensor, transitions: Tensor, paths: Paths) -> Tensor:
    """log p(y|x) (B,), far below any probability where there is no path. Arguments as `posterior`."""
    return paths.at_end(_forward(emissions, transitions))


@torch.no_grad()
def posterior(emissions: Tensor, transitions: Tensor, paths: Paths) -> Posterior:
    """Forward-backward recursions over log P(y_m|v_j) (B, L, M) and log E (B, L, L), NEVER where there is none."""
    L, M = emissions.shape[1:]
    sums = _forward(emissions, transitions)
    total, reachable = paths.at_end(sums), paths.reachable
    visits = torch.zeros_like(sums)
    used = torch.zeros_like(transitions)
    last = paths.counts - 1
    ending = torch.full_like(sums[0], NEVER).scatter_(1, (paths.vertices - 1)[:, None], 0.0)
    behind = ending
    for m in range(M - 1, -1, -1):
        shares, following = None, m + 1
        if following < min(M, L):
            # log E_ij + log P(y_{m+1}|v_j) + what follows, whose softmax over j are the shares of what follows i.
            onward = emissions[:, following:, following] + behind[:, following:]
            scores = transitions[:, m:, following:] + onward[:, None]
            most = scores.amax(-1, keepdim=True)
            shares = exp(scores.sub_(most))
            norm = shares.sum(-1, keepdim=True)
            behind = F.pad((most + norm.log())[..., 0], (m, 0), value=NEVER)
            shares = shares.div_(norm)
        # Where the target ends, nothing follows.
        behind = torch.where((last == m)[:, None], ending, behind)
        real = (reachable & (last >= m))[:, None]
        visits[m] = exp((sums[m] + behind - total[:, None]).clamp(max=0)) * real
        if shares is not None:
            used[:, m:, following:].addcmul_(shares, (visits[m, :, m:] * (last > m)[:, None])[..., None])
    return Posterior(total, visits.permute(1, 2, 0), used)


@torch.no_grad()
def best_path(emissions: Tensor, transitions: Tensor, paths: Paths) -> Tensor:
    """The vertex of every symbol on the most probable path, (B, M) int64; 0 beyond a target. Arguments as `posterior`.

    Sentences without a path have any vertices.
    """
    B, L, M = emissions.shape
    into = transitions.transpose(1, 2).contiguous()
    best = emissions.new_full((M, B, L), NEVER)
    best[0, :, 0] = emissions[:, 0, 0]
    for m in range(1, min(M, L)):
        best[m, :, m:] = (into[:, m:, m - 1 :] + best[m - 1, :, None, m - 1 :]).amax(-1) + emissions[:, m:, m]
    path = torch.zeros(B, M, dtype=torch.int64, device=emissions.device)
    vertex, counts, rows = paths.vertices - 1, paths.counts, torch.arange(B, device=emissions.device)
    # The first symbol is at the first vertex.
    for m in range(M - 1, 0, -1):
        real = m < counts
        path[:, m] = torch.where(real, vertex, 0)
        # Only the vertices of the best path need to know which vertex came before.
        vertex = torch.where(real, (into[rows, vertex] + best[m - 1]).argmax(-1), vertex)
    return path
