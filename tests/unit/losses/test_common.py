from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.losses import common
from workflow_src.losses.common import gaussian_kl, smoothed_cross_entropy


@pytest.mark.parametrize(
    ("kl", "prior", "posterior", "words"),
    [
        (0.03, 28.5, 28.6, "their KL on dev is 0.03 nats, and the posterior mean gives +0.1 BLEU; keep more of"),
        (0.0, 30.0, 29.5, "the posterior mean gives -0.5 BLEU"),
        (0.5, 30.0, 30.1, None),
        (0.03, 28.5, 40.0, None),
    ],
)
def test_latents_have_collapsed_where_they_cost_and_carry_nothing(kl, prior, posterior, words):
    actual = common.collapsed({"dev_kl": kl, "dev_bleu": prior, "dev_bleu_posterior": posterior})
    assert (words in actual) if words else actual is None


def problem(rows: int, dim: int = 5, classes: int = 7, seed: int = 0, dtype=torch.float64, scale: float = 1.0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: (scale * torch.randn(shape, generator=generator, dtype=dtype)).requires_grad_()  # noqa: E731
    return draw(rows, dim), draw(classes, dim), draw(classes), torch.randint(classes, (rows,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.01, 0.1, 0.9])
@pytest.mark.parametrize("cells", [1, 7 * 64, 2**20])
def test_values_and_gradients_are_torchs(monkeypatch, smoothing, cells):
    """150 rows in blocks of 64 (the least), of 64 again and of all rows at once."""
    monkeypatch.setattr(common, "CPU_CELLS", cells)
    hidden, weight, bias, labels = problem(150, scale=2.0)
    loss, nll = smoothed_cross_entropy(hidden, weight, bias, labels, smoothing)
    logits = hidden @ weight.T + bias
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert nll.item() == pytest.approx(F.cross_entropy(logits, labels, reduction="sum").item(), rel=1e-12)
    inputs = (hidden, weight, bias)
    # A factor, because losses are divided by their counts.
    grads, target = torch.autograd.grad(loss / 3, inputs), torch.autograd.grad(expected / 3, inputs)
    for a, b in zip(grads, target, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("cells", [1, 2**20])
def test_positions_that_do_not_count_change_nothing(monkeypatch, smoothing, cells):
    monkeypatch.setattr(common, "CPU_CELLS", cells)
    hidden, weight, bias, labels = problem(300)
    counted = torch.rand(300, generator=torch.Generator().manual_seed(1)) < 0.4
    masked = smoothed_cross_entropy(hidden, weight, bias, labels, smoothing, counted)
    left_out = smoothed_cross_entropy(hidden[counted], weight, bias, labels[counted], smoothing)
    assert torch.allclose(torch.stack(masked), torch.stack(left_out), rtol=1e-12)
    for a, b in zip(
        *(torch.autograd.grad(part[0], (hidden, weight, bias)) for part in (masked, left_out)), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-12)


def test_the_plain_likelihood_carries_no_gradient():
    hidden, weight, bias, labels = problem(3)
    assert not smoothed_cross_entropy(hidden, weight, bias, labels, 0.1)[1].requires_grad


def test_extreme_logits_stay_finite():
    hidden, weight, bias, labels = problem(20, dtype=torch.float32, scale=200.0)
    loss, nll = smoothed_cross_entropy(hidden, weight, bias, labels, 0.1)
    loss.backward()
    expected = F.cross_entropy((hidden @ weight.T + bias).double(), labels, reduction="sum")
    assert nll.item() == pytest.approx(expected.item(), rel=1e-5)
    assert all(torch.isfinite(x.grad).all() for x in (hidden, weight, bias))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_under_bfloat16_autocast(smoothing):
    hidden, weight, bias, labels = problem(200, dim=32, classes=50, dtype=torch.float32, scale=0.5)
    inputs = (hidden, weight, bias)
    expected = F.cross_entropy(hidden @ weight.T + bias, labels, label_smoothing=smoothing, reduction="sum")
    target = torch.autograd.grad(expected, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = smoothed_cross_entropy(hidden, weight, bias, labels, smoothing)
        in_bfloat16, _ = smoothed_cross_entropy(hidden.bfloat16(), weight, bias, labels, smoothing)
    grads = torch.autograd.grad(loss, inputs)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=2e-3)
    assert in_bfloat16.item() == pytest.approx(expected.item(), rel=2e-3)
    for a, b in zip(grads, target, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.01 * b.norm()


@given(st.integers(0, 1000))
def test_gaussian_kl_is_that_of_torch_distributions(seed):
    generator = torch.Generator().manual_seed(seed)
    means = [torch.randn(2, 3, 4, generator=generator, dtype=torch.float64) for _ in range(2)]
    deviations = [torch.randn(2, 3, 4, generator=generator, dtype=torch.float64).exp() for _ in range(2)]
    q, p = (torch.distributions.Normal(m, d) for m, d in zip(means, deviations, strict=True))
    expected = torch.distributions.kl_divergence(q, p).sum(-1)
    losses = gaussian_kl(means[0], deviations[0], means[1], deviations[1])
    assert losses.shape == (2, 3)
    assert torch.allclose(losses, expected, rtol=1e-12, atol=1e-12)
    assert (losses >= 0).all()
