"""Figures on dev while a model with two decoders trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.search import searching
from workflow_src.families.inat import InatObjectiveConfig
from workflow_src.families.inat.objective import guessed, pass_loss
from workflow_src.losses.common import exact_lengths
from workflow_src.types import Batch, DevFigures, Measured

if TYPE_CHECKING:
    from workflow_src.families.inat.model import IterativeRefinementModel


def validate(config: InatObjectiveConfig, _base: None = None) -> DevFigures:
    """Loss in nats a subword of the target of the first and the last of K passes, at the reference's length and with
    the best words as guesses; the share of exact lengths; BLEU of K passes at predicted lengths.

    BLEU selects weights: the loss rises on dev while BLEU rises.
    """

    def measure(model: IterativeRefinementModel, batch: Batch, _keys: Tensor) -> Measured:
        memory = model.encode(batch.source)
        hidden, mask = model.hidden(memory, batch.output_lengths)
        scored = batch.cells(batch.target_lengths)
        first = pass_loss(model, hidden, scored, batch.target, 0.0)[1]
        for _ in range(config.passes - 1):
            hidden = model.refine(memory, guessed(model, hidden, mask), hidden, mask)
        last = pass_loss(model, hidden, scored, batch.target, 0.0)[1]
        return Measured(
            {
                "dev_loss": (last, batch.num_target_words),
                "dev_loss_first": (first, batch.num_target_words),
                "dev_length_accuracy": exact_lengths(model.length.predict(memory), batch),
            }
        )

    search = searching("iterative-refinement", passes=config.passes)
    return DevFigures(measure, {"dev_bleu": search}, "dev_bleu")
