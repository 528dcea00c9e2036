"""The loss of passes against sentences one by one, its mixture, sampled guesses, and what validation measures."""

from __future__ import annotations

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from miniatures import PairsDev, context, gradients, inat, one, padded, pairs

from workflow_src.families.inat import InatObjectiveConfig
from workflow_src.families.inat.corruption import corrupted
from workflow_src.families.inat.objective import CORRUPT, STREAMS, guessed, next_input, refinement_loss
from workflow_src.families.inat.validation import validate
from workflow_src.losses.draws import sentence_keys, uniform
from workflow_src.types import PAD, Batch

SETTINGS = [
    {"dae_mix": 0.0},
    {"dae_mix": 1.0},
    {"dae_mix": 0.5, "passes": 3},
    {"dae_mix": 0.5, "guess": "sample", "passes": 2},
    {"dae_mix": 0.0, "guess": "sample", "label_smoothing": 0.1, "length_weight": 0.5},
]


def batch() -> Batch:
    return pairs([4, 1, 6, 5], [3, 2, 1, 6])


def loss(model, data: Batch, seed: int = 0, **settings):
    return refinement_loss(model, data, context(seed=seed), InatObjectiveConfig(**settings))


def by_hand(model, data: Batch, inputs: list[torch.Tensor], smoothing: float, length_weight: float) -> torch.Tensor:
    """The loss of one sentence whose later passes read `inputs` (1, T)."""
    memory = model.encode(data.source)
    hidden, mask = model.hidden(memory, data.target_lengths)
    total = 0.0
    for read in [None, *inputs]:
        if read is not None:
            hidden = model.refine(memory, read, hidden, mask)
        logits = hidden[0] @ model.target_embedding.weight.T + model.output_bias
        total = total + F.cross_entropy(logits, data.target[0], reduction="sum", label_smoothing=smoothing)
    difference = int(data.target_lengths) - (data.source.size(1) - 1)
    expected = torch.tensor([min(4, max(-4, difference)) + 4])
    return total + length_weight * F.cross_entropy(model.length(memory), expected)


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_loss_is_the_sum_over_passes_of_every_sentence(settings):
    model, data = inat(), batch()
    config = InatObjectiveConfig(**settings)
    terms = loss(model, data, **settings)
    keys = sentence_keys(data, 0)
    total = 0.0
    for row in range(4):
        pair, key = one(data, row), keys[row : row + 1]
        memory = model.encode(pair.source)
        hidden, mask = model.hidden(memory, pair.target_lengths)
        inputs = []
        for number in range(1, config.passes):
            best = model.logits(hidden).argmax(-1)
            noisy = corrupted(pair.target, key, STREAMS * number + CORRUPT, 0.2, config.corruptions, 11)
            inputs_of_pass = next_input(config, model, hidden, mask, pair.target, key, number)
            if config.guess == "argmax":
                assert torch.equal(inputs_of_pass, noisy) or torch.equal(inputs_of_pass, best)
                assert config.dae_mix in (0.5, float(torch.equal(inputs_of_pass, noisy)))
            inputs.append(inputs_of_pass)
            hidden = model.refine(memory, inputs_of_pass, hidden, mask)
        total = total + by_hand(model, pair, inputs, config.label_smoothing, config.length_weight)
    assert terms.count == int((data.target != PAD).sum())
    assert terms.loss.item() * terms.count == pytest.approx(total.item(), rel=1e-9)
    expected = gradients(model, total / terms.count)
    for name, gradient in gradients(model, terms.loss).items():
        assert torch.allclose(gradient, expected[name], atol=1e-10), name


@pytest.mark.parametrize("settings", SETTINGS)
def test_neither_padding_nor_the_order_of_a_batch_changes_the_loss(settings):
    model, data = inat(), batch()
    terms = loss(model, data, **settings).loss.item()
    turned = Batch(data.source.flip(0), data.target.flip(0), data.indices[::-1])
    for same_data in (padded(data), turned):
        assert loss(model, same_data, **settings).loss.item() == pytest.approx(terms, rel=1e-11)
    if settings["dae_mix"] or settings.get("guess"):
        assert loss(model, data, seed=1, **settings).loss.item() != terms


def test_a_share_of_sentences_is_denoised():
    """1 - dae_mix of the inputs are guesses, for each pass by itself."""
    model, count = inat(), 4000
    pair = one(batch(), 0)
    memory = model.encode(pair.source)
    hidden, mask = (x.expand(count, *x.shape[1:]) for x in model.hidden(memory, pair.target_lengths))
    keys, target = torch.arange(count) * 7919, pair.target.expand(count, -1)
    config = InatObjectiveConfig(dae_mix=0.3, corruption_share=1e-9)
    guess = guessed(model, hidden[:1], mask[:1])
    assert not torch.equal(guess, pair.target)
    chosen = []
    for number in (1, 2):
        inputs = next_input(config, model, hidden, mask, target, keys, number)
        noisy = (inputs == target).all(1)
        assert ((inputs == guess).all(1) == ~noisy).all()
        # Standard error of a share of 0.3: 0.0072.
        assert noisy.double().mean() == pytest.approx(0.3, abs=0.03)
        chosen.append(noisy)
    assert (chosen[0] & chosen[1]).double().mean() == pytest.approx(0.09, abs=0.02)


def test_sampled_words_have_the_models_probabilities():
    model = inat()
    memory = model.encode(one(batch(), 0).source)
    hidden, _ = model.hidden(memory, torch.tensor([3]))
    # So flat that every word appears.
    hidden = 0.2 * hidden
    expected = model.logits(hidden)[0].softmax(-1)
    count = 20000
    numbers = uniform(torch.arange(count) * 7919, (3,))
    mask = torch.ones(count, 3, dtype=torch.bool)
    words = guessed(model, hidden.expand(count, -1, -1), mask, numbers)
    for position in range(3):
        shares = torch.bincount(words[:, position], minlength=11) / count
        # Standard error at most 0.0036.
        assert (shares - expected[position]).abs().max() < 0.015 and not shares[:3].any()
    edges = torch.tensor([[1e-300, 0.5, 1 - 2**-53]], dtype=torch.float64)
    edge_words = guessed(model, hidden, mask[:1], edges)[0]
    assert edge_words[0] == 3 and edge_words[2] == 10


def test_what_is_sampled_does_not_depend_on_which_sentences_are_denoised():
    model = inat()
    memory = model.encode(one(batch(), 0).source)
    hidden = 0.2 * model.hidden(memory, torch.tensor([1]))[0]
    count, word = 20000, 5
    keys, mask = torch.arange(count) * 7919, torch.ones(count, 1, dtype=torch.bool)
    config = InatObjectiveConfig(dae_mix=0.5, guess="sample", corruption_share=1e-12)
    target = torch.full((count, 1), word)
    words = next_input(config, model, hidden.expand(count, -1, -1), mask, target, keys, 1)
    shares = torch.bincount(words[:, 0], minlength=11) / count
    sampled = model.logits(hidden)[0, 0].softmax(-1)
    expected = 0.5 * sampled + 0.5 * (torch.arange(11) == word)
    # Standard error at most 0.0036.
    assert (shares - expected).abs().max() < 0.015


def test_guesses_of_many_words_are_those_of_few(monkeypatch):
    """Logits are computed in blocks of rows."""
    model, data = inat(), batch()
    memory = model.encode(data.source)
    hidden, mask = model.hidden(memory, data.target_lengths)
    numbers = uniform(torch.arange(4), (mask.size(1),))
    in_one_block = [guessed(model, hidden, mask, x) for x in (None, numbers)]
    monkeypatch.setattr("workflow_src.families.inat.objective.block_rows", lambda _hidden, _classes: 5)
    in_blocks = [guessed(model, hidden, mask, x) for x in (None, numbers)]
    assert all(torch.equal(a, b) for a, b in zip(in_one_block, in_blocks, strict=True))
    assert torch.equal(in_one_block[0], model.output(model.logits(hidden).argmax(-1), mask))


def test_an_empty_target_learns_its_length_only():
    model = inat()
    data = Batch(torch.tensor([[4, 5, 2]]), torch.tensor([[PAD]]), (0,))
    terms = loss(model, data)
    assert float(terms.figures["nll"]) == 0 and torch.isfinite(terms.loss) and float(terms.loss.detach()) > 0
    two_pairs = pairs([4, 2], [3, 1])
    two_pairs.target[1] = PAD
    assert torch.isfinite(loss(model, two_pairs).loss)


def test_validation_is_that_of_sentences_one_by_one():
    model, data = inat(), batch()
    rows = [[i for i in row if i != PAD] for row in data.target.tolist()]
    dev, validation = PairsDev(data), validate(InatObjectiveConfig(passes=3))
    sums, exact, outputs = [0.0, 0.0], 0, []
    with torch.no_grad():
        for row in range(4):
            pair = one(data, row)
            memory = model.encode(pair.source)
            for at_reference_lengths in (True, False):
                lengths = pair.target_lengths if at_reference_lengths else model.length.predict(memory)
                hidden, mask = model.hidden(memory, lengths)
                states = [hidden]
                for _ in range(2):
                    hidden = model.refine(memory, model.logits(hidden).argmax(-1), hidden, mask)
                    states.append(hidden)
                if at_reference_lengths:
                    for place, one_of in enumerate((states[0], states[-1])):
                        logits = one_of[0] @ model.target_embedding.weight.T + model.output_bias
                        sums[place] += F.cross_entropy(logits, pair.target[0], reduction="sum").item()
            exact += int(lengths == pair.target_lengths)
            outputs.append(model.logits(states[-1]).argmax(-1)[0].tolist())
    # No pass puts out an end symbol.
    words = sum(map(len, rows))
    figures = dev.figures(model, validation)
    assert validation.criterion == "dev_bleu"
    assert figures["dev_loss_first"] == pytest.approx(sums[0] / words, rel=1e-9)
    assert figures["dev_loss"] == pytest.approx(sums[1] / words, rel=1e-9)
    assert figures["dev_length_accuracy"] == exact / 4
    assert figures["dev_bleu"] == sacrebleu.corpus_bleu(dev.detokenise(outputs), [dev.references]).score
