"""Operators from logits to distributions, and energies of distributions, against formulas and log-likelihoods."""

from __future__ import annotations

import pytest
import torch
import yaml
from miniatures import lively, one, padded, pairs
from torch.autograd.functional import jacobian

from workflow_src.families.build import build
from workflow_src.losses.draws import gumbel
from workflow_src.losses.relaxed import HARD, NOISY, energies, relaxed
from workflow_src.losses.settings import RelaxedEnergyConfig
from workflow_src.registry import families
from workflow_src.spec import AUTOREGRESSIVE
from workflow_src.types import EOS, PAD

OPERATORS = ("SX", "STL", "SG", "ST", "GX")
# Models made elsewhere read text, not distributions.
SCORERS = [n for n, family in families().items() if AUTOREGRESSIVE in family.traits and not family.imported]
SIZE = 11


def scorer(family: str):
    torch.manual_seed(3)
    settings = yaml.safe_load(families()[family].presets.read_text(encoding="utf-8"))["miniature"]
    return lively(build(family, settings, {"source": 13, "target": SIZE, "joint": False}), 3, 0.3)


def logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_settings_allow_the_operators_of_the_paper():
    for name in ("input_operator", "output_operator"):
        assert RelaxedEnergyConfig.model_fields[name].annotation.__args__ == OPERATORS
    assert HARD | NOISY | {"SX"} == set(OPERATORS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_backward_pass_is_the_jacobian_of_table_1(operator):
    z, noise = logits(5), gumbel(torch.tensor([7]), (5,))[0]
    actual = jacobian(lambda x: relaxed(operator, x, noise), z)
    moved = z + noise if operator in ("SG", "GX") else z
    q = moved.exp() / moved.exp().sum()
    # dq_i / dz_j = q_i (1[i = j] - q_j)
    expected = torch.eye(5, dtype=torch.float64) if operator == "STL" else torch.diag(q) - torch.outer(q, q)
    assert torch.allclose(actual, expected, atol=1e-14)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_forward_pass_is_a_distribution_or_a_word(operator):
    z, noise = logits(4, 3, 6), gumbel(torch.arange(4), (3, 6))
    actual = relaxed(operator, z, noise)
    moved = z + noise if operator in ("SG", "GX") else z
    if operator in ("SX", "GX"):
        assert torch.allclose(actual, torch.exp(moved - moved.logsumexp(-1, keepdim=True)), atol=1e-15)
    else:
        # Exactly one-hot: nothing is left of the difference that carries the gradient.
        assert torch.equal(actual, torch.nn.functional.one_hot(moved.argmax(-1), 6).double())
    assert torch.equal(actual.argmax(-1), moved.argmax(-1))


def test_gumbel_numbers_have_their_distribution():
    """The largest of z + g is category i with probability softmax(z)_i."""
    draws = gumbel(torch.arange(60000), (3,), stream=2)
    z = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)
    shares = torch.bincount((z + draws).argmax(-1)) / len(draws)
    # Standard error of a share: 0.002.
    assert torch.allclose(shares.double(), z.softmax(-1), atol=0.008)


@pytest.mark.parametrize("family", SCORERS)
def test_with_one_hot_distributions_the_energy_is_the_negative_log_likelihood(family):
    model, batch = scorer(family), pairs([4, 1, 6], [3, 5, 1])
    words = torch.nn.functional.one_hot(batch.target, SIZE).double()
    mask = batch.target != PAD
    energy = energies(model, model.encode(batch.source), words, words, mask)
    expected = -model.log_probabilities(batch.source, batch.target)
    assert energy.shape == (3, 6) and torch.allclose(energy, expected, atol=1e-12)
    # The end symbol is counted, and nothing behind it.
    assert (energy[2, 2:] == 0).all() and (energy[2, :2] > 0).all()
    log_probability = model.log_probability(model.scoring_states(batch.source), batch.target)
    assert torch.allclose(energy.sum(1), -log_probability, atol=1e-12)


@pytest.mark.parametrize("family", SCORERS)
@torch.no_grad()
def test_the_energy_is_linear_in_what_is_scored(family):
    """Of a word that is not decided, the mean of the energies of its values; the words before it are decided."""
    model, batch = scorer(family), pairs([4], [3])
    fed = torch.nn.functional.one_hot(batch.target, SIZE).double()
    chosen, mask = logits(1, 3, SIZE).softmax(-1), torch.ones(1, 3, dtype=torch.bool)
    energy = energies(model, model.encode(batch.source), fed, chosen, mask)[0]
    for position in range(3):
        total = 0.0
        for word in range(3, SIZE):
            changed = batch.target.clone()
            changed[0, position] = word
            total -= chosen[0, position, word] * model.log_probabilities(batch.source, changed)[0, position]
        words_only = chosen.clone()
        words_only[..., :3] = 0
        words_energy = energies(model, model.encode(batch.source), fed, words_only, mask)[0]
        assert words_energy[position].item() == pytest.approx(float(total), rel=1e-12)
    assert energy[3].item() == pytest.approx(-model.log_probabilities(batch.source, batch.target)[0, 3].item())


@pytest.mark.parametrize("family", SCORERS)
@torch.no_grad()
def test_padding_and_company_change_no_energy(family):
    model, batch = scorer(family), pairs([4, 1, 6], [3, 5, 1])
    read, chosen = logits(3, 5, SIZE).softmax(-1), logits(3, 5, SIZE, seed=1).softmax(-1)
    mask = batch.target != PAD
    together = energies(model, model.encode(batch.source), read, chosen, mask)
    longer = [torch.nn.functional.pad(x, (0, 0, 0, 3)) for x in (read, chosen)]
    padded_energy = energies(model, model.encode(padded(batch).source), *longer, torch.nn.functional.pad(mask, (0, 3)))
    assert torch.allclose(padded_energy[:, :6], together, atol=1e-12) and (padded_energy[:, 6:] == 0).all()
    for row in range(3):
        single, length = one(batch, row), int(mask[row].sum())
        tensors = (x[row : row + 1, :length] for x in (read, chosen, mask))
        energy = energies(model, model.encode(single.source), *tensors)[0]
        assert torch.allclose(energy, together[row, : length + 1], atol=1e-12)


@pytest.mark.parametrize("family", SCORERS)
def test_gradients_reach_distributions_through_a_frozen_scorer(family):
    """Against differences of the energy: what is read and what is scored both matter."""
    model = scorer(family).requires_grad_(False)
    batch, mask = pairs([4], [3]), torch.ones(1, 3, dtype=torch.bool)
    read, chosen = (logits(1, 3, SIZE, seed=seed).softmax(-1).requires_grad_() for seed in (0, 1))

    def energy(*distributions):
        return energies(model, model.encode(batch.source), *distributions, mask).sum()

    assert torch.autograd.gradcheck(energy, (read, chosen), eps=1e-6, atol=1e-7)
    # The word before the end is read, the end symbol's probability depends on it.
    gradient = torch.autograd.grad(
        -torch.log_softmax(model.relaxed_logits(model.scoring_states(batch.source), read), -1)[0, 3, EOS], read
    )[0]
    assert gradient[0, 2].abs().max() > 0
