"""The two decoders: what they read, where gradients stop, and that neither batch nor padding changes outputs."""

from __future__ import annotations

import pytest
import torch
from miniatures import cmlm, gradients, inat, one, padded, pairs, transformer

from workflow_src.families.inat.model import start
from workflow_src.nn.weights import weights_of
from workflow_src.types import PAD


def batch():
    return pairs([4, 1, 6, 5], [3, 2, 1, 6])


def second(model, data, passes: int = 2):
    """States (B, N, D) of the pass with this number, at the target's lengths, with best words as guesses; the mask."""
    memory = model.encode(data.source)
    hidden, mask = model.hidden(memory, data.target_lengths)
    for _ in range(passes - 1):
        guess = model.output(model.logits(hidden).argmax(-1), mask)
        hidden = model.refine(memory, guess, hidden, mask)
    return hidden, mask


def test_source_words_are_copied_in_order():
    model = inat()
    memory = model.encode(torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]]))
    lengths, positions = torch.tensor([5, 3]), torch.arange(5)
    # floor(n 3 / 5) for n = 0 … 4; the second source has one word.
    assert model.copied(memory, lengths, positions).tolist() == [[4, 4, 5, 5, 6], [7] * 5]
    assert model.copied(memory, torch.tensor([3, 1]), positions[:3]).tolist() == [[4, 5, 6], [7, 7, 7]]
    assert model.copied(memory, torch.tensor([2, 1]), positions[:2]).tolist() == [[4, 5], [7, 7]]


def test_an_empty_source_copies_its_end():
    model = inat()
    memory = model.encode(torch.tensor([[2]]))
    hidden, mask = model.hidden(memory, model.length.predict(memory))
    assert torch.isfinite(hidden).all() and mask.all()


def test_the_first_decoder_reads_copied_embeddings_and_positions():
    model, data = inat(), one(batch(), 0)
    memory = model.encode(data.source)
    hidden, _ = model.hidden(memory, torch.tensor([4]))
    inputs = model.source_embedding.weight[data.source[0, :4]] * 4.0 + model.source_embedding.positions[:4]
    assert torch.allclose(hidden, model.decoder(inputs[None], None, memory), atol=1e-12)


@pytest.mark.parametrize("carry", [True, False])
def test_the_second_decoder_reads_guess_and_states(carry):
    model, data = inat(carry_states=carry), one(batch(), 0)
    memory = model.encode(data.source)
    hidden, mask = model.hidden(memory, torch.tensor([3]))
    inputs = model.target_embedding.weight[data.target[0]] * 4.0 + model.target_embedding.positions[:3]
    inputs = inputs[None] + (hidden if carry else 0)
    actual = model.refine(memory, data.target, hidden, mask)
    assert torch.allclose(actual, model.refiner(inputs, None, memory), atol=1e-12)


@pytest.mark.parametrize("passes", [1, 3])
def test_neither_batch_nor_padding_changes_a_pass(passes):
    model = inat()
    hidden, mask = second(model, padded(batch()), passes)
    for row in range(4):
        single, row_mask = second(model, one(batch(), row), passes)
        assert row_mask.all() and int(mask[row].sum()) == row_mask.size(1)
        assert torch.allclose(hidden[row, mask[row]], single[0], atol=1e-12)


def test_dropout_is_for_training():
    """Two passes draw nothing in evaluation, and change with every draw in training."""
    model, plain = inat(dropout=0.5), inat(dropout=0.0)
    assert torch.equal(second(model, batch())[0], second(plain, batch())[0])
    model.train()
    assert not torch.equal(second(model, batch())[0], second(model, batch())[0])


def test_no_gradient_goes_from_a_pass_to_the_one_before():
    """The loss of the second pass does not depend on the first decoder; that of the third on the second decoder only
    through the third pass itself."""
    model, data = inat(), batch()
    weight = torch.randn(4, 6, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grads = gradients(model, (second(model, data, 2)[0] * weight).sum())
    for name, gradient in grads.items():
        assert (gradient is None) == name.startswith(("decoder.", "length.", "output_bias")), name
    memory = model.encode(data.source)
    before, mask = second(model, data, 2)
    guess = model.output(model.logits(before).argmax(-1), mask)
    constant = before.detach().clone()
    third = gradients(model, (model.refine(memory, guess, constant, mask) * weight).sum())
    grads = gradients(model, (second(model, data, 3)[0] * weight).sum())
    for name, gradient in third.items():
        assert (gradient is None and grads[name] is None) or torch.allclose(gradient, grads[name], atol=1e-12), name


def test_no_special_symbol_is_a_word():
    model = inat()
    hidden, mask = second(model, batch())
    logits = model.logits(hidden)
    assert (logits[..., :3] == float("-inf")).all() and torch.isfinite(logits[..., 3:]).all()
    symbols = logits.argmax(-1)
    assert (model.output(symbols, mask)[~mask] == PAD).all()
    assert torch.equal(model.output(symbols, mask)[mask], symbols[mask])


@pytest.mark.parametrize("joint", [False, True])
def test_both_decoders_begin_as_the_teachers(joint):
    sizes = (11, 11) if joint else (13, 11)
    teacher = weights_of(transformer(*sizes, joint=joint, seed=1))
    model = inat(*sizes, joint=joint, seed=2)
    length = model.length.inner.weight.clone()
    copied = start(model, teacher, "transformer", None)
    weights = weights_of(model)
    assert set(weights) - set(copied) == {name for name in weights if name.startswith("length.")}
    for name, tensor in teacher.items():
        assert torch.equal(weights[name], tensor), name
        if name.startswith("decoder."):
            assert torch.equal(weights[name.replace("decoder.", "refiner.", 1)], tensor), name
    assert torch.equal(model.length.inner.weight, length)


def test_a_model_of_the_same_kind_gives_everything():
    other, model = inat(seed=1), inat(seed=2)
    assert set(start(model, weights_of(other), "inat", None)) == set(weights_of(model))
    assert all(torch.equal(a, b) for a, b in zip(weights_of(model).values(), weights_of(other).values(), strict=True))
    assert not torch.equal(model.decoder.layers[0].self_norm.weight, model.refiner.layers[0].self_norm.weight)
    before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    assert start(model, None, None, None) is None
    assert all(torch.equal(before[name], tensor) for name, tensor in weights_of(model).items())


def test_it_starts_from_a_masked_language_model_whose_mask_it_lacks():
    model, other = inat(), cmlm(13, 12, seed=3)
    copied = start(model, weights_of(other), "cmlm", None)
    assert {"target_embedding.weight", "output_bias", "decoder.norm.weight", "refiner.norm.weight"} <= set(copied)
    for name in ("target_embedding.weight", "output_bias"):
        assert torch.equal(weights_of(model)[name], weights_of(other)[name][:-1]), name
