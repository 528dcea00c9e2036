"""Cross-entropy, aligned cross-entropy and latents of the one-pass model; what is refused."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from miniatures import context, figure, nat, one, pairs

from workflow_src import registry
from workflow_src.decoding.ctc import collapse
from workflow_src.decoding.refinement import delta_step
from workflow_src.families.nat import FAMILY, NatConfig, NatObjectiveConfig
from workflow_src.families.nat.objective import nat_loss
from workflow_src.losses.axe import axe_loss
from workflow_src.losses.common import length_loss
from workflow_src.losses.draws import normal, sentence_keys
from workflow_src.nn.layers import attention_bias
from workflow_src.serving import bundle
from workflow_src.types import PAD


def batch():
    """Targets without the blank, id 10."""
    return pairs([4, 1, 6, 5], [3, 2, 1, 6], (13, 10))


def terms(model, pairs=None, step: int = 100, **settings):
    return nat_loss(model, pairs or batch(), context(step), NatObjectiveConfig(**settings))


@torch.no_grad()
def test_latents_are_added_before_slots_are_copied_and_before_the_decoder_attends():
    model, pairs = nat(latent="vae", seed=2), batch()
    memory = model.encode(pairs.source)
    z = torch.randn(*memory.states.shape[:2], 8, generator=torch.Generator().manual_seed(1)).double()
    actual, mask = model.hidden(memory, z=z)
    states = memory.states + z @ model.latents.projection.weight.T + model.latents.projection.bias
    moved = dataclasses.replace(memory, states=states)
    indices, slots = torch.arange(mask.size(1)), model.slots(memory)
    inputs = model.copied(moved, slots, indices) + model.source_embedding.positions[: mask.size(1)]
    expected = model.decoder(inputs, attention_bias(mask), moved)
    assert torch.allclose(actual[mask], expected[mask], rtol=0, atol=1e-10)
    elsewhere = model.decoder(inputs, attention_bias(mask), memory)
    assert (actual[mask] - elsewhere[mask]).abs().max() > 1e-3


@pytest.mark.parametrize("loss", ["ctc", "axe"])
def test_labels_of_alignments_are_smoothed(loss):
    """Each sentence by itself: (1 - s) of its loss, and s |y| times the mean of -log p over slots and symbols."""
    model, pairs = nat(loss=loss), batch()
    actual = terms(model, label_smoothing=0.2, length_weight=0.5)
    plain = terms(model, length_weight=0.5)
    spread = expected = 0.0
    for row in range(4):
        pair = one(pairs, row)
        words = pair.target.size(1)
        slots = None if loss == "ctc" else torch.tensor([words])
        hidden, _ = model.hidden(model.encode(pair.source), slots)
        scores = (hidden[0] @ model.target_embedding.weight.T + model.output_bias).log_softmax(-1)
        spread += words * float(-scores.mean().detach())
        if loss == "axe":
            expected += 0.2 * 0.5 * float(length_loss(model.length, model.encode(pair.source), pair)[0].detach())
    expected += 0.8 * float(plain.loss.detach()) * plain.count + 0.2 * spread
    assert float(actual.loss.detach()) * actual.count == pytest.approx(expected, rel=1e-9)
    assert actual.figures["nll"] == plain.figures["nll"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_that_of_the_references_positions(smoothing):
    model, pairs = nat(loss="ce"), batch()
    actual = terms(model, label_smoothing=smoothing, length_weight=0.5)
    expected = 0.0
    for row in range(4):
        pair = one(pairs, row)
        memory = model.encode(pair.source)
        hidden, mask = model.hidden(memory, torch.tensor([pair.target.size(1)]))
        assert mask.all()
        # The blank and special symbols are classes like others in training.
        logits = hidden[0] @ model.target_embedding.weight.T + model.output_bias
        expected += torch.nn.functional.cross_entropy(
            logits, pair.target[0], reduction="sum", label_smoothing=smoothing
        )
        expected += 0.5 * length_loss(model.length, memory, pair)[0]
    assert float(actual.loss.detach()) * actual.count == pytest.approx(expected.item(), rel=1e-12)


def test_aligned_cross_entropy_has_as_many_predictions_as_the_reference():
    model, pairs = nat(loss="axe"), batch()
    actual = terms(model, skip_penalty=3.0, length_weight=0.5)
    expected = 0.0
    for row in range(4):
        pair = one(pairs, row)
        hidden, mask = model.hidden(model.encode(pair.source), torch.tensor([pair.target.size(1)]))
        weight, bias = model.target_embedding.weight, model.output_bias
        expected += float(axe_loss(hidden, weight, bias, mask, pair.target, model.blank, 3.0)[1])
        expected += 0.5 * float(length_loss(model.length, model.encode(pair.source), pair)[0].detach())
    assert float(actual.loss.detach()) * actual.count == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", ["ctc", "axe", "ce"])
def test_the_divergence_is_that_of_torch_and_is_added_to_the_loss(loss):
    model, pairs = nat(loss=loss, latent="vae", latent_dim=3), batch()
    actual = terms(model, kl_budget=0.0)
    memory = model.encode(pairs.source)
    (mean_p, scale_p) = model.prior(memory, memory.mask)
    (mean_q, scale_q) = model.posterior(memory, pairs.target, memory.mask)
    divergence = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean_q, scale_q), torch.distributions.Normal(mean_p, scale_p)
    ).sum(-1)
    expected = divergence[pairs.source != PAD]
    assert figure(actual, "kl") == pytest.approx(expected.mean().item(), rel=1e-12)
    keys = sentence_keys(pairs, 0)
    z = mean_q + scale_q * normal(keys, tuple(mean_q.shape[1:]))
    # A budget that is never reached costs itself at every source position.
    free = terms(model, kl_budget=1e3, budget_end=1e3)
    positions = int((pairs.source != PAD).sum())
    assert float(free.loss - actual.loss) * actual.count == pytest.approx(
        (1e3 * positions - expected.sum()).item(), rel=1e-9
    )
    assert torch.isfinite(model.hidden(memory, z=z)[0]).all()


def test_the_budget_is_held_and_falls_to_nothing():
    model = nat(latent="vae")
    actual = [terms(model, step=step).figures["kl_budget"] for step in (0, 9, 25, 40, 100)]
    assert actual == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0], abs=1e-12)


def test_the_posterior_shares_embeddings_alone():
    model, pairs = nat(latent="vae"), batch()
    memory = model.encode(pairs.source)
    mean, _ = model.posterior(memory, pairs.target, memory.mask)
    grads = torch.autograd.grad(mean.sum(), list(model.parameters()), allow_unused=True)
    names = [name for (name, _), gradient in zip(model.named_parameters(), grads, strict=True) if gradient is not None]
    assert all(name.startswith(("latents.", "source_embedding", "target_embedding")) for name in names)
    assert not any("prior" in name for name in names) and any("target_encoder" in name for name in names)
    # It reads both sides.
    changed_target = pairs.target.clone()
    changed_target[0, 0] = 3 + (changed_target[0, 0] - 2) % 7
    moved, _ = model.posterior(memory, changed_target, memory.mask)
    assert not torch.allclose(moved[0], mean[0], atol=1e-6) and torch.allclose(moved[1:], mean[1:], atol=1e-12)


@pytest.mark.parametrize("loss", ["ctc", "axe", "ce"])
def test_a_delta_step_is_argmax_collapse_and_posterior_mean(loss):
    model, source = nat(loss=loss, latent="vae", seed=4, upsample=2.0), batch().source
    memory = model.encode(source)
    z = model.prior(memory, memory.mask)[0] + 0.5
    actual = delta_step(model, memory, z, memory.mask)
    lengths = set()
    for row in range(4):
        words_of_source = source[row][source[row] != PAD][None]
        memory_of_row = model.encode(words_of_source)
        hidden, mask = model.hidden(memory_of_row, z=z[row : row + 1, : words_of_source.size(1)])
        path = model.logits(hidden)[0].argmax(-1).tolist()
        words = collapse(path, model.blank) if loss == "ctc" else [symbol for symbol in path if symbol != model.blank]
        lengths.add(len(words))
        expected, _ = model.posterior(memory_of_row, torch.tensor([words], dtype=torch.int64), memory_of_row.mask)
        assert mask.all() and torch.allclose(actual[row, : words_of_source.size(1)], expected[0], atol=1e-10)
    assert len(lengths) > 1


@pytest.mark.parametrize("loss", ["ctc", "axe", "ce"])
def test_outputs_are_read_off_symbols(loss):
    model = nat(loss=loss, target_size=8)
    symbols = torch.tensor([[4, 4, 7, 4, 5, 5], [7, 7, 7, 7, 7, 7], [5, 6, 6, 7, 7, 4]])
    mask = torch.tensor([6, 5, 4])[:, None] > torch.arange(6)
    actual = [[i for i in row if i != PAD] for row in model.output(symbols, mask).tolist()]
    assert actual == ([[4, 4, 5], [], [5, 6]] if loss == "ctc" else [[4, 4, 4, 5, 5], [], [5, 6, 6]])


def test_cross_entropy_never_puts_out_a_blank_and_aligned_cross_entropy_may():
    for loss, allowed in (("ce", False), ("axe", True), ("ctc", True)):
        model = nat(loss=loss)
        assert torch.isfinite(model.symbol_bias()[model.blank]) == allowed


def words_in_order(reason, words):
    return re.search(".*".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words), reason) is not None


@pytest.mark.parametrize(
    "model, objective, words",
    [
        ({"loss": "ce"}, {"skip_penalty": 3.0}, ["skip_penalty", "loss: axe,", "ce"]),
        ({}, {"length_weight": 2.0}, ["length_weight", "loss: axe or ce,", "ctc"]),
        ({}, {"kl_budget": 2.0}, ["objective.kl_budget is for model.latent: vae, and that is none"]),
        ({}, {"glance_share": 0.3}, ["glance_share", "objective.glance: glat,", "none"]),
        ({}, {"glance": "random", "glance_count": "share"}, ["glance_count", "objective.glance: glat"]),
        ({"loss": "ce"}, {"ngrams": 2}, ["objective.ngrams", "loss: ctc", "ce"]),
        ({"latent": "vae"}, {"ngrams": 1}, ["objective.ngrams", "latent: none", "vae"]),
        ({}, {"ngrams": 2, "glance": "glat"}, ["objective.glance", "objective.ngrams"]),
        ({}, {"ngrams": 2, "label_smoothing": 0.1}, ["objective.label_smoothing", "objective.ngrams"]),
        ({}, {"ngrams": 2}, None),
        ({}, {}, None),
        ({"loss": "axe", "latent": "vae"}, {"skip_penalty": 3.0, "kl_budget": 0.5, "glance": "glat"}, None),
    ],
)
def test_settings_of_the_objective_that_do_nothing_are_refused(model, objective, words):
    sizes = {"dim": 8, "feed_forward": 8, "heads": 1, "encoder_layers": 1, "layers": 1}
    reason = FAMILY.conflict(NatConfig(**sizes, **model), NatObjectiveConfig(**objective))
    assert reason is None if words is None else words_in_order(reason, words)


@pytest.mark.parametrize(
    "model, search, settings, words",
    [
        ({"loss": "ce"}, "ctc-beam", {}, ["loss: ctc,", "ce", "argmax"]),
        ({"loss": "axe"}, "ctc-greedy", {}, ["loss: ctc,", "axe"]),
        ({}, "argmax", {}, ["needs model.loss: axe or ce, and that is ctc; use search ctc-greedy"]),
        ({}, "npd", {}, ["latent: vae,", "none"]),
        ({"loss": "ce"}, "delta", {}, ["latent: vae,", "none"]),
        ({}, "ctc-beam", {"draws": 5}, ["draws", "latent: vae,", "none"]),
        ({"latent": "vae"}, "delta", {"length_quantile": 0.6}, ["length_quantile"]),
        ({"latent": "vae"}, "latent-search", {}, ["several lengths"]),
        ({"latent": "vae"}, "ctc-beam", {"draws": 5}, None),
        ({"latent": "vae"}, "ctc-greedy", {}, None),
        ({"latent": "vae", "loss": "axe"}, "npd", {}, None),
        ({"loss": "axe"}, "argmax", {"lengths": 3}, None),
        ({"loss": "axe", "max_length_difference": 1}, "argmax", {"lengths": 4}, ["at most 3"]),
        ({"latent": "vae"}, "score", {}, None),
    ],
)
def test_searches_that_a_model_did_not_learn_for_are_refused(model, search, settings, words):
    sizes = {"dim": 8, "feed_forward": 8, "heads": 1, "encoder_layers": 1, "layers": 1}
    declared = registry.searches()[search]
    reason = FAMILY.refuses(NatConfig(**sizes, **model), declared, declared.settings(**settings))
    assert reason is None if words is None else words_in_order(reason, words)


@pytest.mark.parametrize(
    "model, known, default",
    [
        ({}, {"ctc-greedy", "ctc-beam"}, "ctc-greedy"),
        ({"loss": "axe"}, {"argmax"}, "argmax"),
        ({"latent": "vae"}, {"ctc-greedy", "ctc-beam", "npd", "prior-mean", "delta"}, "ctc-greedy"),
        ({"loss": "ce", "latent": "vae"}, {"argmax", "npd", "prior-mean", "delta"}, "argmax"),
    ],
)
def test_bundles_say_the_searches_that_their_model_learned_for(model, known, default):
    sizes = {"dim": 8, "feed_forward": 8, "heads": 1, "encoder_layers": 1, "layers": 1}
    description = bundle.describe(FAMILY, models=[{**sizes, **model}])
    assert set(description["searches"]) == known and description["defaults"] == {"search": default}
    network = {"dim": 8, "feed_forward": 8, "heads": 1, "layers": 1}
    # A refiner of such a base moves latents of source positions.
    refined = bundle.describe(registry.families()["score"], FAMILY, models=[network, {**sizes, "latent": "vae"}])
    assert refined["defaults"] == {"search": "score"} and "latent-search" not in refined["searches"]


def test_bundles_have_searches_whose_defaults_ask_for_more_than_their_model_has():
    """Five lengths and ten iterations are the defaults of mask-predict."""
    sizes = {"dim": 8, "feed_forward": 8, "heads": 1, "encoder_layers": 1, "layers": 1}
    for name, search in (("cmlm", "mask-predict"), ("lvm", "latent-search")):
        latents = {"latent_dim": 2} if name == "lvm" else {}
        model = {**sizes, **latents, "max_length_difference": 1, "max_positions": 4}
        assert search in bundle.describe(registry.families()[name], models=[model])["searches"]
