"""The length transformation against its formula, and lengths from latents."""

from __future__ import annotations

import math

import pytest
import torch
from miniatures import memory_of

from workflow_src.nn.length import LatentLengthHead
from workflow_src.nn.source_latents import LengthTransformation

SOURCES, LENGTHS = [5, 2, 4], [3, 6, 4]


def transformation(sigma: float, first_position: int = 1) -> LengthTransformation:
    transform = LengthTransformation(first_position).double()
    with torch.no_grad():
        transform.log_sigma.fill_(math.log(sigma))
    return transform


def masked(lengths: list[int], padding: int = 0) -> torch.Tensor:
    return torch.arange(max(lengths) + padding) < torch.tensor(lengths)[:, None]


def latents(width: int = 3, positions: int = max(SOURCES)) -> torch.Tensor:
    return torch.randn(len(SOURCES), positions, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_weights_are_those_of_the_formula_and_sum_to_one(sigma, first):
    actual = transformation(sigma, first).weights(masked(SOURCES), torch.tensor(LENGTHS), max(LENGTHS))
    for row, (source, target) in enumerate(zip(SOURCES, LENGTHS, strict=True)):
        for j in range(first, target + first):
            scores = [-((k - source / target * j) ** 2) / (2 * sigma**2) for k in range(first, source + first)]
            total = math.fsum(map(math.exp, scores))
            expected = [math.exp(score) / total for score in scores] + [0.0] * (max(SOURCES) - source)
            assert actual[row, j - first].tolist() == pytest.approx(expected, abs=1e-12)
    assert torch.allclose(actual.sum(-1)[masked(LENGTHS)], torch.ones(sum(LENGTHS), dtype=torch.float64), atol=1e-12)


def test_equal_lengths_change_nothing_as_sigma_goes_to_zero():
    z, mask = latents(), masked(SOURCES)
    differences = []
    for sigma in (1.0, 0.3, 0.1, 0.01):
        out = transformation(sigma)(z, mask, torch.tensor(SOURCES), max(SOURCES)).detach()
        differences.append(float((out - z)[mask].abs().max()))
    assert differences == sorted(differences, reverse=True) and differences[0] > 0.1
    assert differences[-1] < 1e-12


def test_other_lengths_read_the_nearest_latent_as_sigma_goes_to_zero():
    """Six positions of three latents: j / 2, rounded, where it is no tie."""
    z = latents(positions=3)[:1]
    out = transformation(1e-3)(z, torch.ones(1, 3, dtype=torch.bool), torch.tensor([6]), 6)
    assert torch.allclose(out[0, [1, 3, 5]], z[0], atol=1e-12)
    assert torch.allclose(out[0, 2], (z[0, 0] + z[0, 1]) / 2, atol=1e-12)


def test_the_gradient_of_sigma_is_that_of_finite_differences():
    z, mask, lengths = latents(), masked(SOURCES), torch.tensor(LENGTHS)
    chosen = torch.randn(len(SOURCES), max(LENGTHS), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def value(log_sigma: float) -> torch.Tensor:
        module = transformation(math.exp(log_sigma))
        return module, (module(z, mask, lengths, max(LENGTHS)) * chosen)[masked(LENGTHS)].sum()

    step = 1e-6
    for place in (-1.0, 0.0, 0.7):
        module, total = value(place)
        assert [name for name, _ in module.named_parameters()] == ["log_sigma"] and module.log_sigma.numel() == 1
        (gradient,) = torch.autograd.grad(total, [module.log_sigma])
        slope = (value(place + step)[1] - value(place - step)[1]) / (2 * step)
        assert gradient.item() == pytest.approx(slope.item(), rel=1e-6) and abs(gradient.item()) > 1e-4


def test_padding_of_the_source_has_no_weight():
    z, mask = latents(), masked(SOURCES)
    module, lengths = transformation(1.3), torch.tensor(LENGTHS)
    wide = torch.nn.functional.pad(z, (0, 0, 0, 4), value=9.0)
    actual = module(wide, masked(SOURCES, 4), lengths, max(LENGTHS) + 2)
    assert torch.allclose(actual[:, : max(LENGTHS)], module(z, mask, lengths, max(LENGTHS)), atol=1e-12)


def test_lengths_come_from_the_mean_of_real_latents():
    head, z, mask = LatentLengthHead(3, 4, 20).double(), latents(), masked(SOURCES)
    memory = memory_of(torch.zeros(3, 5, 2), mask)
    scores = head(memory, z)
    for row, source in enumerate(SOURCES):
        logits = z[row, :source].mean(0) @ head.linear.weight.T + head.linear.bias
        assert torch.allclose(scores[row], logits, atol=1e-12)
        best = max(1, int(logits.argmax()) - 4 + source - 1)
        assert int(head.predict(memory, z=z)[row]) == best == int(head.likely(memory, 3, z=z)[row, 0])
