from __future__ import annotations

import functools
import math

import pytest
import torch
from miniatures import context, figure, gradients, nat, one, padded, pairs

from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.families.nat.objective import nat_loss
from workflow_src.families.nat.validation import validate
from workflow_src.losses.matches import match_score
from workflow_src.types import PAD


def batch():
    return pairs([4, 1, 6, 5], [3, 2, 1, 6])


@pytest.mark.parametrize("copy_source", ["soft", "uniform"])
@pytest.mark.parametrize("upsample", [1.0, 1.5, 2.0, 3.0])
def test_neither_batch_nor_padding_changes_the_slots_of_a_sentence(copy_source, upsample):
    model = nat(upsample=upsample, copy_source=copy_source)
    hidden, mask = model.hidden(model.encode(padded(batch()).source))
    for row in range(4):
        source = one(batch(), row).source
        single, row_mask = model.hidden(model.encode(source))
        assert row_mask.all() and int(mask[row].sum()) == row_mask.size(1) == math.ceil(upsample * source.size(1))
        assert torch.allclose(hidden[row, mask[row]], single[0], atol=1e-12)


def test_slots_never_outnumber_the_positions():
    model = nat(upsample=3.0, max_positions=16)
    source = pairs([14, 2], [1, 1]).source
    hidden, mask = model.hidden(model.encode(source))
    assert mask.sum(1).tolist() == [16, 9] and torch.isfinite(hidden[mask]).all()


def test_soft_copy_weighs_source_states_by_their_distance():
    model = nat(upsample=1.5, copy_source="soft")
    source = pairs([4, 2], [1, 1]).source
    memory = model.encode(source)
    slots = model.slots(memory)
    actual = model.copied(memory, slots, torch.arange(int(slots.max())))
    for row in range(2):
        length, count = int(memory.mask[row].sum()), int(slots[row])
        for slot in range(count):
            centre = (slot + 0.5) * length / count - 0.5
            weights = [math.exp(-abs(j - centre) / 0.3) for j in range(length)]
            expected = sum(w / sum(weights) * memory.states[row, j] for j, w in enumerate(weights))
            assert torch.allclose(actual[row, slot], expected, atol=1e-6)


def test_uniform_copy_repeats_source_states_in_order():
    model = nat(upsample=2.0, copy_source="uniform")
    source = pairs([4, 2], [1, 1]).source
    memory = model.encode(source)
    actual = model.copied(memory, model.slots(memory), torch.arange(10))
    assert torch.equal(actual[0], memory.states[0].repeat_interleave(2, 0))
    assert torch.equal(actual[1, :6], memory.states[1, :3].repeat_interleave(2, 0))


def test_targets_out_of_reach_are_counted_and_change_nothing_else():
    """The second target has two tokens more than its source has slots."""
    model, objective = nat(upsample=1.0), functools.partial(nat_loss, config=NatObjectiveConfig())
    batch_of_two = pairs([4, 1], [3, 4])
    terms, terms_of_first = (objective(model, x, context()) for x in (batch_of_two, one(batch_of_two, 0)))
    assert figure(terms, "unreachable") == 0.5 and figure(terms_of_first, "unreachable") == 0
    assert terms.loss.item() * terms.count == pytest.approx(terms_of_first.loss.item() * terms_of_first.count, rel=1e-9)
    assert terms.count == int((batch_of_two.target != PAD).sum())
    measure = validate(NatObjectiveConfig()).measure
    loss, unreachable = (measure(model, batch_of_two, None).means[name] for name in ("dev_loss", "dev_unreachable"))
    alone = measure(model, one(batch_of_two, 0), None).means["dev_loss"]
    assert [float(value) for value in loss] == pytest.approx([float(value) for value in alone], rel=1e-9)
    assert [float(value) for value in unreachable] == [1, 2]


@pytest.mark.parametrize("size", [1, 2])
def test_matches_of_ngrams_learn_the_symbols_that_a_search_may_put_out(size):
    model, both = nat(seed=5), batch()
    terms = nat_loss(model, both, context(), NatObjectiveConfig(ngrams=size))
    hidden, mask = model.hidden(model.encode(both.source))
    # The score of logits themselves; symbols that are never put out have no probability.
    logits = model.logits(hidden).clamp(min=-1e4)
    identity, none = torch.eye(logits.size(-1)).double(), torch.zeros(logits.size(-1)).double()
    scores = match_score(logits, identity, none, mask, both.target, model.blank, size)
    assert terms.count == 4 and terms.figures["matches"].item() == pytest.approx(scores.mean().item(), rel=1e-9)
    assert terms.loss.item() == pytest.approx(1 - scores.mean().item(), rel=1e-9)
    actual, expected = gradients(model, terms.loss), gradients(model, -scores.mean())
    for name, gradient in expected.items():
        assert torch.allclose(actual[name], gradient, atol=1e-9), name
