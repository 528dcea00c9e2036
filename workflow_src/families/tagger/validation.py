"""Figures on dev while a tagger trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from workflow_src.decoding.candidates import best_outputs
from workflow_src.families.tagger.objective import words_loss
from workflow_src.losses.settings import OnePassConfig
from workflow_src.types import Batch, DevSet, Validation

if TYPE_CHECKING:
    from workflow_src.families.tagger.model import Tagger


def validate(dev: DevSet, _objective: OnePassConfig, _base: None = None) -> Validation:
    """Loss in nats a word at the reference's length, exact lengths, and BLEU at the predicted length."""

    @torch.no_grad()
    def figures(model: Tagger) -> dict[str, float]:
        results = dev.over_batches(lambda batch: _measured(model, batch))
        nll, words, exact, sentences = (sum(column) for column in zip(*results, strict=True))
        return {
            "dev_loss": nll / words,
            "dev_length_accuracy": exact / sentences,
            "dev_bleu": dev.bleu(lambda source: best_outputs(model, source)),
        }

    return Validation(figures, "dev_bleu")


def _measured(model: Tagger, batch: Batch) -> tuple[float, int, int, int]:
    """Sums over a batch: loss, words, exact lengths, sentences."""
    memory = model.encode(batch.source)
    _, nll = words_loss(model, memory, batch)
    exact = int((model.length.predict(memory) == batch.target_lengths).sum())
    return float(nll), int(batch.target_mask.sum()), exact, len(batch.target)
