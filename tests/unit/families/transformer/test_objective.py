from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from miniatures import context, gradients, one, pairs, transformer

from workflow_src.losses.cross_entropy import cross_entropy
from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.types import EOS


def naive(model, batch, smoothing):
    """Sums over all sentences, one at a time: the smoothed loss, the plain one, and the number of terms."""
    loss, plain, count = 0.0, 0.0, 0
    for row in range(batch.source.size(0)):
        single = one(batch, row)
        labels = torch.cat([single.target[0], torch.tensor([EOS])])
        logits = model.logits(model.hidden(model.encode(single.source), single.target))[0]
        loss = loss + F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
        plain = plain + F.cross_entropy(logits, labels, reduction="sum")
        count += len(labels)
    return loss, plain, count


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_mean_over_words_and_end_symbols(joint, smoothing):
    sizes = (11, 11) if joint else (13, 11)
    model = transformer(*sizes, joint)
    batch = pairs([4, 1, 6], [3, 5, 1], sizes)
    terms = cross_entropy(model, batch, context(), CrossEntropyConfig(label_smoothing=smoothing))
    loss, plain, count = naive(model, batch, smoothing)
    assert terms.count == count == 12
    assert terms.loss.item() == pytest.approx(loss.item() / count, rel=1e-12)
    assert terms.figures["nll"].item() == pytest.approx(plain.item() / count, rel=1e-12)
    grads, expected = gradients(model, terms.loss), gradients(model, loss / count)
    for name, gradient in grads.items():
        assert torch.allclose(gradient, expected[name], atol=1e-12), name
