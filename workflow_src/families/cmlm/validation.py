"""Figures on dev while a masked language model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from workflow_src.decoding.masked import best_outputs
from workflow_src.families.cmlm import CmlmObjectiveConfig
from workflow_src.families.cmlm.objective import masked_cross_entropy, masked_places
from workflow_src.losses.draws import sentence_keys
from workflow_src.types import Batch, DevSet, Validation

if TYPE_CHECKING:
    from workflow_src.families.cmlm.model import MaskedLanguageModel


def validate(dev: DevSet, objective: CmlmObjectiveConfig, _base: None = None) -> Validation:
    """Loss in nats a masked subword, with the same masks at every validation; exact lengths; and BLEU.

    `dev_bleu` is that of `dev_iterations` passes at the most probable length, `dev_bleu_one_pass` that of the first.
    BLEU selects weights.
    """

    @torch.no_grad()
    def figures(model: MaskedLanguageModel) -> dict[str, float]:
        generator = dev.generator()

        def pass_by(batch: Batch) -> None:
            sentence_keys(batch, generator)

        results = dev.over_batches(lambda batch: _measured(model, batch, generator), pass_by)
        nll, masked, exact, sentences = (sum(column) for column in zip(*results, strict=True))

        def bleu(iterations: int) -> float:
            return dev.bleu(lambda source: best_outputs(model, source, iterations))

        return {
            "dev_loss": nll / masked,
            "dev_length_accuracy": exact / sentences,
            "dev_bleu": bleu(objective.dev_iterations),
            "dev_bleu_one_pass": bleu(1),
        }

    return Validation(figures, "dev_bleu")


def _measured(model: MaskedLanguageModel, batch: Batch, generator: torch.Generator) -> tuple[float, int, int, int]:
    """Sums over a batch: loss, masked subwords, exact lengths, sentences."""
    masked = masked_places(sentence_keys(batch, generator), batch.target_lengths, batch.target.size(1))
    memory = model.encode(batch.source)
    _, nll = masked_cross_entropy(model, memory, batch.target, masked)
    exact = int((model.length.predict(memory) == batch.target_lengths).sum())
    return float(nll), int(masked.sum()), exact, len(batch.target)
