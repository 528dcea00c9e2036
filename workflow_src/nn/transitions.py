"""Probabilities of the next vertex of a directed acyclic graph, mixed from attention heads (Huang et al. 2022).

Vertex i has the features u_i = [h_i; p_i], its state and a learned position. Head k attends to later vertices, and a
gate g_ik, a softmax over heads, mixes the heads:
    log E_ij = logsumexp over k of  log g_ik + log softmax over j > i of q_ik . k_jk / sqrt(d)
Shapes: B sentences, L vertices, H heads, d = D / H.
"""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.nn.logarithms import NEVER, exp
from workflow_src.types import wide


class Transitions(nn.Module):
    """The layer that predicts transitions of graphs with up to `positions` vertices."""

    def __init__(self, dim: int, heads: int, positions: int):
        super().__init__()
        self.heads = heads
        self.positions = nn.Parameter(torch.empty(positions, dim).normal_(std=dim**-0.5))
        self.query = nn.Linear(2 * dim, dim)
        # A bias of the keys would change no softmax.
        self.key = nn.Linear(2 * dim, dim, bias=False)
        self.gate = nn.Linear(2 * dim, heads)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """log E (B, L, L) of states (B, L, D) at the vertices of mask (B, L), at least float32; NEVER where there is no
        transition: to vertices that are not later, or not real."""
        with _full_precision(hidden.device.type):
            states = wide(hidden)
            B, L, D = states.shape
            positions = self.positions[:L].to(states.dtype).expand(B, -1, -1)
            features = torch.cat([states, positions], -1)
            query = _linear(self.query, features) * (D // self.heads) ** -0.5
            key = F.linear(features, self.key.weight.to(features.dtype))
            query, key = (x.view(B, L, self.heads, D // self.heads).transpose(1, 2) for x in (query, key))
            gates = _linear(self.gate, features).log_softmax(-1)
            vertex = torch.arange(L, device=mask.device)
            possible = (vertex > vertex[:, None]) & mask[:, None]
            if torch.is_grad_enabled():
                return _Mixture.apply(query, key, gates, possible)
            # The batch of an update, at which glancing looks, is larger than those of searches.
            mixed = _mixed if self.training else _mixed_probabilities
            return mixed(query, key, gates, possible)


def _full_precision(device: str) -> contextlib.AbstractContextManager:
    """A context without autocast."""
    # Tensors without values, of device `meta`, have no autocast.
    return (
        torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else contextlib.nullcontext()
    )


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer in the precision of its input."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


def _head(query: Tensor, key: Tensor, possible: Tensor, head: int) -> Tensor:
    """Log-probabilities (B, L, L) of one head."""
    scores = query[:, head] @ key[:, head].transpose(-1, -2)
    return scores.masked_fill_(~possible, NEVER).log_softmax(-1)


def _mixed(query: Tensor, key: Tensor, gates: Tensor, possible: Tensor) -> Tensor:
    """log E (B, L, L) from queries and keys (B, H, L, d), logarithms of gates (B, L, H) and a mask (B, L, L)."""
    total = _head(query, key, possible, 0) + gates[..., :1]
    for head in range(1, query.size(1)):
        total = torch.logaddexp(total, _head(query, key, possible, head) + gates[..., head : head + 1])
    return total.masked_fill(~possible, NEVER)


def _mixed_probabilities(query: Tensor, key: Tensor, gates: Tensor, possible: Tensor) -> Tensor:
    """`_mixed` in few operators, whose probabilities are at least the smallest number: searches need no others."""
    scores = (query @ key.transpose(-1, -2)).masked_fill(~possible[:, None], NEVER)
    shares = (scores.softmax(-1) * gates.exp().transpose(1, 2)[..., None]).sum(1)
    return shares.clamp(min=torch.finfo(shares.dtype).tiny).log().masked_fill(~possible, NEVER)


class _Mixture(torch.autograd.Function):
    """`_mixed` with a gradient that computes the heads again, one by one: memory is B L², and not B H L²."""

    @staticmethod
    def forward(ctx, query, key, gates, possible):
        total = _mixed(query, key, gates, possible)
        ctx.save_for_backward(query, key, gates, possible, total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        query, key, gates, possible, total = ctx.saved_tensors
        gradient = gradient.masked_fill(~possible, 0.0)
        grad_query, grad_key, grad_gates = torch.empty_like(query), torch.empty_like(key), torch.empty_like(gates)
        for head in range(query.size(1)):
            logs = _head(query, key, possible, head)
            # The share of the head in each transition, at most 1.
            share = exp((logs + gates[..., head : head + 1] - total).clamp_(max=0.0)).mul_(gradient)
            sums = share.sum(-1, keepdim=True)
            grad_gates[..., head] = sums[..., 0]
            scores = share.sub_(exp(logs).mul_(sums))
            grad_query[:, head] = scores @ key[:, head]
            grad_key[:, head] = scores.transpose(-1, -2) @ query[:, head]
        return grad_query, grad_key, grad_gates, None
