"""Several candidates of a sentence, one row each: drawing latents, reading outputs, and choosing the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.nn.layers import Memory
from workflow_src.nn.length import LengthChoice
from workflow_src.nn.models import LatentModel, OnePassModel, Scorer
from workflow_src.types import EOS, PAD, Hypotheses


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


def draw_latents(model: LatentModel, memory: Memory, noise: Tensor, temperature: float) -> tuple[Memory, Tensor]:
    """Source states (B * K, S, D) and latents (B * K, S, Z): the prior's mean + temperature x deviation x noise.

    `noise` (K, positions, Z) is a table of `noise_table`; the K draws of a sentence are consecutive rows.
    """
    mean, deviation = model.prior(memory, memory.mask)
    table = noise[:, : mean.size(1)].to(mean)
    z = mean[:, None] + temperature * deviation[:, None] * table
    rows = torch.arange(mean.size(0), device=mean.device).repeat_interleave(len(noise))
    return memory.select(rows), z.flatten(0, 1)


def likely_lengths(model: OnePassModel, memory: Memory, count: int, choice: LengthChoice) -> tuple[Memory, Tensor]:
    """Source states (B * K, S, D) and target lengths (B * K,): the `count` = K most probable of each sentence.

    Where K is 1, the length is that of `choice`. The lengths of a sentence are consecutive.
    """
    if count == 1:
        return memory, model.length.predict(memory, choice)
    lengths = model.length.likely(memory, count, choice.lengthening)
    rows = torch.arange(lengths.size(0), device=lengths.device).repeat_interleave(lengths.size(1))
    return memory.select(rows), lengths.flatten()


def unpadded(outputs: Tensor) -> list[list[int]]:
    """Outputs (B, N) as lists of subword ids, without padding and end symbols."""
    return [[i for i in row if i not in (PAD, EOS)] for row in outputs.tolist()]


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
    rescorer: Scorer | None,
    scored: bool = True,
    length_penalty: float = 1.0,
) -> Hypotheses:
    """The best of the K candidates of every sentence of source (B, S), from outputs (B * K, N), padded, and scores.

    Scores are mean log-probabilities of positions. They are multiplied by |y| ** (1 - length_penalty): where no symbol
    was dropped, that makes log p / |y| ** length_penalty of them. Of equal outputs the best score counts. A rescorer
    ranks outputs by its own log p(y|x) / (|y| + 1); unless `scored`, it skips sentences whose candidates are all equal.
    """
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


def joined(batches: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """Outputs of several batches as those of one: (C, …), padded to the largest size of every axis but the first."""
    if len(batches) == 1:
        return tuple(batches[0])
    return tuple(_concatenated(tensors) for tensors in zip(*batches, strict=True))


def _concatenated(tensors: Sequence[Tensor]) -> Tensor:
    largest = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    return torch.cat([_padded(tensor, largest) for tensor in tensors])


def _padded(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    """`tensor` (C, …), whose axes after the first are padded to `sizes`."""
    missing = [size - own for size, own in zip(sizes, tensor.shape[1:], strict=True)]
    # `pad` wants a pair of numbers for each axis, the last axis first.
    amounts = [amount for number in reversed(missing) for amount in (0, number)]
    return nn.functional.pad(tensor, amounts, value=PAD)
