"""Figures on dev while a latent-variable model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from workflow_src.decoding.latent import best_tokens, draw_noise, word_rows
from workflow_src.decoding.refinement import translate_batch
from workflow_src.families.lvm.objective import evidence_lower_bound
from workflow_src.losses.common import collapsed
from workflow_src.losses.settings import ElboConfig
from workflow_src.types import PAD, Batch, DevSet, Validation

if TYPE_CHECKING:
    from workflow_src.families.lvm.model import LatentVariableModel
    from workflow_src.nn.layers import Memory


def validate(dev: DevSet, objective: ElboConfig, _base: None = None) -> Validation:
    """ELBO and KL in nats a target token, exact lengths, BLEU from the prior mean and from the posterior mean.

    The latter reads the reference: it shows whether latents carry the sentence. The ELBO selects weights.
    """

    @torch.no_grad()
    def figures(model: LatentVariableModel) -> dict[str, float]:
        generator = dev.generator()
        by_row: dict[int, list[int]] = {}

        def measure(batch: Batch) -> tuple[tuple[float, float, int, int, float], dict[int, list[int]]]:
            elbo, kl = evidence_lower_bound(model, batch, objective.dev_samples, generator)
            memory = model.encode(batch.source)
            exact = float((model.predict_lengths(memory) == batch.target_lengths).sum())
            positions = int(batch.target_mask.sum()) + model.extra_positions * len(batch.indices)
            sums = (float(elbo.sum()), float(kl.sum()), positions, len(batch.indices), exact)
            return sums, _posterior_translations(model, memory, batch)

        def pass_by(batch: Batch) -> None:
            for _ in range(objective.dev_samples):
                draw_noise(batch, model, generator)

        bound = divergence = exact = 0.0
        tokens = sentences = 0
        for sums, translations in dev.over_batches(measure, pass_by):
            bound, divergence, exact = bound + sums[0], divergence + sums[1], exact + sums[4]
            tokens, sentences = tokens + sums[2], sentences + sums[3]
            by_row |= translations
        posterior = dev.bleu_of([by_row[row] for row in range(dev.sentences)])
        return {
            "dev_elbo": bound / tokens,
            "dev_kl": divergence / tokens,
            "dev_length_accuracy": exact / sentences,
            "dev_bleu": dev.bleu(lambda source: translate_batch(model, source)),
            "dev_bleu_posterior": posterior,
        }

    return Validation(figures, "dev_elbo", fault=collapsed)


def _posterior_translations(model: LatentVariableModel, memory: Memory, batch: Batch) -> dict[int, list[int]]:
    """The best words at the posterior mean of the reference, by row of the corpus."""
    target = model.whole_target(batch.target)
    mask = target != PAD
    mean, _ = model.posterior(memory, target, mask)
    rows = word_rows(best_tokens(model, memory, mean, mask), mask)
    return dict(zip(batch.indices, rows, strict=True))
