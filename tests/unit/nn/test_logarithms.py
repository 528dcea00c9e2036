"""Exponentials and sums of very low logarithms: those of PyTorch, and nothing below the smallest normal number."""

from __future__ import annotations

import pytest
import torch

from workflow_src.nn.logarithms import NEVER, exp, logsumexp


def spread(dtype: torch.dtype) -> torch.Tensor:
    """Logarithms (50, 40) from 0 down to where float32 has no numbers, and impossible ones."""
    generator = torch.Generator().manual_seed(1)
    values = -200 * torch.rand(50, 40, generator=generator, dtype=dtype)
    return values.masked_fill(torch.rand(50, 40, generator=generator) < 0.3, NEVER)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_are_those_of_pytorch_and_none_is_below_normal_numbers(dtype):
    logarithms = spread(dtype).requires_grad_()
    actual, expected = exp(logarithms), logarithms.exp()
    assert torch.allclose(actual, expected, rtol=1e-6, atol=1e-34)
    assert (actual[logarithms == NEVER] == 0).all()
    assert actual[actual > 0].min() >= torch.finfo(torch.float32).tiny
    (gradient,) = torch.autograd.grad(actual.sum(), logarithms)
    assert torch.allclose(gradient, expected, rtol=1e-6, atol=1e-34)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_and_their_gradients_are_those_of_pytorch(dtype):
    logarithms = spread(dtype)
    logarithms[0] = NEVER
    logarithms.requires_grad_()
    actual, expected = logsumexp(logarithms), logarithms.logsumexp(-1)
    assert torch.allclose(actual, expected)
    (gradient,) = torch.autograd.grad(actual.sum(), logarithms)
    assert torch.allclose(gradient, logarithms.softmax(-1), atol=1e-34)
