"""The loss of the tagger: cross-entropy of every word at its own position, and of the length.

Summed over a batch and divided by its target words:
    label-smoothed -log p(y_t | x)  +  length loss
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.losses.common import cross_entropy_at, length_loss
from workflow_src.losses.settings import OnePassConfig
from workflow_src.types import Batch, LossTerms, Mean, TrainingContext

if TYPE_CHECKING:
    from workflow_src.families.tagger.model import Tagger
    from workflow_src.nn.layers import Memory


def tagging_loss(model: Tagger, batch: Batch, _context: TrainingContext, config: OnePassConfig) -> LossTerms:
    memory = model.encode_batch(batch)
    loss, nll = words_loss(model, memory, batch, config.label_smoothing)
    length, exact = length_loss(model.length, memory, batch)
    count = batch.num_target_words
    figures: dict[str, Tensor | Mean] = {
        "nll": nll / count,
        "length_nll": (length.detach(), len(batch.target)),
        "length_accuracy": exact,
    }
    return LossTerms((loss + config.length_weight * length) / count, count, figures)


def words_loss(model: Tagger, memory: Memory, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Sums over the words of a batch: the label-smoothed loss, and -log p in nats without a gradient."""
    hidden, _ = model.hidden(memory, batch.output_lengths)
    # An empty target has a position, and nothing to learn there.
    learned = batch.cells(batch.target_lengths)
    weight, bias = model.projection.weight, model.projection.bias
    return cross_entropy_at(learned, hidden, weight, bias, batch.target, smoothing)
