from __future__ import annotations

import functools

import pytest
import torch
from miniatures import context, figure, gradients, lvm, memory_of, padded, pairs, refiner
from torch import nn

from workflow_src import registry
from workflow_src.decoding.refinement import delta_step
from workflow_src.families.energy.model import EnergyNetwork
from workflow_src.families.score.model import ScoreNetwork
from workflow_src.losses.draws import normal, sentence_keys
from workflow_src.losses.score_matching import cosine, latents_and_goals, score_matching
from workflow_src.losses.settings import ScoreMatchingConfig

LENGTHS = [3, 5, 1]
KINDS = ["score", "energy"]


@pytest.fixture(scope="module")
def frozen():
    return lvm().requires_grad_(False)


@pytest.fixture(scope="module")
def batch():
    return pairs([4, 1, 6], LENGTHS)


def positions(end: bool):
    """The mask of the latents of LENGTHS: one more a sentence where targets have an end symbol."""
    return torch.arange(5 + end) < torch.tensor(LENGTHS)[:, None] + end


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_the_squared_error_up_to_a_constant(batch, kind, end):
    frozen, mask, count = lvm(end_symbol=end).requires_grad_(False), positions(end), sum(LENGTHS) + 3 * end
    network, config = refiner(kind), ScoreMatchingConfig()
    terms = score_matching(network, batch, context(seed=3, frozen=frozen), config)
    z, goal, memory = latents_and_goals(network, batch, mask, context(seed=3, frozen=frozen), config)
    direction = network.direction(memory, z, mask, differentiable=True)
    squared = ((direction - (goal - z)) ** 2)[mask].sum() / count
    constant = ((goal - z) ** 2)[mask].sum() / count
    assert terms.count == count
    assert terms.loss.item() == pytest.approx((squared - constant).item(), rel=1e-9)
    assert terms.figures["squared_error"].item() == pytest.approx(squared.item(), rel=1e-12)
    assert figure(terms, "cosine") == pytest.approx(cosine(direction, goal - z, mask).nanmean().item())
    grads, expected = gradients(network, terms.loss), gradients(network, squared)
    compared = 0
    for name, gradient in grads.items():
        if gradient is not None:
            assert torch.allclose(gradient, expected[name], atol=1e-12), name
            compared += bool(gradient.any())
    assert compared > 20


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("scale, numbers", [("sentence", 3), ("batch", 1)])
@pytest.mark.parametrize("power", [1.0, 3.0])
def test_latents_are_drawn_from_the_prior_with_shrunken_noise_and_goals_are_delta_steps(
    batch, power, scale, numbers, end
):
    """One number scales the noise of a sentence, or of the whole batch."""
    frozen, mask = lvm(end_symbol=end).requires_grad_(False), positions(end)
    config = ScoreMatchingConfig(delta_steps=2, noise_power=power, noise_scale=scale, pre_update_probability=0)
    drawing = context(seed=4, frozen=frozen)
    z, goal, memory = latents_and_goals(None, batch, mask, drawing, config)
    mean, deviation = frozen.prior(memory, mask)
    noise = normal(sentence_keys(batch, 4), (5 + end, 3))
    assert not z.requires_grad and not goal.requires_grad
    shrunken = ((z - mean) / (deviation * noise)).flatten(1)
    assert torch.allclose(shrunken, shrunken[:, :1].expand_as(shrunken), rtol=1e-9)
    assert len({round(float(value), 9) for value in shrunken[:, 0]}) == numbers
    # A power of numbers that are uniform between 0 and 1, as they are themselves where the power is 1.
    plain = latents_and_goals(None, batch, mask, drawing, config.model_copy(update={"noise_power": 1.0}))[0]
    scales = ((plain - mean) / (deviation * noise)).flatten(1)
    assert torch.allclose(shrunken, scales**power, rtol=1e-9) and ((scales > 0) & (scales < 1)).all()
    for _ in range(2):
        z = delta_step(frozen, memory, z, mask)
    assert torch.allclose(goal, z, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_frozen_model_changes(batch, kind):
    """Also where its parameters could be trained: no gradient reaches them."""
    frozen, network = lvm(), refiner(kind).train()
    before = {name: x.clone() for name, x in [*frozen.named_parameters(), *frozen.named_buffers()]}
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    network_before = {name: x.clone() for name, x in network.named_parameters()}
    for step in (0, 60, 80):
        config = ScoreMatchingConfig(pre_update_probability=1)
        score_matching(network, batch, context(step, seed=step, frozen=frozen), config).loss.backward()
        optimiser.step()
    assert all(parameter.grad is None for parameter in frozen.parameters())
    assert not frozen.training
    for name, x in [*frozen.named_parameters(), *frozen.named_buffers()]:
        assert torch.equal(before[name], x), name
    assert any(not torch.equal(network_before[name], x) for name, x in network.named_parameters())


class Counting(nn.Module):
    """A field that points to 1 and records the mode of each call."""

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[bool, bool]] = []
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def direction(self, _memory, z, _target_mask, differentiable=False):
        self.calls.append((differentiable, self.training))
        return self.scale * (1 - z)


@pytest.mark.parametrize("step, probability, calls", [(49, 1.0, 1), (50, 1.0, 2), (99, 1.0, 2), (99, 0.0, 1)])
def test_own_steps_come_only_after_their_share_of_training(frozen, batch, step, probability, calls):
    network = Counting().train()
    config = ScoreMatchingConfig(pre_update_probability=probability, pre_update_after=0.5)
    score_matching(network, batch, context(step, frozen=frozen), config)
    assert network.calls == [(False, False)] * (calls - 1) + [(True, True)]
    assert network.training, "the training mode is restored"


def test_own_steps_have_their_probability(frozen):
    network, small = Counting(), pairs([1], [1])
    config = ScoreMatchingConfig(pre_update_probability=0.3, delta_steps=1)
    for seed in range(200):
        training = context(99, seed=seed, frozen=frozen)
        latents_and_goals(network, small, small.target_mask, training, config)
    assert abs(len(network.calls) / 200 - 0.3) < 0.12


def test_own_steps_do_not_depend_on_the_scale_of_the_noise(frozen):
    small, together = pairs([1], [1]), 0
    config = ScoreMatchingConfig(noise_scale="batch", noise_power=1.0, pre_update_probability=0.5, delta_steps=1)
    without = config.model_copy(update={"pre_update_probability": 0.0})
    for seed in range(200):
        network, training = Counting(), context(99, seed=seed, frozen=frozen)
        latents_and_goals(network, small, small.target_mask, training, config)
        z, _, memory = latents_and_goals(network, small, small.target_mask, training, without)
        mean, deviation = frozen.prior(memory, small.target_mask)
        noise = normal(sentence_keys(small, seed), tuple(mean.shape[1:]))
        scale = float(((z - mean) / (deviation * noise)).mean())
        together += bool(network.calls) == (scale < 0.5)
    assert abs(together / 200 - 0.5) < 0.15


def test_an_own_step_moves_the_latent_before_its_goal_is_computed(frozen, batch):
    drawn = []
    for probability in (0.0, 1.0):
        config = ScoreMatchingConfig(pre_update_probability=probability, step_size=0.5)
        training = context(99, seed=1, frozen=frozen)
        drawn.append(latents_and_goals(Counting(), batch, batch.target_mask, training, config))
    (plain, _, memory), (moved, goal, _) = drawn
    assert torch.allclose(moved, plain + 0.5 * (1 - plain), atol=1e-12)
    for _ in range(4):
        moved = delta_step(frozen, memory, moved, batch.target_mask)
    assert torch.allclose(goal, moved, atol=1e-12)


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_takes_no_part(batch, kind, end):
    frozen, network = lvm(end_symbol=end), refiner(kind)
    objective = functools.partial(score_matching, config=ScoreMatchingConfig())
    losses = [objective(network, x, context(frozen=frozen)).loss.item() for x in (batch, padded(batch))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_cosine():
    mask = torch.tensor([[True, True], [True, False]])
    a = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [5.0, 5.0]]])
    b = torch.tensor([[[3.0, 0.0], [0.0, 3.0]], [[-1.0, 0.0], [9.0, 9.0]]])
    assert cosine(a, a, mask).tolist() == pytest.approx([1, 1])
    assert cosine(a, b, mask).tolist() == pytest.approx([1, -1])


def test_cosine_leaves_out_sentences_that_do_not_move():
    mask = torch.tensor([[True, False], [True, True]])
    a = torch.ones(2, 2, 3)
    # The first sentence moves at padding only.
    b = torch.stack([torch.tensor([[0.0] * 3, [4.0] * 3]), torch.ones(2, 3)])
    assert cosine(a, b, mask).isnan().tolist() == [True, False]
    assert cosine(a, b, mask).nanmean().item() == pytest.approx(1)


class Toy(nn.Module):
    """One latent of width 1 a position, p(z) = N(0, 1.5²); words 3 and 4 for z < 0 and z > 0, posteriors at -1, +1.

    A delta step goes to sign(z), so the field is sign(z) - z.
    """

    def batch_mask(self, batch):
        return batch.target_mask

    def encode(self, source):
        return memory_of(torch.zeros(*source.shape, 16), source != 0)

    def prior(self, _memory, mask):
        return torch.zeros(*mask.shape, 1), torch.full((*mask.shape, 1), 1.5)

    def posterior(self, _memory, target, mask):
        return (2.0 * (target == 4) - 1)[..., None], torch.ones(*mask.shape, 1)

    def read(self, _memory, z, _mask, _choice):
        return torch.where(z[..., 0] > 0, 4, 3), torch.zeros(len(z))


@pytest.mark.parametrize("kind, updates", [("score", 300), ("energy", 300)])
def test_networks_trained_on_a_toy_reach_its_analytic_field(kind, updates):
    torch.manual_seed(0)
    sizes = {"dim": 16, "feed_forward": 64, "heads": 2, "dropout": 0.0, "layers": 1, "max_positions": 4}
    # An energy averaged over positions shrinks its slope by their number; here every sentence has one word.
    settings = registry.families()[kind].model(latent_dim=1, **sizes)
    network = {"score": ScoreNetwork, "energy": EnergyNetwork}[kind](settings)
    objective = functools.partial(
        score_matching, config=ScoreMatchingConfig(noise_power=0.2, pre_update_probability=0.0)
    )
    batch = pairs([1] * 128, [1] * 128)
    frozen = Toy().eval()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = 1e-2 * (1 - update / updates)
        optimiser.zero_grad()
        objective(network, batch, context(seed=update, frozen=frozen)).loss.backward()
        optimiser.step()
    z = torch.tensor([-2.5, -2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 2.5])[:, None, None]
    memory = Toy().encode(torch.full((10, 2), 2))
    direction = network.eval().direction(memory, z, torch.ones(10, 1, dtype=torch.bool)).detach()
    error = (direction - (z.sign() - z)).abs()
    assert error.max() < 0.3 and error.mean() < 0.15, error.flatten()
