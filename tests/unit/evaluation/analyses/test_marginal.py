"""Importance sampling against closed forms and quadrature; what influences an estimate, and what must not."""

import dataclasses
import math
import statistics
from types import SimpleNamespace

import miniatures
import pytest
import torch
from miniatures import decode

from workflow_src.evaluation.analyses.marginal import MarginalSettings
from workflow_src.evaluation.analyses.marginal import measure as marginal
from workflow_src.evaluation.analyses.marginal.measure import Estimate
from workflow_src.types import EOS


@dataclasses.dataclass
class Nothing:
    """A memory of no sentence."""

    def select(self, rows):
        return self


class LinearGaussian:
    """z ~ N(mean, deviation^2) at each position, y | z ~ N(slope z + shift, noise^2) on a fine grid of V values.

    On a grid much finer than the noise, sums over it are integrals to all digits: y is N(slope mean + shift,
    slope^2 deviation^2 + noise^2), and the true posterior has precision 1/deviation^2 + slope^2/noise^2.
    """

    grid = torch.arange(-60, 61, dtype=torch.float64) * 0.25

    extra_positions = 0
    config = SimpleNamespace(latent_dim=1)

    def __init__(self, exact: bool, mean=0.4, deviation=1.3, slope=0.8, shift=-0.5, noise=0.9):
        self.exact = exact
        self.mean = mean
        self.deviation = deviation
        self.slope = slope
        self.shift = shift
        self.noise = noise

    def encode(self, source):
        return Nothing()

    def whole_target(self, target):
        return target

    def prior(self, memory, mask):
        ones = torch.ones((*mask.shape, 1), dtype=torch.float64)
        return self.mean * ones, self.deviation * ones

    def posterior(self, memory, target, mask):
        y = self.grid[target][..., None]
        precision = self.deviation**-2 + (self.slope / self.noise) ** 2
        mean = (self.mean / self.deviation**2 + self.slope * (y - self.shift) / self.noise**2) / precision
        deviation = torch.full_like(mean, precision**-0.5)
        return (mean, deviation) if self.exact else (mean + 0.2, 1.4 * deviation)

    def log_likelihood(self, memory, z, target):
        logits = -0.5 * ((self.grid - self.slope * z.double() - self.shift) / self.noise) ** 2
        return logits.log_softmax(-1).gather(-1, target[..., None])[..., 0].sum(1)

    def log_probability(self, tokens):
        deviation = math.hypot(self.slope * self.deviation, self.noise)
        y = self.grid[torch.tensor(tokens)]
        density = torch.distributions.Normal(self.slope * self.mean + self.shift, deviation).log_prob(y)
        return float((density + math.log(0.25)).sum())


def estimates(model, outputs, samples=400, seed=1, sentence=0, chunk=64, source=(5, EOS)):
    settings = MarginalSettings(samples=samples, seed=seed, chunk=chunk)
    return marginal.marginals(model, source, outputs, settings, sentence, torch.device("cpu"))


OUTPUT = [58, 63, 50, 61]


def test_with_the_true_posterior_one_weight_is_as_good_as_all():
    model = LinearGaussian(exact=True)
    (estimate,) = estimates(model, [OUTPUT])
    # Latents reach the decoder in float32.
    assert estimate.value == pytest.approx(model.log_probability(OUTPUT), abs=1e-5)
    assert estimate.error < 1e-6
    assert estimate.effective == pytest.approx(400, rel=1e-5)


def test_another_posterior_gives_the_same_within_its_error_and_the_error_is_right():
    model = LinearGaussian(exact=False)
    runs = [estimates(model, [OUTPUT], samples=300, seed=seed)[0] for seed in range(150)]
    true = model.log_probability(OUTPUT)
    deviation = statistics.stdev(run.value for run in runs)
    assert abs(statistics.fmean(run.value for run in runs) - true) < 3 * deviation / 150**0.5 + 0.5 * deviation**2
    assert statistics.fmean(run.error for run in runs) == pytest.approx(deviation, rel=0.2)
    assert all(1 < run.effective < 300 for run in runs)


def test_a_models_own_marginal_is_the_integral_over_its_latent():
    model = miniatures.lvm(latent_dim=1)
    source, target = [4, 7, 5, EOS], [6]
    memory = model.encode(torch.tensor([source]))
    mask = torch.ones((1, 1), dtype=torch.bool)
    mean, deviation = (float(part.detach()) for part in model.prior(memory, mask))
    z = mean + deviation * torch.linspace(-9, 9, 2001, dtype=torch.float64)
    rows = torch.zeros(len(z), dtype=torch.long)
    with torch.no_grad():
        scores = decode(model, memory.select(rows), z[:, None, None], mask.expand(len(z), -1)).log_softmax(-1)
    density = torch.distributions.Normal(mean, deviation).log_prob(z).exp()
    integral = torch.trapezoid(scores[:, 0, target[0]].exp() * density, z)
    (estimate,) = estimates(model, [target], samples=4000, source=source, chunk=1000)
    assert estimate.value == pytest.approx(math.log(integral), abs=4 * estimate.error + 1e-6)
    assert estimate.error < 0.05


def test_with_an_end_symbol_an_output_is_its_words_and_one_end_symbol():
    """The same weights in a model that knows of the end symbol, and in one that reads it as any other word."""
    with_end, without_end = miniatures.lvm(end_symbol=True), miniatures.lvm()
    outputs = [[4, 5, 6], [7], [9, 9, 9, 9], []]
    actual = estimates(with_end, outputs, samples=60, chunk=17)
    expected = estimates(without_end, [[*output, EOS] for output in outputs], samples=60, chunk=17)
    assert actual == expected
    assert len({estimate.value for estimate in actual}) == 4


def test_chunks_and_company_change_nothing():
    model = miniatures.lvm()
    outputs = [[4, 5, 6], [7, 8], [4, 5, 6], [9, 9, 9]]
    together = estimates(model, outputs, samples=50, chunk=50)
    assert together[0] == together[2]
    alone = [estimates(model, [output], samples=50, chunk=50)[0] for output in outputs]
    assert together == alone
    for chunk in (1, 7, 1000):
        for one, other in zip(together, estimates(model, outputs, samples=50, chunk=chunk), strict=True):
            assert dataclasses.astuple(one) == pytest.approx(dataclasses.astuple(other), rel=1e-9)


def test_never_more_than_a_chunk_is_decoded_together(monkeypatch):
    model, sizes = miniatures.lvm(), []
    hidden = model.hidden
    monkeypatch.setattr(model, "hidden", lambda memory, z, mask: sizes.append(len(z)) or hidden(memory, z, mask))
    estimates(model, [[4, 5]], samples=50, chunk=16)
    assert sizes == [16, 16, 16, 2]


def test_the_noise_of_a_sentence_depends_on_seed_and_sentence_alone():
    draw = lambda seed, sentence: torch.randn(4, generator=marginal.sentence_generator(seed, sentence))  # noqa: E731
    assert torch.equal(draw(1, 2), draw(1, 2))
    draws = [draw(2, 1), draw(1, 3), draw(12, 2), draw(1, 22)]
    assert not any(torch.equal(draw(1, 2), other) for other in draws)


def test_weights_of_any_size_are_safe():
    estimate = marginal.estimate(torch.tensor([-2000.0, -2001.0, -3000.0], dtype=torch.float64))
    assert estimate.value == pytest.approx(-2000 + math.log((1 + math.exp(-1)) / 3))
    assert math.isfinite(estimate.error) and 1 < estimate.effective < 2


def test_a_point_pairs_sentences():
    start = [Estimate(-5.0, 0.3, 10), Estimate(-9.0, 0.4, 30), Estimate(-7.0, 0.0, 20)]
    later = [Estimate(-4.0, 0.0, 10), Estimate(-9.5, 0.6, 40), Estimate(-7.0, 0.0, 20)]
    figures = marginal.point(2, later, start)
    assert figures["log_probability"] == pytest.approx(-20.5 / 3)
    assert figures["error"] == pytest.approx(0.6 / 3)
    assert figures["gain"] == pytest.approx(0.5 / 3)
    assert figures["gain_error"] == pytest.approx(statistics.stdev([1.0, -0.5, 0.0]) / 3**0.5)
    assert (figures["risen"], figures["fallen"], figures["effective_samples"]) == (1 / 3, 1 / 3, 20)
    alone = marginal.point(0, start[:1], start[:1])
    assert alone["gain"] == alone["gain_error"] == 0
