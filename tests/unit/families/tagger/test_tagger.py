"""The tagger's loss and its figures on dev, against sums over single sentences and positions."""

from __future__ import annotations

import pytest
import torch
from miniatures import PairsDev, context, gradients, one, pairs, tagger

from workflow_src.families.tagger.objective import tagging_loss
from workflow_src.families.tagger.validation import validate
from workflow_src.losses.settings import OnePassConfig
from workflow_src.types import Batch

LENGTHS = [4, 1, 6, 5], [3, 2, 1, 6]


def loss_of(model, batch: Batch, **settings):
    return tagging_loss(model, batch, context(), OnePassConfig(**settings))


def by_hand(model, batch: Batch, smoothing: float, length_weight: float) -> tuple[torch.Tensor, float]:
    """The summed loss of a batch, and -log p of its words in nats."""
    total, nll = torch.zeros((), dtype=torch.float64), 0.0
    for row in range(len(batch.target)):
        pair = one(batch, row)
        memory, count = model.encode(pair.source), pair.target.size(1)
        hidden, mask = model.hidden(memory, torch.tensor([count]))
        assert mask.all() and mask.size(1) == count
        logits = hidden[0] @ model.projection.weight.T + model.projection.bias
        for place, word in enumerate(pair.target[0].tolist()):
            chances = logits[place].log_softmax(-1)
            nll -= float(chances[word].detach())
            total = total - (1 - smoothing) * chances[word] - smoothing * chances.mean()
        scores = model.length(memory)[0].log_softmax(-1)
        difference = count - (pair.source.size(1) - 1)
        total = total - length_weight * scores[model.config.max_length_difference + difference]
    return total, nll


@pytest.mark.parametrize(("smoothing", "length_weight"), [(0.0, 1.0), (0.1, 0.5)])
def test_the_loss_is_cross_entropy_of_every_word_at_its_place_and_of_the_length(smoothing, length_weight):
    model, batch = tagger(seed=1), pairs(*LENGTHS)
    terms = loss_of(model, batch, label_smoothing=smoothing, length_weight=length_weight)
    expected, nll = by_hand(model, batch, smoothing, length_weight)
    words = sum(LENGTHS[1])
    assert terms.count == words and float(terms.figures["nll"]) == pytest.approx(nll / words, rel=1e-12)
    assert float(terms.loss.detach()) == pytest.approx(float(expected.detach()) / words, rel=1e-12)
    actual_gradients, expected_gradients = gradients(model, terms.loss), gradients(model, expected / words)
    for name, gradient in actual_gradients.items():
        assert torch.allclose(gradient, expected_gradients[name], rtol=1e-9, atol=1e-12), name


def test_figures_on_dev_are_those_of_sentences_one_by_one():
    model, batch = tagger(seed=1), pairs(*LENGTHS)
    dev = PairsDev(batch, [2], [0], [1, 3])
    figures = dev.figures(model, validate(OnePassConfig(label_smoothing=0.3)))
    # Whatever is smoothed in training, the figure is -log p itself.
    assert figures["dev_loss"] == pytest.approx(by_hand(model, batch, 0.0, 1.0)[1] / sum(LENGTHS[1]), rel=1e-12)
    exact, expected = 0, []
    for row in range(4):
        memory = model.encode(one(batch, row).source)
        length = int(model.length.predict(memory))
        exact += length == LENGTHS[1][row]
        expected.append(model.logits(model.hidden(memory, torch.tensor([length]))[0])[0].argmax(-1).tolist())
    assert figures["dev_length_accuracy"] == exact / 4
    assert figures["dev_bleu"] == pytest.approx(dev.bleu_of(expected))
