from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from miniatures import context, decode, figure, gradients, lvm, one, pairs
from torch.distributions import Normal, kl_divergence

from workflow_src.families.lvm.objective import elbo_loss
from workflow_src.losses.common import budget, length_loss
from workflow_src.losses.draws import normal, sentence_keys
from workflow_src.losses.latents import evidence_lower_bound
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import EOS, Batch

LENGTHS = [3, 5, 1]


@pytest.fixture(scope="module")
def model():
    return lvm()


@pytest.fixture(scope="module")
def batch():
    return pairs([4, 1, 6], LENGTHS)


def noise_of(seed: int, shape=(3, 5, 3), dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sentence_terms(model, single: Batch, noise, smoothing: float, end: bool = False):
    """One sentence without padding: smoothed and plain reconstruction, KL (T,), length loss.

    With `end`, an end symbol is written behind the target's words, whose number is the length.
    """
    target = torch.tensor([[*single.target[0].tolist(), EOS]]) if end else single.target
    memory, mask = model.encode(single.source), torch.ones_like(target, dtype=torch.bool)
    q = Normal(*model.posterior(memory, target, mask))
    p = Normal(*model.prior(memory, mask))
    logits = decode(model, memory, q.mean + q.stddev * noise, mask)[0]
    smooth = F.cross_entropy(logits, target[0], label_smoothing=smoothing, reduction="sum")
    plain = F.cross_entropy(logits, target[0], reduction="sum")
    difference = single.target.size(1) - (single.source.size(1) - 1)
    limit = model.length.limit
    length = -model.length(memory)[0].log_softmax(-1)[max(-limit, min(limit, difference)) + limit]
    return smooth, plain, kl_divergence(q, p).sum(-1)[0], length


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("smoothing, free, weight", [(0.1, 1.0, 1.0), (0.0, 0.0, 0.5), (0.1, 0.3, 0.2), (0.1, 50.0, 1)])
def test_loss_and_gradients_against_a_naive_computation(batch, smoothing, free, weight, end):
    model = lvm(end_symbol=end)
    config = ElboConfig(label_smoothing=smoothing, kl_budget=free, length_weight=weight)
    terms = elbo_loss(model, batch, context(seed=7), config)
    noise, positions = normal(sentence_keys(batch, 7), (5 + end, 3)), sum(LENGTHS) + 3 * end
    loss, plain, divergence, nll_length = 0.0, 0.0, 0.0, 0.0
    for row, length in enumerate(LENGTHS):
        own_noise = noise[row : row + 1, : length + end]
        smooth, exact, kl, row_length_loss = sentence_terms(model, one(batch, row), own_noise, smoothing, end)
        assert len(kl) == length + end
        loss = loss + smooth + sum(torch.clamp(value, min=free) for value in kl) + weight * row_length_loss
        plain, divergence, nll_length = plain + exact, divergence + kl.sum(), nll_length + row_length_loss
    assert terms.count == positions
    assert terms.loss.item() == pytest.approx(loss.item() / positions, rel=1e-12)
    figures = terms.figures
    assert figures["nll"].item() == pytest.approx(plain.item() / positions, rel=1e-12)
    assert figures["kl"].item() == pytest.approx(divergence.item() / positions, rel=1e-12), "logged without free nats"
    assert figure(terms, "length_nll") == pytest.approx(nll_length.item() / 3, rel=1e-12)
    assert figures["kl_budget"] == free
    grads, expected = gradients(model, terms.loss), gradients(model, loss / positions)
    for name, gradient in grads.items():
        assert torch.allclose(gradient, expected[name], atol=1e-11), name


def test_the_budget_holds_for_each_position_and_not_for_the_sum(batch):
    """A budget between the smallest and the largest KL of a position lifts only the smaller ones."""
    model = lvm(end_symbol=False)
    free = [sentence_terms(model, one(batch, row), 0.0, 0.1)[2] for row in range(3)]
    kl = torch.cat(free).detach()
    middle = kl.median().item()
    assert kl.min() < middle < kl.max()
    losses = [elbo_loss(model, batch, context(), ElboConfig(kl_budget=b)).loss.item() for b in (0.0, middle)]
    assert (losses[1] - losses[0]) * 9 == pytest.approx((middle - kl).clamp(min=0).sum().item(), rel=1e-9)


def test_exact_lengths_are_counted(model):
    # Sources longer than the largest difference, so that no predicted length was raised to 1.
    sources = [6, 9, 7]
    lengths = model.length.predict(model.encode(pairs(sources, [1, 1, 1]).source)).tolist()
    shares = []
    for change in (0, 1):
        data = pairs(sources, [lengths[0], lengths[1] + 9, lengths[2] + change])
        shares.append(figure(elbo_loss(model, data, context(), ElboConfig()), "length_accuracy"))
    assert shares == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize("smoothing", [0.3, 1.0, 2.5])
def test_soft_length_labels_against_an_explicit_formula(model, batch, smoothing):
    """Cross-entropy with weights exp(-(d - d*)^2 / 2 s^2), normalised over the classes there are."""
    memory, limit = model.encode(batch.source), model.length.limit
    actual, exact = length_loss(model.length, memory, batch, smoothing)
    expected = 0.0
    for row, length in enumerate(LENGTHS):
        logs = model.length(memory)[row].log_softmax(-1)
        true_difference = max(-limit, min(limit, length - int(batch.source_mask[row].sum()) + 1))
        weights = [math.exp(-((d - true_difference) ** 2) / (2 * smoothing**2)) for d in range(-limit, limit + 1)]
        expected -= sum(weight * log for weight, log in zip(weights, logs, strict=True)) / sum(weights)
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)
    hard, same = length_loss(model.length, memory, batch)
    assert exact == same and actual.item() != pytest.approx(hard.item(), rel=1e-4)


def test_length_labels_of_a_vanishing_deviation_are_hard(model, batch):
    memory = model.encode(batch.source)
    hard, _ = length_loss(model.length, memory, batch)
    for smoothing in (0.05, 1e-6, 1e-30):
        soft, _ = length_loss(model.length, memory, batch, smoothing)
        assert soft.item() == pytest.approx(hard.item(), rel=1e-12)


def test_the_length_smoothing_reaches_the_objective(model, batch):
    memory = model.encode(batch.source)
    soft, _ = length_loss(model.length, memory, batch, 1.5)
    terms = elbo_loss(model, batch, context(), ElboConfig(length_smoothing=1.5))
    assert figure(terms, "length_nll") == pytest.approx(soft.item() / 3, rel=1e-12)


@pytest.mark.parametrize(
    "progress, wanted", [(0.0, 1.0), (0.05, 1.0), (0.1, 1.0), (0.175, 0.75), (0.25, 0.5), (0.4, 0.0), (0.7, 0.0)]
)
def test_by_default_the_budget_is_full_for_a_tenth_and_gone_after_two_fifths(progress, wanted):
    assert budget(ElboConfig(), progress) == pytest.approx(wanted)


def test_budgets_of_other_settings():
    assert budget(ElboConfig(budget_hold=1.0, budget_until=1.0), 1.0) == 1.0
    config = ElboConfig(budget_hold=0.0, budget_until=1.0, kl_budget=2.0, budget_end=1.0)
    assert budget(config, 0.5) == pytest.approx(1.5)
    # Without a slope it falls at once.
    steep = ElboConfig(budget_hold=0.3, budget_until=0.3, kl_budget=2.0, budget_end=0.5)
    assert [budget(steep, progress) for progress in (0.29, 0.3, 0.9)] == [2.0, 0.5, 0.5]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_budget_never_rises(one_share, other_share, first, second):
    hold, until = sorted((one_share, other_share))
    config = ElboConfig(budget_hold=hold, budget_until=until)
    early, late = sorted((first, second))
    assert 1.0 >= budget(config, early) >= budget(config, late) >= 0.0


def test_a_budget_that_ends_before_it_falls_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"budget_until is 0\.4"):
        ElboConfig(budget_hold=0.5)


def test_progress_reaches_the_objective(model, batch):
    objective = functools.partial(elbo_loss, config=ElboConfig(budget_hold=0.5, budget_until=1.0))
    figures = [objective(model, batch, context(step=s)).figures["kl_budget"] for s in (0, 50, 75, 100)]
    assert figures == pytest.approx([1.0, 1.0, 0.5, 0.0])


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
def test_bound_against_a_naive_computation(batch, samples, end):
    model, keys = lvm(end_symbol=end), torch.arange(3)
    bound, kl = evidence_lower_bound(model, model.encode(batch.source), batch, samples, keys)
    noises = [normal(keys, (5 + end, 3), stream) for stream in range(samples)]
    for row, length in enumerate(LENGTHS):
        row_noises = [noise[row : row + 1, : length + end].double() for noise in noises]
        terms = [sentence_terms(model, one(batch, row), noise, 0.0, end) for noise in row_noises]
        divergence = terms[0][2].sum().item()
        likelihood = -sum(term[1].item() for term in terms) / samples
        assert kl[row].item() == pytest.approx(divergence, rel=1e-12)
        assert bound[row].item() == pytest.approx(likelihood - divergence, rel=1e-12)
    assert not bound.requires_grad


class OneLatent:
    """One word with one latent of width 1: p(z) = N(0.3, 1.2²), q(z|y) = N(0.8, 0.5²), logits linear in z."""

    slopes = torch.tensor([0.0, 1.5, -2.0], dtype=torch.float64)

    def whole_target(self, target):
        return target

    def batch_mask(self, batch):
        return batch.target_mask

    def _normal(self, mask, mean, deviation):
        shape = (*mask.shape, 1)
        return tuple(torch.full(shape, value, dtype=torch.float64) for value in (mean, deviation))

    def prior(self, _memory, mask):
        return self._normal(mask, 0.3, 1.2)

    def posterior(self, _memory, _target, mask):
        return self._normal(mask, 0.8, 0.5)

    def log_likelihood(self, _memory, z, target):
        return (z * self.slopes).log_softmax(-1).gather(-1, target[..., None])[..., 0].sum(1)


def test_bound_and_divergence_from_the_true_posterior_give_the_marginal():
    """log p(y) = ELBO + KL(q || p(z|y)), the right side's integrals and log p(y) by quadrature over z."""
    model, grid = OneLatent(), torch.linspace(-12, 12, 20001, dtype=torch.float64)
    width = grid[1] - grid[0]
    joint = Normal(0.3, 1.2).log_prob(grid) + (grid[:, None] * model.slopes).log_softmax(-1)[:, 1]
    marginal = torch.logsumexp(joint, 0) + width.log()
    log_q = Normal(0.8, 0.5).log_prob(grid)
    gap = (log_q.exp() * (log_q - (joint - marginal))).sum() * width
    many = 20_000
    batch = Batch(torch.full((many, 1), 2), torch.ones(many, 1, dtype=torch.int64))
    bound, kl = evidence_lower_bound(model, None, batch, 2, torch.arange(many))
    assert gap > 0.05, "a test in which the bound is not tight"
    assert bound.mean().item() == pytest.approx((marginal - gap).item(), abs=0.01)
    assert kl[0].item() == pytest.approx(math.log(1.2 / 0.5) + (0.25 + 0.25) / (2 * 1.44) - 0.5, rel=1e-12)
