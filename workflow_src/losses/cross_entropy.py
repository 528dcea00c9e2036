"""The loss of autoregressive models: label-smoothed cross-entropy of every token and of the end symbol."""

from __future__ import annotations

from workflow_src.losses.common import cells, smoothed_cross_entropy
from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.types import PAD, Batch, LossTerms, TrainingContext, with_end


def cross_entropy(
    model: AutoregressiveModel, batch: Batch, _context: TrainingContext, config: CrossEntropyConfig
) -> LossTerms:
    labels = with_end(batch.target)
    real = cells(with_end(batch.on_cpu.target) != PAD, labels.device)
    hidden = model.hidden(model.encode(batch.source), batch.target)
    # Padded positions never reach the output projection, the widest product of the model.
    loss, nll = smoothed_cross_entropy(
        hidden[real], model.target_embedding.weight, model.output_bias, labels[real], config.label_smoothing
    )
    count = batch.num_target_tokens
    return LossTerms(loss / count, count, {"nll": nll / count})
