"""The loss of the fully non-autoregressive model: -log p(y|x) summed over all alignments with its slots (CTC)."""

from __future__ import annotations

from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.losses.ctc import ctc_loss
from workflow_src.types import Batch, LossTerms, TrainingContext


class Ctc:
    """Summed over a batch and divided by its target tokens.

    Targets that have no alignment with the slots of their source add nothing; `unreachable` is their share.
    """

    def __init__(self, config: NatObjectiveConfig):
        self.config = config

    def __call__(self, model, batch: Batch, context: TrainingContext) -> LossTerms:
        hidden, mask = model.hidden(model.encode(batch.source))
        losses, reachable = ctc_loss(
            hidden, model.target_embedding.weight, model.output_bias, mask, batch.target, model.blank
        )
        count = batch.num_target_tokens
        loss = losses.sum() / count
        return LossTerms(loss, count, {"nll": loss.detach(), "unreachable": 1 - reachable.float().mean()})
