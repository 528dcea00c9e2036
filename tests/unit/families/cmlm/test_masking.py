"""The masked language model and its loss, against formulas computed one sentence and one place at a time."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from miniatures import cmlm, context, figure, one, padded, pairs, transformer

from workflow_src.families.cmlm import CmlmObjectiveConfig
from workflow_src.families.cmlm.objective import masked_loss, masked_places
from workflow_src.losses.draws import sentence_keys
from workflow_src.nn.weights import copy_matching, weights_of
from workflow_src.types import EOS, PAD


def batch():
    return pairs([4, 1, 6, 5], [3, 2, 1, 6], (13, 10))


def masks(pairs_) -> torch.Tensor:
    keys = sentence_keys(pairs_, 3)
    return masked_places(keys, pairs_.target_lengths, pairs_.target.size(1))


def test_numbers_of_masked_places_are_uniform_and_every_place_is_as_likely():
    count, length = 40000, 5
    keys = torch.arange(count) * 104729
    actual = masked_places(keys, torch.full((count,), length), 7)
    assert not actual[:, length:].any()
    numbers = actual.sum(1)
    shares = torch.bincount(numbers, minlength=length + 1) / count
    # Standard error of a share of 1/5: 0.002.
    assert shares[0] == 0 and (shares[1:] - 1 / length).abs().max() < 0.01
    for number in range(1, length + 1):
        place_shares = actual[numbers == number][:, :length].double().mean(0)
        assert (place_shares - number / length).abs().max() < 0.03


def test_masks_of_a_sentence_depend_on_neither_padding_nor_its_batch():
    actual, wider = masks(batch()), masks(padded(batch(), 4))
    assert torch.equal(wider[:, :6], actual) and not wider[:, 6:].any()
    for row in range(4):
        single = dataclasses.replace(one(batch(), row), indices=(row,))
        assert torch.equal(masks(single)[0], actual[row, : single.target.size(1)])
    assert (actual.sum(1) >= 1).all() and not (actual & (batch().target == PAD)).any()


def test_other_updates_mask_other_places():
    many = pairs([3] * 30, [8] * 30, (13, 10))
    first, second = (masked_places(sentence_keys(many, seed), many.target_lengths, 8) for seed in (3, 4))
    assert not torch.equal(first, second)


@torch.no_grad()
@pytest.mark.parametrize("smoothing, width, weight", [(0.0, 0.0, 1.0), (0.1, 2.0, 0.3)])
def test_the_loss_is_that_of_masked_places_one_at_a_time(smoothing, width, weight):
    model = cmlm()
    settings = CmlmObjectiveConfig(label_smoothing=smoothing, length_smoothing=width, length_weight=weight)
    terms = masked_loss(model, batch(), context(seed=3), settings)
    masked, total, nll, lengths = masks(batch()), 0.0, 0.0, 0.0
    for row in range(4):
        pair = one(batch(), row)
        memory, places_masked = model.encode(pair.source), masked[row, : pair.target.size(1)]
        masked_target = torch.where(places_masked, model.mask_symbol, pair.target)
        hidden = model.states(memory, masked_target, masked_target != PAD)[0]
        scores = (hidden @ model.target_embedding.weight.T + model.output_bias).log_softmax(-1)
        for position in places_masked.nonzero()[:, 0].tolist():
            chance = scores[position, pair.target[0, position]]
            total -= float((1 - smoothing) * chance + smoothing * scores[position].mean())
            nll -= float(chance)
        head = model.length(memory)[0].log_softmax(-1)
        difference = pair.target.size(1) - (pair.source.size(1) - 1)
        expected = min(max(difference, -4), 4) + 4
        near = torch.arange(9.0, dtype=torch.float64) - expected
        labels = (-0.5 * (near / width) ** 2).exp() if width else (near == 0).double()
        lengths -= float((head * labels / labels.sum()).sum())
    count = int(masked.sum())
    assert terms.count == count
    assert float(terms.loss) == pytest.approx((total + weight * lengths) / count, rel=1e-6)
    assert float(terms.figures["nll"]) == pytest.approx(nll / count, rel=1e-6)
    assert figure(terms, "masked") == pytest.approx(count / 12)


def test_a_position_sees_those_before_and_after_it_and_no_padding():
    model = cmlm()
    memory, target = model.encode(batch().source), padded(batch()).target
    states = model.states(memory, target, target != PAD)
    for row in range(4):
        pair = one(batch(), row)
        single = model.states(model.encode(pair.source), pair.target, pair.target != PAD)[0]
        assert torch.allclose(states[row, : len(single)], single, atol=1e-12)
    changed_target = target.clone()
    changed_target[3, 5] = 3 + (int(target[3, 5]) - 2) % 7
    changed = (model.states(memory, changed_target, changed_target != PAD) - states).abs().amax(-1)
    assert (changed[3, :6] > 1e-6).all() and (changed[:3] == 0).all()


def test_hidden_states_are_those_of_a_target_that_is_masked_everywhere():
    model, lengths = cmlm(), torch.tensor([3, 2, 1, 6])
    memory = model.encode(batch().source)
    hidden, mask = model.hidden(memory, lengths)
    assert torch.equal(mask, batch().target != PAD)
    masked = torch.where(mask, 10, PAD)
    assert model.mask_symbol == model.symbols["mask"] == 10
    assert torch.equal(hidden, model.states(memory, masked, mask))


def test_rows_of_a_sentence_share_its_source():
    model = cmlm()
    memory = model.encode(batch().source)
    target = pairs([1] * 8, [3, 5, 2, 2, 6, 1, 4, 3], (13, 10), seed=7).target
    rows = torch.arange(4).repeat_interleave(2)
    expected = model.states(memory.select(rows), target, target != PAD)
    assert torch.allclose(model.states(memory, target, target != PAD), expected, atol=1e-12)


def test_what_may_not_be_put_out_never_is():
    model = cmlm()
    hidden = torch.randn(5, 16, dtype=torch.float64)
    logits, scores = model.logits(hidden), hidden @ model.target_embedding.weight.T + model.output_bias
    never = [*range(EOS + 1), model.mask_symbol]
    assert (logits[:, never] == float("-inf")).all()
    allowed = [i for i in range(11) if i not in never]
    assert torch.allclose(logits[:, allowed], scores[:, allowed], atol=1e-12) and torch.isfinite(scores).all()


@pytest.mark.parametrize("joint", [False, True])
def test_a_teacher_gives_everything_but_the_masks_embedding(joint):
    sizes = (10, 10) if joint else (13, 10)
    teacher, model = transformer(*sizes, joint=joint, seed=1), cmlm(sizes[0] + joint, 11, joint, seed=2)
    fresh = model.target_embedding.weight[-1].clone(), model.output_bias[-1].clone()
    copied = copy_matching(model, weights_of(teacher))
    weights = weights_of(model)
    for name, tensor in weights_of(teacher).items():
        assert torch.equal(weights[name][: len(tensor)], tensor), name
    assert set(copied) >= set(weights_of(teacher))
    assert torch.equal(model.target_embedding.weight[-1], fresh[0]) and torch.equal(model.output_bias[-1], fresh[1])


def test_batches_of_empty_targets_teach_lengths_alone():
    model, objective = cmlm().train(), functools.partial(masked_loss, config=CmlmObjectiveConfig())
    empty = dataclasses.replace(batch(), target=torch.full((4, 2), PAD))
    terms = objective(model, empty, context())
    terms.loss.backward()
    assert torch.isfinite(terms.loss) and float(terms.figures["nll"]) == 0
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
    assert model.length.outer.weight.grad.any()
    mixed = dataclasses.replace(batch(), target=batch().target.clone())
    mixed.target[1] = PAD
    assert torch.isfinite(objective(model, mixed, context()).loss)
