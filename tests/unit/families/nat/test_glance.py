"""Glancing: what is shown of the reference, how much of it, and that nothing else changes."""

from __future__ import annotations

import math

import pytest
import torch
from miniatures import context, figure, gradients, nat, one, padded, pairs

from workflow_src.decoding.ctc import collapse
from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.families.nat.glance import poisson, shown_symbols
from workflow_src.families.nat.objective import nat_loss, training_slots
from workflow_src.losses.draws import sentence_keys
from workflow_src.nn.copying import NOT_SHOWN
from workflow_src.types import PAD, Batch

LOSSES = ["ctc", "axe", "ce"]


def batch() -> Batch:
    """Targets without UNK (3) and without the blank (10)."""
    pairs_of_batch = pairs([4, 1, 6, 5], [3, 2, 1, 6], (13, 10))
    return Batch(
        pairs_of_batch.source, pairs_of_batch.target.masked_fill(pairs_of_batch.target == 3, 4), pairs_of_batch.indices
    )


def shown(model, batch: Batch, wrong_share: float = 0.5, seed: int = 0, **settings):
    config = NatObjectiveConfig(**{"glance": "glat", "glance_count": "share", **settings})
    memory = model.encode(batch.source)
    slots = training_slots(model, batch)
    keys = sentence_keys(batch, seed)
    return shown_symbols(config, model, memory, slots, None, batch.target, keys, wrong_share), slots


def mistakes(model, batch: Batch, row: int, reference: list[int]) -> int:
    """Slots of a sentence at which the model's best symbol is not the reference's."""
    pair = one(batch, row)
    memory = model.encode(pair.source)
    hidden, mask = model.hidden(memory, training_slots(model, pair))
    best_symbols = model.logits(hidden)[mask].argmax(-1).tolist()
    return sum(a != b for a, b in zip(best_symbols, reference, strict=True))


@pytest.mark.parametrize("loss", LOSSES)
def test_all_that_is_wrong_may_be_shown_and_it_is_the_reference(loss):
    """With a share of 1, as many symbols are shown as are wrong, each the one that its slot has in the reference."""
    model, pairs = nat(loss=loss, seed=3), batch()
    actual, slots = shown(model, pairs, 1.0)
    everything = shown_symbols_of_all(model, pairs)
    for row in range(4):
        count = int(slots[row])
        reference = everything[row, :count].tolist()
        words = pairs.target[row][pairs.target[row] != PAD].tolist()
        assert (collapse(reference, model.blank) if loss == "ctc" else reference) == words
        shown_here = actual[row, :count]
        assert all(
            symbol in (NOT_SHOWN, expected) for symbol, expected in zip(shown_here.tolist(), reference, strict=True)
        )
        assert int((shown_here != NOT_SHOWN).sum()) == mistakes(model, pairs, row, reference)
        assert (actual[row, count:] == NOT_SHOWN).all()


def shown_symbols_of_all(model, batch: Batch) -> torch.Tensor:
    """The whole reference at its slots: a model that is wrong everywhere is shown everything."""
    with torch.no_grad():
        bias = model.output_bias.clone()
        # UNK is in no target of these batches, and so is never right.
        model.output_bias[3] += 1e4
        symbols, slots = shown(model, batch, 1.0)
        model.output_bias.copy_(bias)
    # The alignment's own scores shift alike in every slot, so that it is the same.
    real = torch.arange(symbols.size(1)) < slots[:, None]
    assert (symbols[real] != NOT_SHOWN).all()
    return symbols


@pytest.mark.parametrize("settings", [{"glance": "random"}, {"glance_count": "poisson"}, {"glance_count": "share"}])
@pytest.mark.parametrize("loss", LOSSES)
def test_neither_padding_nor_the_order_of_a_batch_changes_what_is_shown(loss, settings):
    model, pairs = nat(loss=loss, seed=3), batch()
    actual, slots = shown(model, pairs, 0.6, **settings)
    wider, _ = shown(model, padded(pairs), 0.6, **settings)
    assert torch.equal(actual, wider[:, : actual.size(1)]) and (wider[:, actual.size(1) :] == NOT_SHOWN).all()
    turned = Batch(pairs.source.flip(0), pairs.target.flip(0), pairs.indices[::-1])
    assert torch.equal(shown(model, turned, 0.6, **settings)[0].flip(0), actual)
    for row in range(4):
        count = int(slots[row])
        single, _ = shown(model, one(pairs, row), 0.6, **settings)
        assert torch.equal(single[0, :count], actual[row, :count])
    assert (actual != NOT_SHOWN).any() and (shown(model, pairs, 0.6, seed=1, **settings)[0] != actual).any()


@pytest.mark.parametrize("count", ["poisson", "share"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_share_of_nothing_is_the_plain_loss_exactly(loss, count):
    """With dropout, latents and the same random state."""
    losses = []
    for settings in ({}, {"glance": "glat", "glance_count": count, "glance_share": 0.0, "glance_end": 0.0}):
        model = nat(loss=loss, latent="vae", dropout=0.2, seed=1).train()
        torch.manual_seed(5)
        terms = nat_loss(model, batch(), context(50), NatObjectiveConfig(**settings))
        losses.append((terms.loss, gradients(model, terms.loss)))
    assert torch.equal(losses[0][0], losses[1][0])
    for name, gradient in losses[0][1].items():
        other_gradient = losses[1][1][name]
        assert other_gradient is None if gradient is None else torch.equal(gradient, other_gradient), name


@pytest.mark.parametrize("loss", LOSSES)
def test_the_first_pass_drops_what_the_updates_own_pass_drops(loss, monkeypatch):
    """So small a share shows nothing: both passes have the same inputs, and the same states if they drop the same."""
    model, states = nat(loss=loss, dropout=0.5, seed=3).train(), []
    forward = model.hidden

    def recorded(*arguments):
        hidden, mask = forward(*arguments)
        states.append(hidden.detach())
        return hidden, mask

    monkeypatch.setattr(model, "hidden", recorded)
    settings = {"glance": "glat", "glance_count": "share", "glance_share": 1e-6, "glance_end": 1e-6}
    for _ in range(2):
        nat_loss(model, batch(), context(50), NatObjectiveConfig(**settings))
    first, second, *of_next_update = states
    assert torch.allclose(first, second, atol=1e-9) and torch.allclose(*of_next_update, atol=1e-9)
    assert (first - of_next_update[0]).abs().max() > 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_shown_changes_the_loss_and_the_random_state_of_dropout_stays(loss):
    model = nat(loss=loss, dropout=0.2, seed=1).train()
    states = []
    for settings in ({}, {"glance": "glat", "glance_count": "share", "glance_share": 1.0, "glance_end": 1.0}):
        torch.manual_seed(5)
        terms = nat_loss(model, batch(), context(50), NatObjectiveConfig(**settings))
        states.append((float(terms.loss.detach()), torch.get_rng_state()))
    assert states[0][0] != states[1][0] and torch.equal(states[0][1], states[1][1]) and model.training


def test_cross_entropy_learns_nothing_of_what_is_shown():
    """Everything is shown where everything is wrong: only the length is learned."""
    model = nat(loss="ce", seed=2)
    with torch.no_grad():
        model.output_bias[3] += 1e4
    config = NatObjectiveConfig(glance="glat", glance_count="share", glance_share=1.0, glance_end=1.0)
    terms = nat_loss(model, batch(), context(), config)
    grads = gradients(model, terms.loss)
    assert float(terms.figures["nll"]) == 0 and figure(terms, "glanced") == 1
    # The path from the length head is the only one.
    assert not grads["decoder.layers.0.self_attention.output.weight"].any() and grads["length.outer.weight"].any()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_shows_the_share_of_the_time_that_training_has_reached(loss):
    """Of every mistake at the start, of none at the end, of half of them in between."""
    model, pairs = nat(loss=loss, seed=3), batch()
    everything = shown_symbols_of_all(model, pairs)
    slots = (everything != NOT_SHOWN).sum(1)
    mistakes_by_row = [mistakes(model, pairs, row, everything[row, : slots[row]].tolist()) for row in range(4)]
    config = NatObjectiveConfig(glance="glat", glance_count="share", glance_share=1.0, glance_end=0.0)
    for step, expected_share in ((0, 1.0), (50, 0.5), (100, 0.0)):
        glanced = figure(nat_loss(model, pairs, context(step), config), "glanced")
        assert glanced * int(slots.sum()) == pytest.approx(
            sum(math.floor(expected_share * count) for count in mistakes_by_row), abs=1e-4
        )
    assert sum(mistakes_by_row) > 4


@pytest.mark.parametrize("loss", LOSSES)
def test_how_many_are_shown_over_many_draws(loss):
    """Poisson numbers with the mean share x D, and for `random` 0 … N - 1, all as likely."""
    model, pair, many = nat(loss=loss, seed=3), one(batch(), 3), 3000
    copies = Batch(pair.source.expand(many, -1), pair.target.expand(many, -1), list(range(many)))
    everything = shown_symbols_of_all(model, Batch(pair.source, pair.target, [0]))[0].tolist()
    mistaken = mistakes(model, pair, 0, everything)
    counts = (shown(model, copies, 0.3, glance_count="poisson")[0] != NOT_SHOWN).sum(1).double()
    mean = 0.3 * mistaken
    # At most all slots are shown, which cuts off next to nothing of the mean.
    assert mistaken > 3 and abs(float(counts.mean()) - mean) < 5 * math.sqrt(mean / many) and counts.max() > mean + 2
    counts = (shown(model, copies, 0.3, glance="random")[0] != NOT_SHOWN).sum(1)
    size = len(everything)
    shares = torch.bincount(counts, minlength=size).double() / many
    assert len(shares) == size and (shares - 1 / size).abs().max() < 5 * math.sqrt(1 / size / many)


@torch.no_grad()
def test_what_is_wrong_is_reported_at_the_latents_of_the_update():
    model, pairs = nat(loss="ce", latent="vae", seed=3), batch()
    memory, keys = model.encode(pairs.source), sentence_keys(pairs, 0)
    slots = training_slots(model, pairs)
    config = NatObjectiveConfig(glance="glat", glance_count="share")
    actual = []
    for seed in range(8):
        z = 10 * torch.randn(*memory.states.shape[:2], 8, generator=torch.Generator().manual_seed(seed)).double()
        shown_here = shown_symbols(config, model, memory, slots, z, pairs.target, keys, 1.0)
        hidden, mask = model.hidden(memory, slots, z)
        wrong = (model.logits(hidden).argmax(-1) != pairs.target[:, : mask.size(1)]) & mask
        actual.append((shown_here != NOT_SHOWN).sum(1).tolist())
        assert actual[-1] == wrong.sum(1).tolist()
    assert len({tuple(counts) for counts in actual}) > 1


@torch.no_grad()
def test_a_shown_slot_begins_with_the_embedding_of_its_symbol():
    model, pairs = nat(seed=3), batch()
    decoder_inputs = []
    model.decoder.register_forward_pre_hook(lambda _module, arguments: decoder_inputs.append(arguments[0]))
    memory = model.encode(pairs.source)
    slots = model.slots(memory)
    everything = shown_symbols_of_all(model, pairs)
    even_symbols = everything.where(torch.arange(everything.size(1)) % 2 == 0, NOT_SHOWN)
    for symbols in (None, even_symbols):
        model.hidden(memory, slots, shown=symbols)
    plain, actual = decoder_inputs[-2:]
    expected = model.target_embedding(even_symbols.clamp(min=0))
    assert torch.allclose(
        actual, torch.where((even_symbols == NOT_SHOWN)[..., None], plain, expected), rtol=0, atol=1e-12
    )
    assert (even_symbols != NOT_SHOWN).any() and (actual - plain).abs().max() > 0.1


def test_poisson_numbers_invert_the_distribution():
    means = torch.tensor([0.0, 0.3, 2.0, 7.5], dtype=torch.float64).repeat_interleave(99)
    numbers = (torch.arange(99, dtype=torch.float64) + 0.5).repeat(4) / 99
    actual = poisson(means, numbers, 40)
    for mean, u, count in zip(means.tolist(), numbers.tolist(), actual.tolist(), strict=True):
        below = 0.0
        for expected in range(41):
            below += math.exp(-mean) * mean**expected / math.factorial(expected)
            if u <= below:
                break
        assert count == expected, (mean, u)
    assert poisson(means, numbers, 3).max() == 3


def test_splitmix_is_the_published_one():
    """The first outputs of the generator that starts at 0 (Vigna's reference code)."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    from workflow_src.losses.draws import GOLDEN, _mixed, _signed

    actual = _mixed(_signed(GOLDEN) * (torch.arange(3) + 1))
    assert [value % 2**64 for value in actual.tolist()] == published
