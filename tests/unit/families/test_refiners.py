from __future__ import annotations

import dataclasses

import pytest
import torch
from miniatures import gradients, lvm, one, padded, pairs, refiner
from refusals import fields_of

from workflow_src.errors import ConfigError
from workflow_src.nn.weights import weights_of

LENGTHS = [3, 5, 1]


@pytest.fixture(scope="module")
def place():
    """Source states, latents and mask of three sentences."""
    batch = pairs([4, 1, 6], LENGTHS)
    memory = lvm().encode(batch.source)
    z = torch.randn(3, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    detached = dataclasses.replace(memory, states=memory.states.detach())
    return detached, z, batch.target_mask


@pytest.mark.parametrize("pooling", ["mean", "sum"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_energy_direction_is_the_negative_slope_of_the_energy(place, pooling, norm):
    memory, z, mask = place
    network = refiner("energy", energy_pooling=pooling, norm=norm)
    direction = network.direction(memory, z, mask)
    step = 1e-5
    for sentence, position, column in [(0, 0, 0), (0, 2, 1), (1, 4, 2), (2, 0, 1)]:
        ahead, behind = z.clone(), z.clone()
        ahead[sentence, position, column] += step
        behind[sentence, position, column] -= step
        with torch.no_grad():
            slope = (network.energy(memory, ahead, mask) - network.energy(memory, behind, mask)) / (2 * step)
        assert -slope[sentence].item() == pytest.approx(direction[sentence, position, column].item(), abs=1e-8)
        other_rows = [row for row in range(3) if row != sentence]
        assert (slope[other_rows] == 0).all(), "sentences must not influence each other"


def test_sum_pooling_is_mean_pooling_times_the_length(place):
    memory, z, mask = place
    mean, total = (refiner("energy", energy_pooling=pooling) for pooling in ("mean", "sum"))
    lengths = torch.tensor(LENGTHS)[:, None, None]
    assert torch.allclose(total.direction(memory, z, mask), mean.direction(memory, z, mask) * lengths, atol=1e-12)


def test_energy_at_padding_is_flat(place):
    memory, z, mask = place
    assert (refiner("energy").direction(memory, z, mask)[~mask] == 0).all()


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_padding_and_company_change_nothing(kind):
    network, model = refiner(kind), lvm()
    batch = pairs([4, 1, 6], LENGTHS)
    z = torch.randn(3, 5, 3, dtype=torch.float64)
    of_batch = network.direction(model.encode(batch.source), z, batch.target_mask)
    longer = padded(batch)
    wider = torch.nn.functional.pad(z, (0, 0, 0, 3), value=7.0)
    of_longer = network.direction(model.encode(longer.source), wider, longer.target_mask)
    for row, length in enumerate(LENGTHS):
        single = one(batch, row)
        of_single = network.direction(model.encode(single.source), z[row : row + 1, :length], single.target_mask)[0]
        assert torch.allclose(of_batch[row, :length], of_single, atol=1e-12)
        assert torch.allclose(of_longer[row, :length], of_single, atol=1e-12)


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_without_positions_a_network_sees_latents_in_no_order(place, kind):
    """Latents in another order give the directions in that order; with positions they do not."""
    memory, z, _ = place
    order, mask = torch.tensor([3, 0, 4, 2, 1]), torch.ones(3, 5, dtype=torch.bool)
    for positions in (False, True):
        network = refiner(kind, positions=positions)
        direction = network.direction(memory, z, mask)
        turned = network.direction(memory, z[:, order], mask)
        assert torch.allclose(turned, direction[:, order], atol=1e-12) is not positions


@pytest.mark.parametrize("kind", ["score", "energy"])
@torch.no_grad()
def test_an_empty_sentence_spoils_nothing(kind):
    """A dev pair may have an empty target: its company must stay finite and as it is."""
    network, model = refiner(kind), lvm()
    batch = pairs([4, 2], [3, 0])
    z = torch.randn(2, 3, 3, dtype=torch.float64)
    direction = network.direction(model.encode(batch.source), z, batch.target_mask)
    assert torch.isfinite(direction).all()


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_differentiable_directions_train_the_network(place, kind):
    memory, z, mask = place
    network = refiner(kind)
    direction = network.direction(memory, z, mask, differentiable=True)
    grads = gradients(network, (direction**2)[mask].sum())
    # An energy's constant has no slope: what only adds to it gets no gradient.
    constant = {"head.bias", "stack.norm.bias"} if kind == "energy" else set()
    for name, gradient in grads.items():
        assert (gradient is None or not gradient.any()) == (name in constant), name
    assert torch.allclose(direction, network.direction(memory, z, mask), atol=1e-13)
    assert not network.stack.differentiate_twice


def test_second_derivative_of_the_energy_against_finite_differences(place):
    memory, z, mask = place
    network = refiner("energy")
    loss = lambda: (network.direction(memory, z, mask, differentiable=True) ** 2)[mask].sum()  # noqa: E731
    grads = gradients(network, loss())
    step = 1e-5
    for name in ("latent_projection.weight", "stack.layers.0.self_attention.query_key_value.weight", "head.weight"):
        parameter = dict(network.named_parameters())[name]
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter[0, 1] += sign * step
            values.append(loss().item())
            with torch.no_grad():
                parameter[0, 1] -= sign * step
        slope = (values[0] - values[1]) / (2 * step)
        assert grads[name][0, 1].item() == pytest.approx(slope, rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_inference_leaves_no_graph_and_no_gradient(place, kind):
    memory, z, mask = place
    network = refiner(kind)
    with torch.no_grad():
        direction = network.direction(memory, z, mask)
    assert not direction.requires_grad and not z.requires_grad
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_starts_from_the_decoder(kind):
    network, model = refiner(kind, seed=1), lvm(seed=2)
    head = network.head.weight.clone()
    copied = set(network.start_from_base(weights_of(model)))
    assert copied == {name for name in weights_of(network) if not name.startswith("head.")}
    assert torch.equal(network.head.weight, head)
    for name, tensor in weights_of(network).items():
        if name in copied:
            assert torch.equal(tensor, weights_of(model)[name.replace("stack.", "decoder_stack.", 1)]), name
    batch = pairs([4], [3])
    memory, z = model.encode(batch.source), torch.randn(1, 3, 3, dtype=torch.float64)
    hidden = network.hidden(memory, z, batch.target_mask)
    assert torch.allclose(hidden, model.hidden(memory, z, batch.target_mask), atol=1e-13)


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_too_many_positions_are_refused_by_number(place, kind):
    memory, z, mask = place
    with pytest.raises(ConfigError) as refused:
        refiner(kind, max_positions=4).direction(memory, z, mask)
    fields = {"setting": "model.max_positions", "value": 4, "mentions": ("5",)}
    assert fields_of(refused.value, fields) == fields
