"""Transitions of graphs: distributions over later vertices, mixed from heads."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workflow_src.nn.logarithms import NEVER
from workflow_src.nn.transitions import Transitions

MASK = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])


def layer(scale: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Transitions, torch.Tensor]:
    torch.manual_seed(0)
    transitions = Transitions(8, 2, 10)
    for parameter in transitions.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return transitions.to(dtype), torch.randn(2, 6, 8, dtype=dtype).requires_grad_()


def plain(transitions: Transitions, hidden: torch.Tensor) -> torch.Tensor:
    """Probabilities by the definition, vertex by vertex and head by head."""
    B, L, _ = hidden.shape
    features = torch.cat([hidden, transitions.positions[:L].expand(B, -1, -1)], -1)
    queries, keys = transitions.query(features), transitions.key(features)
    gates = transitions.gate(features).softmax(-1)
    rows = []
    for sentence in range(B):
        for i in range(L):
            later = [j for j in range(i + 1, L) if MASK[sentence, j]]
            row = torch.zeros(L, dtype=hidden.dtype)
            for head in range(2):
                part = slice(4 * head, 4 * head + 4)
                if later:
                    scores = keys[sentence, later][:, part] @ queries[sentence, i, part] / 2
                    share = gates[sentence, i, head] * scores.softmax(-1)
                    row = row + torch.zeros_like(row).index_add(0, torch.tensor(later), share)
            rows.append(row)
    return torch.stack(rows).view(B, L, L)


def test_they_are_mixtures_of_the_heads_softmax_over_later_vertices():
    transitions, hidden = layer()
    actual = transitions(hidden, MASK)
    expected = plain(transitions, hidden)
    assert torch.allclose(actual.exp(), expected, atol=1e-12)
    assert (actual[expected == 0] == NEVER).all()
    for training in (True, False):
        with torch.no_grad():
            assert torch.allclose(transitions.train(training)(hidden, MASK), actual, atol=1e-12)
    # The last vertex, and those that are not real, go nowhere.
    goes = MASK & (torch.arange(6) < MASK.sum(1, keepdim=True) - 1)
    assert torch.allclose(actual.exp().sum(-1), goes.double())


def test_their_gradients_are_those_of_the_definition():
    transitions, hidden = layer()
    weights = torch.randn(2, 6, 6, dtype=torch.float64)
    parameters = [hidden, *transitions.parameters()]
    actual = transitions(hidden, MASK)
    possible = actual > NEVER / 2
    expected = plain(transitions, hidden).masked_fill(~possible, 1.0).log()
    # Whatever a loss says of impossible transitions, there is nothing to learn.
    actual = torch.autograd.grad((actual * weights).sum(), parameters)
    expected = torch.autograd.grad((expected * weights).sum(), parameters)
    for gradient, wanted in zip(actual, expected, strict=True):
        assert torch.allclose(gradient, wanted, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transitions_that_float32_cannot_hold_have_finite_logarithms_and_gradients(dtype):
    """Of scores that differ by hundreds: e^-200 is 0 in float32."""
    transitions, hidden = layer(8.0, dtype)
    logarithms = transitions(hidden * 4, MASK)
    assert logarithms.dtype == torch.float32
    possible = logarithms > NEVER / 2
    assert logarithms[possible].min() < -200 and torch.isfinite(logarithms).all()
    # Searches need not tell apart what is this improbable.
    with torch.no_grad():
        searched = transitions.eval()(hidden * 4, MASK)
    lowest = math.log(torch.finfo(torch.float32).tiny)
    assert torch.allclose(searched[possible], logarithms[possible].clamp(min=lowest), rtol=1e-4, atol=1e-4)
    assert (searched[~possible] == NEVER).all()
    logarithms[possible].sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (hidden, *transitions.parameters()))


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that operators return."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("gradient", [True, False])
def test_a_pass_of_training_holds_no_tensor_of_all_heads(gradient):
    transitions = Transitions(8, 4, 50)
    hidden, mask = torch.randn(2, 50, 8, requires_grad=True), torch.ones(2, 50, dtype=torch.bool)
    with torch.set_grad_enabled(gradient), Largest() as largest:
        logarithms = transitions(hidden, mask)
        if gradient:
            logarithms.logsumexp((1, 2)).sum().backward()
    assert largest.elements == 2 * 50 * 50
