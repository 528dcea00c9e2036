"""Latent search (Lee et al. 2020, section 4.4): several lengths, several samples of z, the best translation wins.

The most probable target lengths times draws from the prior p(z|x) give candidates, which are refined in parallel,
turned into words, stripped of duplicates and ranked: by an autoregressive model's log p(y|x) a symbol, computed for all
of them in one parallel pass, or without one by the model's own mean log p(y_t|z,x).

Where latents are those of source positions and determine the length, samples come first: each is refined, and then
decoded at the most probable lengths under its own p(l|z).
"""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import torch
from torch import Tensor

from workflow_src.decoding.candidates import read_symbols, unpadded
from workflow_src.decoding.latent import best_ids, latent_mask, predicts_lengths
from workflow_src.decoding.ranking import ROWS, best_of, rescored
from workflow_src.decoding.refinement import StepMaker, refine
from workflow_src.decoding.settings import RESCORER
from workflow_src.registry import step_maker
from workflow_src.runtime.device import on_cpu
from workflow_src.searches.latent_search import LatentSearchSettings
from workflow_src.spec import MODEL
from workflow_src.types import PAD, Hypotheses, LatentLengthModel, LatentModel, Networks, Rescorer, wide


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The candidates of a sentence: `lengths` times `samples` of z, drawn from `seed`.

    With `mean_first`, the first sample of every length is the prior mean instead of a draw (our addition).
    `lengthening` lengthens all of them, as in `LengthClasses.chosen`.
    """

    lengths: int = 5
    samples: int = 5
    seed: int = 1
    mean_first: bool = False
    lengthening: float = 0.0

    @property
    def count(self) -> int:
        return self.lengths * self.samples


def prior_noise(source: list[int], count: int, length: int, width: int, seed: int) -> Tensor:
    """Standard normal noise (count, length, width) of one sentence.

    It depends on the seed and the sentence's subwords alone, so that neither the batch nor the position in a file
    changes a translation. The noise of a shorter `length` is the beginning of that of a longer one.
    """
    digest = hashlib.sha256(np.asarray(source, dtype=np.int64).tobytes()).digest()
    key = int.from_bytes(digest[:8], "little")
    drawn = [
        np.random.Generator(np.random.Philox(key=[key, (seed << 20) + sample])).standard_normal((length, width))
        for sample in range(count)
    ]
    return torch.from_numpy(np.stack(drawn))


def run(
    models: Networks, source: Tensor, settings: LatentSearchSettings, scored: bool = True, _trace: bool = False
) -> Hypotheses:
    """Translate source (B, S); scores are those of the ranking."""
    candidates = Candidates(
        settings.lengths, settings.samples, settings.search_seed, settings.mean_first, settings.lengthening
    )
    make_step = step_maker(models, settings) if settings.steps else None
    return latent_search(models[MODEL], source, make_step, settings.steps, candidates, models.get(RESCORER), scored)


@torch.no_grad()
def latent_search(
    model: LatentModel | LatentLengthModel,
    source: Tensor,
    make_step: StepMaker | None,
    steps: int,
    candidates: Candidates,
    rescorer: Rescorer | None = None,
    scored: bool = True,
) -> Hypotheses:
    """Translate source (B, S) by latent search, refining with `steps` steps (0 steps, or None: samples as drawn).

    Scores are the winners': the rescorer's log p(y|x) / (|y| + 1), end symbol counted, or the model's own mean
    log p(y_t|z,x). Of equal scores the first candidate wins. Unless `scored`, a rescorer skips sentences whose
    candidates are all equal.
    """
    steps = steps if make_step else 0
    if predicts_lengths(model):
        tokens, scores = _at_source(model, source, make_step, steps, candidates, rescorer)
    else:
        tokens, scores = _at_target(model, source, make_step, steps, candidates, rescorer)
    sentences = source.size(0)
    per_sentence = len(tokens) // sentences
    groups = [range(i * per_sentence, (i + 1) * per_sentence) for i in range(sentences)]
    # Equal candidates are one, at the position of the first, with the score of the best z.
    distinct = [_distinct([(tuple(tokens[i]), scores[i]) for i in group]) for group in groups]
    if rescorer is not None:
        distinct = rescored(rescorer, source, distinct, scored=scored)
    return dataclasses.replace(best_of(distinct), steps=[steps] * sentences)


def _longest(model: LatentModel | LatentLengthModel, rescorer: Rescorer) -> int:
    """The largest target length whose outputs a rescorer can read."""
    # It also reads an end symbol, and our output may have a word in place of its end symbol.
    return rescorer.config.max_positions - 1 - model.extra_positions


def _at_target(
    model: LatentModel,
    source: Tensor,
    make_step: StepMaker | None,
    steps: int,
    candidates: Candidates,
    rescorer: Rescorer | None,
) -> tuple[list[list[int]], list[float]]:
    """Candidates and their own scores in the order sentence, length, sample: each length has latents of its own."""
    memory = model.encode(source)
    lengths = model.length.likely(memory, candidates.lengths, candidates.lengthening)
    if rescorer is not None:
        lengths = lengths.clamp(max=_longest(model, rescorer))
    sentences, per_length = source.size(0), candidates.samples
    per_sentence = lengths.size(1) * per_length
    rows = torch.arange(sentences, device=source.device).repeat_interleave(per_sentence)
    row_lengths = lengths.repeat_interleave(per_length, 1).reshape(-1)
    noise = _noise(model, source, lengths, candidates)
    tokens: list[list[int]] = []
    scores: list[float] = []
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        mask = latent_mask(model, row_lengths[part])
        row_memory = memory.select(rows[part])
        mean, deviation = model.prior(row_memory, mask)
        z = mean + deviation * noise[part, : mask.size(1)].to(mean)
        if make_step and steps:
            z = refine(z, make_step(row_memory, mask), steps)
        rows_of_words, output_scores = best_ids(model, row_memory, z, mask, scored=rescorer is None)
        tokens += rows_of_words
        scores += output_scores
    return tokens, scores


def _at_source(
    model: LatentLengthModel,
    source: Tensor,
    make_step: StepMaker | None,
    steps: int,
    candidates: Candidates,
    rescorer: Rescorer | None,
) -> tuple[list[list[int]], list[float]]:
    """Candidates and their own scores in the order sentence, sample, length: each sample has lengths of its own,
    predicted after its refinement."""
    memory, samples = model.encode(source), candidates.samples
    noise = _source_noise(model, source, candidates)
    rows = torch.arange(source.size(0), device=source.device).repeat_interleave(samples)
    tokens: list[list[int]] = []
    scores: list[float] = []
    for indices in torch.arange(len(rows), device=source.device).split(max(1, ROWS // candidates.lengths)):
        row_memory = memory.select(rows[indices])
        mean, deviation = model.prior(row_memory)
        z = mean + deviation * noise[indices].to(mean)
        if make_step and steps:
            z = refine(z, make_step(row_memory, row_memory.mask), steps)
        lengths = model.likely_lengths(row_memory, z, candidates.lengths, candidates.lengthening)
        if rescorer is not None:
            lengths = lengths.clamp(max=_longest(model, rescorer))
        sample_rows = torch.arange(len(z), device=z.device).repeat_interleave(lengths.size(1))
        logits, mask = model.decode(row_memory.select(sample_rows), z[sample_rows], lengths.flatten())
        outputs, output_scores = read_symbols(model, wide(logits), mask, rescorer is None)
        outputs, output_scores = on_cpu(outputs, output_scores)
        tokens += unpadded(outputs)
        scores += output_scores.tolist()
    return tokens, scores


def _noise(model: LatentModel, source: Tensor, lengths: Tensor, candidates: Candidates) -> Tensor:
    """Noise (B * lengths * samples, T, Z) for candidates in the order sentence, length, sample."""
    source, positions = on_cpu(source, lengths + model.extra_positions)
    longest, width = int(positions.max()), model.config.latent_dim
    per_sentence = lengths.size(1) * candidates.samples
    noise = torch.zeros(source.size(0), per_sentence, longest, width, dtype=torch.float64)
    for i, (row, length) in enumerate(zip(source.tolist(), positions.amax(1).tolist(), strict=True)):
        ids = [token for token in row if token != PAD]
        noise[i, :, :length] = prior_noise(ids, per_sentence, length, width, candidates.seed)
    if candidates.mean_first:
        noise[:, :: candidates.samples] = 0
    return noise.flatten(0, 1).to(lengths.device, non_blocking=True)


def _source_noise(model: LatentLengthModel, source: Tensor, candidates: Candidates) -> Tensor:
    """Noise (B * samples, S, Z) for samples of latents of source positions."""
    width = model.config.latent_dim
    noise = torch.zeros(source.size(0), candidates.samples, source.size(1), width, dtype=torch.float64)
    for i, row in enumerate(source.tolist()):
        ids = [token for token in row if token != PAD]
        noise[i, :, : len(ids)] = prior_noise(ids, candidates.samples, len(ids), width, candidates.seed)
    if candidates.mean_first:
        noise[:, 0] = 0
    return noise.flatten(0, 1).to(source.device, non_blocking=True)


def _distinct(candidates: list[tuple[tuple[int, ...], float]]) -> dict[tuple[int, ...], float]:
    best: dict[tuple[int, ...], float] = {}
    for output, score in candidates:
        best[output] = max(score, best.get(output, float("-inf")))
    return best
