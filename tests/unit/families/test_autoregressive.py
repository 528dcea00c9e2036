"""Autoregressive models on relaxed outputs, distributions in place of words."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from miniatures import AUTOREGRESSIVE as MODELS
from miniatures import one, padded, pairs
from torch import nn

from workflow_src.types import with_end

V = 11


def distributions(target, size: int = V, seed: int = 0):
    """Random ones (B, T, V), far from even."""
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(*target.shape, size, generator=generator, dtype=torch.float64)).softmax(-1)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_one_hot_distributions_give_the_logits_and_the_likelihood_of_their_words(kind, joint):
    sizes = (V, V) if joint else (13, V)
    model, batch = MODELS[kind](*sizes, joint), pairs([4, 1, 6], [3, 5, 1], sizes)
    states = model.scoring_states(batch.source)
    logits = model.relaxed_logits(states, F.one_hot(batch.target, V).double())
    assert logits.shape == (3, 6, V)
    assert torch.allclose(logits, model.logits(model.hidden(states, batch.target)), atol=1e-12)
    # The energy of the distributions is the negative log-likelihood of the words.
    labels = F.one_hot(with_end(batch.target), V) * (with_end(batch.target) != 0)[..., None]
    energy = -(labels * logits.log_softmax(-1)).sum((1, 2))
    assert torch.allclose(energy, -model.log_probability(states, batch.target), atol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_a_distribution_is_read_as_a_word_whose_embedding_is_the_mean(kind):
    """The model with one more row for each relaxed position, which is their mean, reads these rows as words."""
    model, batch = MODELS[kind](13, V), pairs([4, 1, 6], [3, 5, 1])
    soft = distributions(batch.target)
    logits = model.relaxed_logits(model.scoring_states(batch.source), soft)
    rows = soft.flatten(0, 1)
    with torch.no_grad():
        weight = model.target_embedding.weight
        model.target_embedding.weight = nn.Parameter(torch.cat([weight, rows @ weight]))
        model.output_bias = nn.Parameter(F.pad(model.output_bias, (0, len(rows))))
    words = V + torch.arange(len(rows)).view(batch.target.shape)
    expected = model.logits(model.hidden(model.encode(batch.source), words))[..., :V]
    assert torch.allclose(logits, expected, atol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_relaxed_outputs_know_neither_later_positions_nor_padding_nor_company(kind):
    model, batch = MODELS[kind](13, V), pairs([4, 1, 6], [3, 5, 1])
    soft = distributions(batch.target)
    logits = model.relaxed_logits(model.scoring_states(batch.source), soft)
    other_ending = soft.clone()
    other_ending[:, 3:] = distributions(batch.target[:, 3:], seed=1)
    changed = model.relaxed_logits(model.scoring_states(batch.source), other_ending)
    assert torch.allclose(changed[:, :4], logits[:, :4], atol=1e-12) and not torch.allclose(changed, logits)
    longer = F.pad(soft, (0, 0, 0, 3), value=1 / V)
    wider = model.relaxed_logits(model.scoring_states(padded(batch).source), longer)
    assert torch.allclose(wider[:, : logits.size(1)], logits, atol=1e-11)
    for row, length in enumerate((3, 5, 1)):
        states = model.scoring_states(one(batch, row).source)
        single = model.relaxed_logits(states, soft[row : row + 1, :length])
        assert torch.allclose(single[0], logits[row, : length + 1], atol=1e-11)


@pytest.mark.parametrize("kind", MODELS)
def test_an_output_without_words_has_the_end_alone(kind):
    model, source = MODELS[kind](13, V), pairs([4, 2], [1, 1]).source
    states = model.scoring_states(source)
    logits = model.relaxed_logits(states, torch.zeros(2, 0, V, dtype=torch.float64))
    assert torch.allclose(logits, model.logits(model.hidden(states, torch.zeros(2, 0, dtype=torch.int64))), atol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_a_frozen_model_has_the_gradient_of_the_distributions_and_none_of_its_own(kind):
    model, batch = MODELS[kind](13, V).requires_grad_(False), pairs([3, 2], [2, 1])
    states, soft = model.scoring_states(batch.source), distributions(batch.target).requires_grad_()

    def energy(rows):
        return -(rows * model.relaxed_logits(states, rows)[:, :-1].log_softmax(-1)).sum()

    assert torch.autograd.gradcheck(energy, (soft,), atol=1e-6)
    energy(soft).backward()
    assert soft.grad.abs().min() > 0 and all(parameter.grad is None for parameter in model.parameters())
