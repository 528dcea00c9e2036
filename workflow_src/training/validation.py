"""What is measured on dev while a system trains, a function a family. Generators are seeded afresh every time, so that
figures of different steps compare and validation changes no training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import sacrebleu
import torch
from torch import Tensor, nn

from workflow_src.config.families import ElboConfig, ScoreMatchingConfig
from workflow_src.data.batching import collate, epoch_batches
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.decoding.batches import search_all
from workflow_src.decoding.latent import best_tokens, delta_step, refine, translate_batch, word_rows
from workflow_src.families.lvm.objective import evidence_lower_bound
from workflow_src.losses.score_matching import cosine
from workflow_src.runtime.device import Runtime
from workflow_src.runtime.processes import Group
from workflow_src.searches.greedy.search import greedy
from workflow_src.training.loop import Validation
from workflow_src.types import PAD, Batch, Hypotheses

SEED = 20200914
BATCH = 128
BATCH_TOKENS = 4000


@dataclasses.dataclass(frozen=True)
class Dev:
    """The dev set: encoded pairs, reference lines, and how subword ids become lines.

    The processes of a `group` divide the work; all of them get all results, in the order of one process.
    """

    corpus: EncodedCorpus
    references: list[str]
    detokenise: Callable[[list[list[int]]], list[str]]
    runtime: Runtime
    sentences: int
    group: Group = Group()

    def sources(self) -> list[list[int]]:
        return [self.corpus.source(row).tolist() for row in range(self.sentences)]

    def batches(self) -> list[Batch]:
        """All pairs, in batches whose order never changes."""
        rows = epoch_batches(self.corpus, BATCH_TOKENS, SEED, 0)
        return [collate(self.corpus, np.asarray(part)).to(self.runtime.device) for part in rows]

    def over_batches(self, measure: Callable[[Batch], Any], pass_by: Callable[[Batch], None] | None = None) -> list:
        """`measure` of every batch, in order; `pass_by` is called for those that other processes measure."""
        mine: dict[int, Any] = {}
        for number, batch in enumerate(self.batches()):
            if number % self.group.size == self.group.rank:
                mine[number] = measure(batch)
            elif pass_by:
                pass_by(batch)
        whole = {number: result for part in self.group.gather(mine) for number, result in part.items()}
        return [whole[number] for number in sorted(whole)]

    def translate(self, search: Callable[[Tensor], Hypotheses]) -> list[list[int]]:
        """Tokens of the first sentences under a search."""
        sources = self.sources()
        # Whole batches as `search_all` makes them, so that padding is the same in one process and in several.
        longest_first = sorted((row for row in range(len(sources)) if sources[row]), key=lambda row: -len(sources[row]))
        mine = [row for place, row in enumerate(longest_first) if place // BATCH % self.group.size == self.group.rank]
        found = search_all(search, [sources[row] for row in mine], BATCH, self.runtime.device)
        whole = {row: tokens for part in self.group.gather(dict(zip(mine, found.tokens, strict=True)))
                 for row, tokens in part.items()}  # fmt: skip
        return [whole.get(row, []) for row in range(len(sources))]

    def bleu(self, search: Callable[[Tensor], Hypotheses]) -> float:
        """sacreBLEU of the first sentences under a search, repetitions kept."""
        lines = self.detokenise(self.translate(search))
        return sacrebleu.corpus_bleu(lines, [self.references[: self.sentences]]).score


def validate_transformer(dev: Dev) -> Validation:
    @torch.no_grad()
    def figures(model: nn.Module) -> dict[str, float]:
        def measure(batch: Batch) -> tuple[float, int]:
            return float(model.log_probabilities(batch.source, batch.target).sum()), batch.num_target_tokens

        total, count = 0.0, 0
        for found, tokens in dev.over_batches(measure):
            total -= found
            count += tokens
        return {"dev_loss": total / count, "dev_bleu": dev.bleu(lambda source: greedy(model, source))}

    return Validation(figures, "dev_bleu")


def validate_lvm(dev: Dev, objective: ElboConfig) -> Validation:
    """ELBO and KL in nats a target token, exact lengths, BLEU from the prior mean and from the posterior mean.

    The latter sees the reference: it says whether latents carry the sentence.
    """

    @torch.no_grad()
    def figures(model: nn.Module) -> dict[str, float]:
        generator = dev.runtime.generator(SEED)
        best: dict[int, list[int]] = {}

        def measure(batch: Batch) -> tuple[tuple[float, float, int, int, float], dict[int, list[int]]]:
            elbo, kl = evidence_lower_bound(model, batch, objective.dev_samples, generator)
            memory = model.encode(batch.source)
            exact = float((model.predict_lengths(memory) == batch.target_lengths).sum())
            positions = int(batch.target_mask.sum()) + model.extra_positions * len(batch.indices)
            sums = (float(elbo.sum()), float(kl.sum()), positions, len(batch.indices), exact)
            return sums, _posterior_translations(model, memory, batch)

        def pass_by(batch: Batch) -> None:
            for _ in range(objective.dev_samples):
                _draw(batch, model, generator)

        bound = divergence = exact = 0.0
        tokens = sentences = 0
        for sums, translations in dev.over_batches(measure, pass_by):
            bound, divergence, exact = bound + sums[0], divergence + sums[1], exact + sums[4]
            tokens, sentences = tokens + sums[2], sentences + sums[3]
            best |= translations
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
    target = model.whole_target(batch.target)
    mask = target != PAD
    mean, _ = model.posterior(memory, target, mask)
    rows = word_rows(best_tokens(model, memory, mean, mask), mask)
    return dict(zip(batch.indices, rows, strict=True))


def validate_refiner(dev: Dev, search: str, objective: ScoreMatchingConfig, frozen: nn.Module) -> Validation:
    """Cosine between direction and delta's offset at full noise and at the prior mean, and BLEU after one step."""

    def figures(model: nn.Module) -> dict[str, float]:
        generator = dev.runtime.generator(SEED)
        parts = dev.over_batches(
            lambda batch: _agreement(model, frozen, batch, objective, generator, moved=dev.group.size > 1),
            lambda batch: _draw(batch, frozen, generator),
        )
        # Joined over all sentences, so that batches of any size count alike; unmoved sentences (NaN) are left out.
        joined = {name: torch.cat([part[name] for part in parts]).nanmean() for name in parts[0]}
        found = dev.bleu(lambda source: translate_batch(frozen, source, search, 1, objective.step_size, refiner=model))
        return {name: float(value.nan_to_num()) for name, value in joined.items()} | {"dev_bleu": found}

    return Validation(figures, "dev_cosine_noise0")


def _draw(batch: Batch, model, generator: torch.Generator) -> None:
    """Draw the noise of latents that another process draws for this batch: later batches then get theirs."""
    shape = (*model.whole_target(batch.target).shape, model.config.latent_dim)
    torch.randn(shape, generator=generator, device=batch.target.device)


@torch.no_grad()
def _agreement(
    model, frozen, batch: Batch, objective: ScoreMatchingConfig, generator, moved: bool = False
) -> dict[str, Tensor]:
    """Cosines a sentence (B,); squared error and offset length a position (N,), at full noise and at none.

    They are `moved` to the CPU for other processes.
    """
    mask = frozen.whole_target(batch.target) != PAD
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
    return {name: tensor.cpu() for name, tensor in result.items()} if moved else result
