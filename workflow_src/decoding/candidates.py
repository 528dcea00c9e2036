"""Several candidates of a sentence, one row each: drawing latents, reading outputs, and choosing the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.decoding.passes import Pass
from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.runtime.device import on_cpu
from workflow_src.types import PAD, EncoderOutput, Hypotheses, OnePassModel, Rescorer, SourceLatentModel, SymbolModel


def noise_table(draws: int, positions: int, width: int, seed: int) -> Tensor:
    """Standard normal noise (draws, positions, width) float64, the same for every sentence.

    More draws and more positions continue fewer. Neither the batch nor the place in a file changes a translation, and
    engines can hold the table in a graph.
    """
    tables = [
        np.random.Generator(np.random.Philox(key=[seed, draw])).standard_normal((positions, width))
        for draw in range(draws)
    ]
    return torch.from_numpy(np.stack(tables))


def draw_latents(
    model: SourceLatentModel, memory: EncoderOutput, noise: Tensor, temperature: float
) -> tuple[EncoderOutput, Tensor]:
    """Source states (B * K, S, D) and latents (B * K, S, Z): the prior's mean + temperature x deviation x noise.

    `noise` (K, positions, Z) is a table of `noise_table`; the K draws of a sentence are consecutive rows.
    """
    mean, deviation = model.prior(memory)
    table = noise[:, : mean.size(1)].to(mean)
    z = mean[:, None] + temperature * deviation[:, None] * table
    rows = torch.arange(mean.size(0), device=mean.device).repeat_interleave(len(noise))
    return memory.select(rows), z.flatten(0, 1)


class LengthSettings(Protocol):
    """Settings of searches that try one or several target lengths."""

    @property
    def lengths(self) -> int: ...

    @property
    def length_quantile(self) -> float | None: ...

    @property
    def lengthening(self) -> float: ...


def likely_lengths(
    model: OnePassModel, memory: EncoderOutput, settings: LengthSettings
) -> tuple[EncoderOutput, Tensor]:
    """Source states (B * K, S, D) and target lengths (B * K,): the `lengths` = K most probable of each sentence.

    Where K is 1, a `length_quantile` of the settings applies. The lengths of a sentence are consecutive.
    """
    if settings.lengths == 1:
        return memory, model.length.predict(memory, settings.length_quantile, settings.lengthening)
    lengths = model.length.likely(memory, settings.lengths, settings.lengthening)
    rows = torch.arange(lengths.size(0), device=lengths.device).repeat_interleave(lengths.size(1))
    return memory.select(rows), lengths.flatten()


def read_symbols(model: SymbolModel, logits: Tensor, mask: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
    """Outputs (B, N), padded, of the best symbols of logits (B, N, V), and, if `scored`, their mean log-probability
    (B,), else 0."""
    best, symbols = logits.max(-1)
    rows = model.output(symbols, mask)
    if not scored:
        return rows, torch.zeros_like(best[:, 0])
    gains = (best - logits.logsumexp(-1)) * mask
    return rows, gains.sum(1) / mask.sum(1)


@torch.no_grad()
def best_outputs(model: OnePassModel, source: Tensor) -> Hypotheses:
    """Translations of source (B, S): the best symbol of every position at the most probable length, without scores."""
    memory = model.encode(source)
    hidden, mask = model.hidden(memory, model.length.predict(memory))
    rows, _ = read_symbols(model, model.logits(hidden), mask, scored=False)
    return Hypotheses(unpadded(rows), [0.0] * len(rows))


def unpadded(outputs: Tensor) -> list[list[int]]:
    """Outputs (B, N) without padding."""
    return [[i for i in row if i != PAD] for row in outputs.tolist()]


def kept_symbols(symbols: Tensor, keep: Tensor) -> Tensor:
    """Symbols (B, N) selected by the mask `keep` (B, N), left-aligned, padded, (B, N)."""
    # Dropped symbols are written to an extra column.
    place = torch.where(keep, keep.cumsum(1) - 1, symbols.size(1))
    padded = torch.full((symbols.size(0), symbols.size(1) + 1), PAD, dtype=symbols.dtype, device=symbols.device)
    return padded.scatter(1, place, symbols)[:, :-1]


def traces_of_best(best: Sequence[list[int]], passes: Sequence[Sequence[list[int]]]) -> list[list[list[int]]]:
    """Outputs of each sentence's best candidate after every pass.

    `passes` has the outputs of all candidates after every pass, those of a sentence in consecutive rows; `best` has the
    last output of each best candidate.
    """
    per_sentence = len(passes[-1]) // len(best)
    rows = [
        next(row for row in range(place * per_sentence, (place + 1) * per_sentence) if passes[-1][row] == tokens)
        for place, tokens in enumerate(best)
    ]
    return [[texts[row] for row in rows] for texts in passes]


def winners(
    outputs: Tensor,
    scores: Tensor,
    source: Tensor,
    rescorer: Rescorer | None,
    scored: bool = True,
    length_penalty: float = 1.0,
) -> Hypotheses:
    """The best of the K candidates of every sentence of source (B, S), from outputs (B * K, N), padded, and scores.

    Scores are mean log-probabilities of positions; multiplied by |y| ** (1 - length_penalty), they are
    log p / |y| ** length_penalty. Of equal outputs the best score counts. A rescorer ranks outputs by its own
    log p(y|x) / (|y| + 1); unless `scored`, it skips sentences whose candidates are all equal.
    """
    outputs, scores = on_cpu(outputs, scores)
    rows = [tuple(row) for row in unpadded(outputs)]
    candidates: list[dict[tuple[int, ...], float]] = [{} for _ in range(len(source))]
    per_sentence = len(rows) // len(source)
    for place, (row, score) in enumerate(zip(rows, scores.tolist(), strict=True)):
        sentence_scores = candidates[place // per_sentence]
        score *= max(1, len(row)) ** (1.0 - length_penalty)
        sentence_scores[row] = max(score, sentence_scores.get(row, float("-inf")))
    if rescorer is not None:
        candidates = rescored(rescorer, source, candidates, scored=scored)
    return best_of(candidates)


def join_batches(batches: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Outputs (C, N), padded, and scores (C,) of several batches as one batch."""
    width = max(outputs.size(1) for outputs, _ in batches)
    outputs = torch.cat([nn.functional.pad(outputs, (0, width - outputs.size(1))) for outputs, _ in batches])
    return outputs, torch.cat([scores for _, scores in batches])


def winners_pass(module: nn.Module, rescorer: Rescorer | None, scored: bool, length_penalty: float = 1.0) -> Pass:
    """The pass of a module that computes candidates (B * K, N) and scores (B * K,), which `winners` ranks."""

    @torch.no_grad()
    def read(source: np.ndarray, arrays: list[np.ndarray]) -> Hypotheses:
        outputs, scores = map(torch.from_numpy, arrays)
        return winners(outputs, scores, torch.from_numpy(source), rescorer, scored, length_penalty)

    return Pass(module, outputs=("outputs", "scores"), read=read)
