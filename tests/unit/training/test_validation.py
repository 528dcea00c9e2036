"""Dev figures: against direct computation, within their bounds, and the same each time."""

import math

import pytest
import sacrebleu
import torch

import workflow_src.families.lvm.validation as lvm
import workflow_src.families.transformer.validation as transformer
from workflow_src.data.batching import collate
from workflow_src.data.lines import read_lines
from workflow_src.families import refiners
from workflow_src.families.build import build
from workflow_src.families.lvm import ElboConfig
from workflow_src.losses.settings import CrossEntropyConfig, ScoreMatchingConfig
from workflow_src.nn.weights import weights_of
from workflow_src.searches.greedy.search import greedy
from workflow_src.training.dev import Dev
from workflow_src.training.systems import load_system
from workflow_src.types import Hypotheses


@pytest.fixture(scope="module")
def dev(tiny, runtime):
    references = list(read_lines(tiny.corpus / "dev.reference.en"))
    return Dev(tiny.dev, references, tiny.subwords.decode_target, runtime, 5)


def untrained(family, tiny, tiny_settings, **model):
    torch.manual_seed(8)
    return build(family, tiny_settings(family, model=model)["model"], tiny.sizes).eval()


def same_twice(validation, model):
    """Figures twice, with other random numbers drawn between; nothing of training is touched."""
    weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    torch.manual_seed(1)
    first, drawn = validation.figures(model), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.get_rng_state())
    torch.rand(100)
    assert validation.figures(model) == first
    assert validation.criterion in first
    assert all(torch.equal(tensor, weights[name]) for name, tensor in weights_of(model).items())
    assert all(parameter.grad is None for parameter in model.parameters())
    return first


def test_bleu_of_the_references_themselves_is_100(dev, tiny):
    rows = {tuple(tiny.dev.source(row).tolist()): tiny.dev.target(row).tolist() for row in range(8)}

    def oracle(source):
        return Hypotheses([rows[tuple(i for i in line if i > 2)] for line in source.tolist()], [0.0] * len(source))

    assert dev.bleu(oracle) == pytest.approx(100)
    assert dev.bleu(lambda source: Hypotheses([[] for _ in source], [0.0] * len(source))) == 0


def test_dev_batches_hold_every_pair_once_in_one_order(dev):
    orders = [[batch.indices for batch in dev.batches()] for _ in range(2)]
    assert orders[0] == orders[1] and sorted(row for rows in orders[0] for row in rows) == list(range(8))


def test_transformer_figures_are_those_of_sentences_one_by_one(dev, tiny, systems):
    model, _ = load_system(systems["transformer"])
    figures = same_twice(transformer.validate(dev, CrossEntropyConfig()), model)
    total = tokens = 0
    hypotheses = []
    with torch.no_grad():
        for row in range(8):
            batch = collate(tiny.dev, [row])
            total -= float(model.log_probabilities(batch.source, batch.target).double().sum())
            tokens += batch.target.numel() + 1
            hypotheses += greedy(model, batch.source).tokens
    assert figures["dev_loss"] == pytest.approx(total / tokens, rel=1e-5)
    lines = tiny.subwords.decode_target(hypotheses[:5])
    assert figures["dev_bleu"] == pytest.approx(sacrebleu.corpus_bleu(lines, [dev.references[:5]]).score)


def test_an_untrained_transformer_is_about_as_good_as_chance(dev, tiny, tiny_settings):
    figures = transformer.validate(dev, CrossEntropyConfig()).figures(untrained("transformer", tiny, tiny_settings))
    assert 0.5 * math.log(62) < figures["dev_loss"] < 2 * math.log(62) and figures["dev_bleu"] < 10


@pytest.mark.parametrize("end", [False, True])
def test_lvm_figures_are_sane(dev, tiny, tiny_settings, end):
    model = untrained("lvm", tiny, tiny_settings, end_symbol=end)
    figures = same_twice(lvm.validate(dev, ElboConfig()), model)
    assert figures["dev_elbo"] < 0 <= figures["dev_kl"]
    assert 0 <= figures["dev_length_accuracy"] <= 1
    assert 0 <= figures["dev_bleu"] <= 100 and 0 <= figures["dev_bleu_posterior"] <= 100
    more = lvm.validate(dev, ElboConfig(dev_samples=20)).figures(model)
    assert more["dev_kl"] == pytest.approx(figures["dev_kl"]) and more["dev_elbo"] != figures["dev_elbo"]
    assert more["dev_elbo"] == pytest.approx(figures["dev_elbo"], rel=0.05)


def test_lvm_figures_with_end_symbols_are_those_of_sentences_one_by_one(dev, tiny, tiny_settings):
    """ELBO and KL a position, the end symbol's counted; its reconstruction is exact where the posterior is certain."""
    model = untrained("lvm", tiny, tiny_settings, end_symbol=True)
    with torch.no_grad():
        model.posterior_head.linear.weight[4:] = 0
        model.posterior_head.linear.bias[4:] = -60
        # Some positions are said to be empty.
        model.output_bias[2] += 0.3
    figures = same_twice(lvm.validate(dev, ElboConfig(dev_samples=1)), model)
    bound = divergence = positions = 0.0
    translations = []
    with torch.no_grad():
        for row in range(8):
            batch = collate(tiny.dev, [row])
            target = torch.tensor([[*tiny.dev.target(row).tolist(), 2]])
            mask, memory = torch.ones_like(target, dtype=torch.bool), model.encode(batch.source)
            p, q = (torch.distributions.Normal(*found) for found in (
                model.prior(memory, mask), model.posterior(memory, target, mask)))  # fmt: skip
            kl = float(torch.distributions.kl_divergence(q, p).sum())
            logits = model.decode(memory, q.mean, mask)[0]
            likelihood = -float(torch.nn.functional.cross_entropy(logits, target[0], reduction="sum"))
            bound, divergence, positions = bound + likelihood - kl, divergence + kl, positions + target.size(1)
            best = logits[:, 2:].argmax(-1) + 2
            translations.append([token for token in best.tolist() if token != 2])
    assert figures["dev_kl"] == pytest.approx(divergence / positions, rel=1e-5)
    assert figures["dev_elbo"] == pytest.approx(bound / positions, rel=1e-4)
    lines = tiny.subwords.decode_target(translations[:5])
    assert figures["dev_bleu_posterior"] == pytest.approx(sacrebleu.corpus_bleu(lines, [dev.references[:5]]).score)


class Copying:
    """A latent-variable model whose latent is the target itself: q copies y, the decoder reads it, p knows nothing."""

    def __init__(self, model, size):
        self.model, self.size = model, size

    def __getattr__(self, name):
        return getattr(self.model, name)

    def posterior(self, memory, target, mask):
        z = torch.nn.functional.one_hot(target, self.size).float()
        return z, torch.full_like(z, 1e-3)

    def prior(self, memory, mask):
        z = torch.zeros(*mask.shape, self.size)
        z[..., 7] = 1
        return z, torch.ones_like(z)

    def decode(self, memory, z, mask):
        return 50 * z


@pytest.mark.parametrize("end", [False, True])
def test_posterior_bleu_is_100_when_latents_carry_the_sentence(dev, tiny, tiny_settings, end):
    model = Copying(untrained("lvm", tiny, tiny_settings, end_symbol=end), tiny.sizes["target"])
    figures = lvm.validate(dev, ElboConfig()).figures(model)
    assert figures["dev_bleu_posterior"] == pytest.approx(100) and figures["dev_bleu"] < 10
    # The reconstruction is certain, so the bound is all KL; at each position
    # KL = (sum of v + |difference|^2 - 1 - log v) / 2 with difference 2 (or 0 where the word is number 7).
    v = 1e-6
    count = tiny.dev.target_lengths.sum() + 8 * end
    different = sum((tiny.dev.target(row) != 7).sum() for row in range(8)) + 8 * end
    kl = 0.5 * (62 * (v - 1 - math.log(v)) + 2 * different / count)
    assert tiny.sizes["target"] == 62
    assert figures["dev_kl"] == pytest.approx(kl, rel=1e-4)
    assert figures["dev_elbo"] == pytest.approx(-kl, rel=1e-4)


@pytest.mark.parametrize("family", ["score", "energy"])
def test_refiner_figures_are_sane(dev, tiny, tiny_settings, frozen, family):
    model = untrained(family, tiny, tiny_settings)
    figures = same_twice(refiners.validate(dev, ScoreMatchingConfig(), frozen.eval()), model)
    assert -1 <= figures["dev_cosine"] <= 1 and -1 <= figures["dev_cosine_noise0"] <= 1
    assert figures["dev_squared_error"] >= 0 and figures["dev_offset_norm"] > 0
    assert all(math.isfinite(value) for value in figures.values())


class Perfect(torch.nn.Module):
    """A refiner that knows where delta goes, or stays, or goes the other way."""

    def __init__(self, frozen, sign):
        super().__init__()
        self.frozen, self.sign = frozen, sign

    def direction(self, memory, z, mask, differentiable=False):
        from workflow_src.decoding.latent import delta_step, refine

        return self.sign * (refine(z, delta_step(self.frozen, memory, mask), 4) - z)


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_cosine_and_error_of_a_perfect_and_of_a_contrary_refiner(dev, frozen, sign):
    figures = refiners.validate(dev, ScoreMatchingConfig(), frozen.eval()).figures(Perfect(frozen, sign))
    assert figures["dev_cosine"] == pytest.approx(sign, abs=1e-5)
    assert figures["dev_cosine_noise0"] == pytest.approx(sign, abs=1e-5)
    if sign == 1:
        assert figures["dev_squared_error"] == pytest.approx(0, abs=1e-9)
