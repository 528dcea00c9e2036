"""What is measured on dev while a system trains, a function a family. Generators are seeded afresh every time, so that
figures of different steps compare and validation changes no training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import sacrebleu
import torch
from torch import Tensor, nn

from workflow_src.config.families import ElboConfig, ScoreMatchingConfig
from workflow_src.data.batching import collate, epoch_batches
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.inference.batches import search_all
from workflow_src.inference.beam import greedy
from workflow_src.inference.latent import best_tokens, delta_step, refine, translate_batch
from workflow_src.objectives.elbo import evidence_lower_bound
from workflow_src.objectives.score_matching import cosine
from workflow_src.training.loop import Validation
from workflow_src.training.runtime import Runtime
from workflow_src.types import Batch, Hypotheses

SEED = 20200914
BATCH = 128
BATCH_TOKENS = 4000


@dataclasses.dataclass(frozen=True)
class Dev:
    """The dev set: encoded pairs, reference lines, and how subword ids become lines."""

    corpus: EncodedCorpus
    references: list[str]
    detokenise: Callable[[list[list[int]]], list[str]]
    runtime: Runtime
    sentences: int

    def sources(self) -> list[list[int]]:
        return [self.corpus.source(row).tolist() for row in range(self.sentences)]

    def batches(self) -> list[Batch]:
        """All pairs, in batches whose order never changes."""
        rows = epoch_batches(self.corpus, BATCH_TOKENS, SEED, 0)
        return [collate(self.corpus, np.asarray(part)).to(self.runtime.device) for part in rows]

    def bleu(self, search: Callable[[Tensor], Hypotheses]) -> float:
        """sacreBLEU of the first sentences under a search, repetitions kept."""
        found = search_all(search, self.sources(), BATCH, self.runtime.device)
        lines = self.detokenise(found.tokens)
        return sacrebleu.corpus_bleu(lines, [self.references[: self.sentences]]).score


def validate_transformer(dev: Dev) -> Validation:
    @torch.no_grad()
    def figures(model: nn.Module) -> dict[str, float]:
        total, count = 0.0, 0
        for batch in dev.batches():
            total -= float(model.log_probabilities(batch.source, batch.target).sum())
            count += batch.num_target_tokens
        return {"dev_loss": total / count, "dev_bleu": dev.bleu(lambda source: greedy(model, source))}

    return Validation(figures, "dev_bleu")


def validate_lvm(dev: Dev, objective: ElboConfig) -> Validation:
    """ELBO and KL in nats a target token, exact lengths, BLEU from the prior mean and from the posterior mean.

    The latter sees the reference: it says whether latents carry the sentence.
    """

    @torch.no_grad()
    def figures(model: nn.Module) -> dict[str, float]:
        generator = dev.runtime.generator(SEED)
        bound = divergence = exact = 0.0
        tokens = sentences = 0
        best: dict[int, list[int]] = {}
        for batch in dev.batches():
            elbo, kl = evidence_lower_bound(model, batch, objective.dev_samples, generator)
            bound, divergence = bound + float(elbo.sum()), divergence + float(kl.sum())
            tokens, sentences = tokens + int(batch.target_mask.sum()), sentences + len(batch.indices)
            memory = model.encode(batch.source)
            exact += float((model.predict_lengths(memory) == batch.target_lengths).sum())
            best |= _posterior_translations(model, memory, batch)
        lines = dev.detokenise([best[row] for row in range(dev.sentences)])
        posterior = sacrebleu.corpus_bleu(lines, [dev.references[: dev.sentences]]).score
        return {
            "dev_elbo": bound / tokens,
            "dev_kl": divergence / tokens,
            "dev_length_accuracy": exact / sentences,
            "dev_bleu": dev.bleu(lambda source: translate_batch(model, source, "prior-mean")),
            "dev_bleu_posterior": posterior,
        }

    return Validation(figures, "dev_elbo")


def _posterior_translations(model: nn.Module, memory, batch: Batch) -> dict[int, list[int]]:
    mean, _ = model.posterior(memory, batch.target, batch.target_mask)
    tokens = best_tokens(model, memory, mean, batch.target_mask).tolist()
    lengths = batch.target_lengths.tolist()
    return {row: tokens[i][: lengths[i]] for i, row in enumerate(batch.indices)}


def validate_refiner(dev: Dev, search: str, objective: ScoreMatchingConfig, frozen: nn.Module) -> Validation:
    """Cosine between direction and delta's offset at full noise and at the prior mean, and BLEU after one step."""

    def figures(model: nn.Module) -> dict[str, float]:
        generator = dev.runtime.generator(SEED)
        parts = [_agreement(model, frozen, batch, objective, generator) for batch in dev.batches()]
        # Joined over all sentences, so that batches of any size count alike; unmoved sentences (NaN) are left out.
        joined = {name: torch.cat([part[name] for part in parts]).nanmean() for name in parts[0]}
        found = dev.bleu(lambda source: translate_batch(frozen, source, search, 1, objective.step_size, refiner=model))
        return {name: float(value.nan_to_num()) for name, value in joined.items()} | {"dev_bleu": found}

    return Validation(figures, "dev_cosine_noise0")


@torch.no_grad()
def _agreement(model, frozen, batch: Batch, objective: ScoreMatchingConfig, generator) -> dict[str, Tensor]:
    """Cosines a sentence (B,); squared error and offset length a position (N,), at full noise and at none."""
    mask = batch.target_mask
    memory = frozen.encode(batch.source)
    mean, deviation = frozen.prior(memory, mask)
    noise = torch.randn(mean.shape, generator=generator, device=mean.device)
    result = {}
    for name, z in (("", mean + deviation * noise), ("_noise0", mean)):
        offset = refine(z, delta_step(frozen, memory, mask), objective.delta_steps) - z
        direction = model.direction(memory, z, mask)
        result[f"dev_cosine{name}"] = cosine(direction, offset, mask)
        result[f"dev_squared_error{name}"] = ((direction - offset) ** 2).sum(-1)[mask]
        result[f"dev_offset_norm{name}"] = offset.norm(dim=-1)[mask]
    return result
