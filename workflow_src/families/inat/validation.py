"""Figures on dev while a model with two decoders trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from workflow_src.decoding.iterative import refined
from workflow_src.families.inat import InatObjectiveConfig
from workflow_src.families.inat.objective import guessed, pass_loss
from workflow_src.losses.common import cells
from workflow_src.types import Batch, DevSet, Validation

if TYPE_CHECKING:
    from workflow_src.families.inat.model import IterativeModel


def validate(dev: DevSet, objective: InatObjectiveConfig, _base: None = None) -> Validation:
    """Loss in nats a subword of the target of the first and the last of K passes, at the reference's length and with
    the best words as guesses; the share of exact lengths; BLEU of K passes at predicted lengths.

    BLEU selects weights: the loss rises on dev while BLEU rises.
    """

    @torch.no_grad()
    def figures(model: IterativeModel) -> dict[str, float]:
        results = dev.over_batches(lambda batch: _measured(model, objective, batch))
        first, last, tokens, exact, sentences = (sum(column) for column in zip(*results, strict=True))
        return {
            "dev_loss": last / tokens,
            "dev_loss_first": first / tokens,
            "dev_length_accuracy": exact / sentences,
            "dev_bleu": dev.bleu(lambda source: refined(model, source, objective.passes, scored=False)),
        }

    return Validation(figures, "dev_bleu")


def _measured(
    model: IterativeModel, objective: InatObjectiveConfig, batch: Batch
) -> tuple[float, float, int, int, int]:
    """Sums over a batch: nats of the first and the last pass, subwords of the target, exact lengths, sentences."""
    memory = model.encode(batch.source)
    hidden, mask = model.hidden(memory, batch.target_lengths.clamp(min=1))
    scored = cells(batch.target_mask, hidden.device)
    first = pass_loss(model, hidden, scored, batch.target, 0.0)[1]
    for _ in range(objective.passes - 1):
        hidden = model.refine(memory, guessed(model, hidden, mask), hidden, mask)
    last = pass_loss(model, hidden, scored, batch.target, 0.0)[1]
    exact = int((model.length.predict(memory) == batch.target_lengths).sum())
    return float(first), float(last), batch.num_target_words, exact, len(mask)
