"""Figures on dev while a model with latents of the source's length trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workflow_src.decoding.latent import best_ids
from workflow_src.decoding.refinement import DeltaStep, translate_batch
from workflow_src.losses.common import collapsed
from workflow_src.losses.draws import sentence_keys
from workflow_src.losses.settings import ElboConfig
from workflow_src.losses.source_latents import evidence_lower_bound
from workflow_src.types import Batch, DevSet, Hypotheses, Validation

if TYPE_CHECKING:
    from workflow_src.families.lanmt.model import SourceLatentVariableModel


def validate(dev: DevSet, objective: ElboConfig, _base: None = None) -> Validation:
    """ELBO in nats a target position, KL in nats a source position, exact lengths, and BLEU.

    The ELBO has the length's probability in it (Shu et al. 2020, equation 5); its draws follow from a sentence's row in
    the corpus alone. `dev_bleu` is that of the prior mean, `dev_bleu_delta` that after one delta step. The latents
    carry nothing where the KL is near 0 and `dev_bleu_posterior`, from the posterior mean of the reference, is no
    better than `dev_bleu`: `dev_bleu_carried` is their difference.
    """

    def after_delta(model: SourceLatentVariableModel, source: Tensor) -> Hypotheses:
        return translate_batch(model, source, lambda memory, mask: DeltaStep(model, memory, mask), 1)

    @torch.no_grad()
    def figures(model: SourceLatentVariableModel) -> dict[str, float]:
        results = dev.over_batches(lambda batch: _measured(model, objective, batch, dev.generator()))
        sums = {name: sum(of_batch[name] for of_batch, _ in results) for name in results[0][0]}
        translations = {row: tokens for _, of_batch in results for row, tokens in of_batch.items()}
        posterior = dev.bleu_of([translations[row] for row in range(dev.sentences)])
        prior = dev.bleu(lambda source: translate_batch(model, source))
        return {
            "dev_elbo": sums["elbo"] / sums["tokens"],
            "dev_kl": sums["kl"] / sums["positions"],
            "dev_length_accuracy": sums["exact"] / sums["sentences"],
            "dev_bleu": prior,
            "dev_bleu_delta": dev.bleu(lambda source: after_delta(model, source)),
            "dev_bleu_posterior": posterior,
            "dev_bleu_carried": posterior - prior,
        }

    return Validation(figures, "dev_elbo", fault=collapsed)


def _measured(
    model: SourceLatentVariableModel, objective: ElboConfig, batch: Batch, generator: torch.Generator
) -> tuple[dict[str, float], dict[int, list[int]]]:
    """Sums over a batch, and the translations from the posterior mean by row of the corpus."""
    memory = model.encode(batch.source)
    keys = sentence_keys(batch, generator)
    elbo, kl = evidence_lower_bound(model, memory, batch.target, objective.dev_samples, keys)
    rows, _ = best_ids(model, memory, model.posterior(memory, batch.target)[0], memory.mask, scored=False)
    lengths = model.predict_lengths(memory, model.prior(memory)[0])
    sums = {
        "elbo": float(elbo.sum()),
        "kl": float(kl.sum()),
        "tokens": batch.num_target_tokens,
        "positions": int(memory.mask.sum()),
        "sentences": len(rows),
        "exact": int((lengths == batch.target_lengths).sum()),
    }
    return sums, dict(zip(batch.indices, rows, strict=True))
