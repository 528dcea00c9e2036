"""The loss of autoregressive models: label-smoothed cross-entropy of every token and of the end symbol."""

from __future__ import annotations

from workflow_src.losses.common import smoothed_cross_entropy
from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.types import PAD, Batch, LossTerms, TrainingContext, with_end


class CrossEntropy:
    def __init__(self, config: CrossEntropyConfig):
        self.config = config

    def __call__(self, model, batch: Batch, _context: TrainingContext) -> LossTerms:
        labels = with_end(batch.target)
        mask = labels != PAD
        hidden = model.hidden(model.encode(batch.source), batch.target)
        # Padded positions never reach the output projection, the widest product of the model.
        loss, nll = smoothed_cross_entropy(
            hidden[mask], model.target_embedding.weight, model.output_bias, labels[mask], self.config.label_smoothing
        )
        count = batch.num_target_tokens
        return LossTerms(loss / count, count, {"nll": nll / count})
