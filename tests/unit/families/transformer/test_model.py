from __future__ import annotations

import pytest
import torch
from miniatures import one, padded, pairs, transformer

KINDS = [(norm, joint) for norm in ("pre", "post") for joint in (False, True)]


def make(norm, joint, **settings):
    sizes = (11, 11) if joint else (13, 11)
    return transformer(*sizes, joint, norm=norm, **settings), sizes


@pytest.mark.parametrize("norm, joint", KINDS)
def test_padding_and_company_change_nothing(norm, joint):
    model, sizes = make(norm, joint)
    batch = pairs([4, 1, 6], [3, 5, 1], sizes)
    of_batch = model.log_probabilities(batch.source, batch.target)
    longer = padded(batch)
    assert torch.allclose(model.log_probabilities(longer.source, longer.target)[:, :6], of_batch, atol=1e-12)
    for row in range(3):
        single = one(batch, row)
        length = single.target.size(1) + 1
        log_probabilities = model.log_probabilities(single.source, single.target)[0]
        assert torch.allclose(log_probabilities, of_batch[row, :length], atol=1e-12)
        assert (of_batch[row, length:] == 0).all()


def test_no_position_sees_a_later_one():
    model, _ = make("pre", False)
    batch = pairs([4], [6])
    changed = batch.target.clone()
    changed[0, 3] = 3 if batch.target[0, 3] != 3 else 4
    memory = model.encode(batch.source)
    before, after = model.hidden(memory, batch.target), model.hidden(memory, changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])
