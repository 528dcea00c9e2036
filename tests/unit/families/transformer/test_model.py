from __future__ import annotations

import pytest
import torch
from miniatures import one, padded, pairs, transformer, walk
from refusals import fields_of

from workflow_src.errors import ConfigError
from workflow_src.types import BOS, EOS, PAD

KINDS = [(norm, joint) for norm in ("pre", "post") for joint in (False, True)]


def make(norm, joint, **settings):
    sizes = (11, 11) if joint else (13, 11)
    return transformer(*sizes, joint, norm=norm, **settings), sizes


def uncached(model, source, prefix):
    """log p(. | prefix, source) of one sentence without padding, read from a whole pass."""
    states = model.hidden(model.encode(source[None]), torch.tensor([prefix], dtype=torch.int64))
    return model.logits(states)[0, -1].log_softmax(-1)


@pytest.mark.parametrize("norm, joint", KINDS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_cached_steps_give_the_log_probabilities_of_a_whole_pass(norm, joint, dtype, tolerance):
    model, sizes = make(norm, joint)
    model = model.to(dtype)
    batch = pairs([4, 1, 6], [40, 35, 38], sizes)
    whole_pass = model.log_probabilities(batch.source, batch.target)
    with torch.no_grad():
        decoder = model.start(model.encode(batch.source))
        tokens = torch.full((3,), BOS)
        labels = torch.nn.functional.pad(batch.target, (0, 1), value=PAD)
        for position in range(41):
            expected = labels[:, position].clone()
            expected[position == batch.target_lengths] = EOS
            scores = decoder.step(tokens).log_softmax(-1)
            log_probabilities = scores.gather(1, expected[:, None])[:, 0]
            real = position <= batch.target_lengths
            assert torch.allclose(log_probabilities[real], whole_pass[real, position], rtol=0, atol=tolerance)
            assert (whole_pass[~real, position] == 0).all()
            tokens = labels[:, position]


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


def test_probabilities_of_all_next_words_sum_to_one():
    model, _ = make("pre", False)
    assert uncached(model, pairs([4], [1]).source[0], [5, 6]).exp().sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_kept_and_reordered_rows_continue_their_own_prefixes(norm):
    """The cache grows past 32 positions."""
    model, sizes = make(norm, False)
    source = pairs([4, 1, 6, 2], [1] * 4, sizes).source
    decoder = model.start(model.encode(source))
    for log_probabilities, rows in walk(decoder, 4, 40, {0, 2, 5, 30, 32}, {1: [0, 2, 3], 5: [2, 0], 31: [1]}):
        for row, (sentence, prefix) in enumerate(rows):
            if len(prefix) in (0, 1, 2, 5, 6, 20, 31, 32, 33, 39):
                expected = uncached(model, source[sentence][source[sentence] != PAD], prefix)
                assert torch.allclose(log_probabilities[row], expected, rtol=0, atol=1e-12), (len(prefix), row)


def test_joint_vocabulary_is_one_matrix():
    model, _ = make("pre", True)
    assert model.source_embedding is model.target_embedding
    separate, _ = make("pre", False)
    assert separate.source_embedding is not separate.target_embedding


def test_too_many_positions_are_refused_by_number():
    model, _ = make("pre", False, max_positions=8)
    fits = pairs([7], [7])
    assert model.log_probabilities(fits.source, fits.target).shape == (1, 8)
    fields = {"setting": "model.max_positions", "value": 8, "mentions": ("9",)}
    for long in (pairs([8], [1]), pairs([1], [8])):
        with pytest.raises(ConfigError) as refused:
            model.log_probabilities(long.source, long.target)
        assert fields_of(refused.value, fields) == fields
    decoder = model.start(model.encode(fits.source))
    with torch.no_grad():
        for _ in range(8):
            decoder.step(torch.tensor([BOS]))
        with pytest.raises(ConfigError) as refused:
            decoder.step(torch.tensor([BOS]))
    assert fields_of(refused.value, fields) == fields
