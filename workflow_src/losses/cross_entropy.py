"""The loss of autoregressive models: label-smoothed cross-entropy of every token and of the end symbol."""

from __future__ import annotations

from workflow_src.losses.common import smoothed_cross_entropy
from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.types import Batch, LossTerms, TrainingContext, with_end


def cross_entropy(
    model: AutoregressiveModel, batch: Batch, _context: TrainingContext, config: CrossEntropyConfig
) -> LossTerms:
    labels = with_end(batch.target)
    real = batch.cells(batch.target_lengths + 1)
    hidden = model.hidden(model.encode_batch(batch), batch.target)
    # Padded positions never reach the output projection, the widest product of the model.
    loss, nll = smoothed_cross_entropy(
        hidden[real], model.target_embedding.weight, model.output_bias, labels[real], config.label_smoothing
    )
    count = batch.num_target_tokens
    return LossTerms(loss / count, count, {"nll": nll / count})
