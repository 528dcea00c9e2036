"""Schedules against formulas written apart, and the optimiser's settings."""

import math

import pytest
import torch

from workflow_src.config.training import TrainingConfig
from workflow_src.training.update import learning_rate, make_optimiser


def config(**more):
    return TrainingConfig(**{"max_steps": 400, "learning_rate": 0.002, "warmup_steps": 40} | more)


@pytest.mark.parametrize("warmup", [1, 40, 1000])
def test_inverse_sqrt_is_the_formula_of_vaswani(warmup):
    """lr = factor * min(n^-0.5, n * w^-1.5), n from 1; its peak, at n = w, is factor * w^-0.5."""
    settings = config(warmup_steps=warmup)
    factor = settings.learning_rate * math.sqrt(warmup)
    for step in range(400):
        n = step + 1
        assert learning_rate(settings, step) == pytest.approx(factor * min(n**-0.5, n * warmup**-1.5), rel=1e-12)


@pytest.mark.parametrize("warmup", [0, 1, 40])
def test_polynomial_is_a_product_of_rise_and_decay(warmup):
    settings = config(schedule="polynomial", warmup_steps=warmup)
    for step in range(400):
        rise = 1 if step + 1 >= warmup else (step + 1) / warmup
        expected = 0.002 * rise * math.exp(0.9 * math.log1p(-step / 400))
        assert learning_rate(settings, step) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(settings, 400) == 0


def test_without_warmup_inverse_sqrt_falls_from_the_first_update():
    rates = [learning_rate(config(warmup_steps=0), step) for step in range(3)]
    assert rates == pytest.approx([0.002, 0.002 / math.sqrt(2), 0.002 / math.sqrt(3)])


def test_an_update_is_adam_by_hand():
    """Two updates in float64, with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2)."""
    settings = config(betas=(0.8, 0.95), epsilon=1e-3, weight_decay=0.1)
    model = torch.nn.Linear(3, 1, bias=False).double()
    value = model.weight.detach().clone()
    optimiser = make_optimiser(model, settings)
    first, second = torch.zeros_like(value), torch.zeros_like(value)
    for n, gradient in enumerate(([1.0, -2.0, 0.5], [0.3, 0.0, -4.0]), 1):
        gradient = torch.tensor([gradient], dtype=torch.float64)
        model.weight.grad = gradient.clone()
        optimiser.step()
        first, second = 0.8 * first + 0.2 * gradient, 0.95 * second + 0.05 * gradient**2
        step = first / (1 - 0.8**n) / ((second / (1 - 0.95**n)).sqrt() + 1e-3)
        value = value * (1 - 0.002 * 0.1) - 0.002 * step
    torch.testing.assert_close(model.weight.detach(), value, rtol=1e-12, atol=1e-15)
