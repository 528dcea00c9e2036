"""Inference networks: their loss is an autoregressive energy of what they put out, sentence by sentence."""

from __future__ import annotations

import pytest
import torch
import yaml
from miniatures import context, figure, gradients, lively, one, padded, pairs, transformer

from workflow_src.families import inference
from workflow_src.families.build import build
from workflow_src.losses.settings import RelaxedEnergyConfig
from workflow_src.registry import families
from workflow_src.types import EOS, PAD

NETWORKS = ("inference-network", "inference-tagger")
SIZE = 11
OPERATORS = [("SX", "ST"), ("SG", "GX"), ("GX", "SG"), ("STL", "STL"), ("SG", "SG")]


def network(family: str, size: int = SIZE, source: int = 13, seed: int = 1):
    torch.manual_seed(seed)
    settings = yaml.safe_load(families()[family].presets.read_text(encoding="utf-8"))["miniature"]
    return lively(build(family, settings, {"source": source, "target": size, "joint": False}), seed, 0.2)


def loss(model, batch, scorer, operators=("SX", "ST"), seed: int = 0):
    config = RelaxedEnergyConfig(input_operator=operators[0], output_operator=operators[1])
    return inference.relaxed_energy_loss(model, batch, context(seed=seed, roles={"energy": scorer}), config)


@pytest.mark.parametrize("operators", OPERATORS, ids="-".join)
@pytest.mark.parametrize("family", NETWORKS)
def test_the_loss_is_the_mean_over_sentences_by_themselves(family, operators):
    """Noise too is that of a sentence, whatever its batch and its padding."""
    model, scorer, batch = network(family), transformer(seed=2), pairs([4, 1, 6], [3, 5, 1])
    of_batch = loss(model, batch, scorer, operators)
    by_sentence = [loss(model, one(batch, row), scorer, operators) for row in range(3)]
    assert of_batch.count == sum(terms.count for terms in by_sentence) == 3 + 5 + 1 + 3
    joined = sum(terms.loss * terms.count for terms in by_sentence) / of_batch.count
    assert of_batch.loss.item() == pytest.approx(joined.item(), rel=1e-12)
    mean_energy = sum(figure(terms, "energy") for terms in by_sentence) / 3
    assert figure(of_batch, "energy") == pytest.approx(mean_energy, rel=1e-12)
    grads, joined_grads = gradients(model, of_batch.loss), gradients(model, joined)
    for name, gradient in grads.items():
        assert torch.allclose(gradient, joined_grads[name], atol=1e-12), name
    of_longer = loss(model, padded(batch), scorer, operators)
    assert of_longer.loss.item() == pytest.approx(of_batch.loss.item(), rel=1e-12)
    # Other numbers are drawn with another seed, where any are.
    other_draws = loss(model, batch, scorer, operators, seed=1)
    assert torch.equal(other_draws.loss, of_batch.loss) == (operators in [("SX", "ST"), ("STL", "STL")])


@pytest.mark.parametrize("operators", [("ST", "ST"), ("STL", "ST"), ("STL", "STL")], ids="-".join)
@pytest.mark.parametrize("family", NETWORKS)
@torch.no_grad()
def test_with_words_the_energy_is_their_negative_log_likelihood(family, operators):
    model, scorer, batch = network(family), transformer(seed=2), pairs([4, 1, 6], [3, 5, 1])
    memory = model.encode(batch.source)
    hidden, mask = model.hidden(memory, batch.target_lengths)
    words = model.output(model.logits(hidden).argmax(-1), mask)
    assert ((words > EOS) == mask).all() and words.max() < SIZE
    expected = -scorer.log_probabilities(batch.source, words).sum() / 3
    assert figure(loss(model, batch, scorer, operators), "energy") == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("family", NETWORKS)
def test_operators_put_out_words_alone_and_draw_each_their_own_noise(family, monkeypatch):
    model, scorer, batch = network(family), transformer(seed=2), pairs([4, 1, 6], [3, 5, 1])
    calls = []

    def energies(_scorer, _source, read, scored, mask):
        calls.append((read, scored, mask))
        return (read + scored).sum((1, 2))

    monkeypatch.setattr(inference, "energies", energies)
    loss(model, batch, scorer, ("GX", "GX"))
    ((read, scored, mask),) = calls
    assert read.shape == (3, 5, SIZE) and torch.equal(mask, batch.target != PAD)
    for distributions in (read, scored):
        assert (distributions[..., : EOS + 1] == 0).all() and torch.allclose(distributions.sum(-1), mask.double())
    assert (read - scored).abs().max() > 0.05


@pytest.mark.parametrize(("first", "second"), [("SX", "ST"), ("ST", "SX")])
def test_the_first_operator_is_of_what_is_read_and_the_second_of_what_is_scored(first, second, monkeypatch):
    """ST gives whole words in the forward pass, SX the probabilities themselves."""
    model, scorer, batch = network(NETWORKS[0]), transformer(seed=2), pairs([4, 1, 6], [3, 5, 1])
    inputs = {}

    def energies(_scorer, _source, read, scored, mask):
        inputs.update(read=read[mask], scored=scored[mask])
        return (read + scored).sum((1, 2))

    monkeypatch.setattr(inference, "energies", energies)
    loss(model, batch, scorer, (first, second))
    one_hot, soft = ("read", "scored") if first == "ST" else ("scored", "read")
    assert ((inputs[one_hot] == 0) | (inputs[one_hot] == 1)).all() and (inputs[soft].amax(1) < 1).all()
    assert torch.equal(inputs[one_hot].argmax(1), inputs[soft].argmax(1))


@pytest.mark.parametrize("family", NETWORKS)
def test_it_learns_to_put_out_what_the_energy_finds_likely(family):
    """Updates on a batch lower the energy of the words, which operators with noise lower too."""
    batch = pairs([4, 1, 6, 3], [3, 5, 1, 4])
    for operators in (("SX", "ST"), ("SG", "SG")):
        model, scorer = network(family), transformer(seed=2)
        with torch.no_grad():
            # Probabilities that are far from even.
            scorer.target_embedding.weight.mul_(3)
        before = {name: parameter.clone() for name, parameter in scorer.named_parameters()}
        scorer.requires_grad_(False)
        optimiser = torch.optim.Adam(model.parameters(), 0.01)
        first = figure(loss(model, batch, scorer, ("ST", "ST")), "energy")
        for step in range(40):
            optimiser.zero_grad()
            loss(model, batch, scorer, operators, seed=step).loss.backward()
            optimiser.step()
        assert figure(loss(model, batch, scorer, ("ST", "ST")), "energy") < first - 0.5
        assert all(torch.equal(parameter, before[name]) for name, parameter in scorer.named_parameters())
