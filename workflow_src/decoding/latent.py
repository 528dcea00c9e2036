"""Latents of source or of target positions: their masks, prior and posterior, and the outputs that they stand for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workflow_src.decoding.candidates import read_symbols
from workflow_src.runtime.device import on_cpu
from workflow_src.types import (
    EOS,
    PAD,
    Batch,
    EncoderOutput,
    LatentLengthModel,
    LatentModel,
    SourceLatentModel,
    wide,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

# Below every logit.
NEVER = -1e9


@dataclasses.dataclass(frozen=True)
class LengthChoice:
    """The choice of target lengths from their distribution: a quantile or the most probable, plus a lengthening."""

    quantile: float | None = None
    lengthening: float = 0.0


MOST_PROBABLE = LengthChoice()


def decode_slots(
    model: SourceLatentModel, memory: EncoderOutput, z: Tensor, choice: LengthChoice = MOST_PROBABLE
) -> tuple[Tensor, Tensor]:
    """Logits (B, N, V) and mask (B, N) at the slots of latents (B, S, Z); a `choice` needs a model with p(l|z)."""
    if choice == MOST_PROBABLE:
        return model.decode(memory, z)
    assert predicts_lengths(model), "families without p(l|z) refuse settings of lengths"
    return model.decode(memory, z, model.predict_lengths(memory, z, choice.quantile, choice.lengthening))


def on_source(model: LatentModel | SourceLatentModel) -> TypeIs[SourceLatentModel]:
    """Whether a model's latents are those of source positions."""
    return getattr(model, "source_latents", False)


def predicts_lengths(model: LatentModel | SourceLatentModel) -> TypeIs[LatentLengthModel]:
    """Whether a model predicts the length of the output from latents."""
    return getattr(model, "latent_lengths", False)


def prior_of(model: LatentModel | SourceLatentModel, memory: EncoderOutput, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of p(z|x), (B, P, Z) each, at the positions of mask (B, P): of the source or of the target."""
    return model.prior(memory) if on_source(model) else model.prior(memory, mask)


def posterior_of(
    model: LatentModel | SourceLatentModel, memory: EncoderOutput, tokens: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and deviation of q(z|x,y), (B, P, Z) each, at the positions of mask (B, P).

    `tokens` (B, N) are the y, padded, as `outputs` returns them; with latents of target positions, N = P.
    """
    return model.posterior(memory, tokens) if on_source(model) else model.posterior(memory, tokens, mask)


def batch_mask(model: LatentModel | SourceLatentModel, batch: Batch) -> Tensor:
    """Mask of the latents of a batch in training: (B, S) or (B, T)."""
    return batch.source_mask if on_source(model) else model.whole_target(batch.target) != PAD


def best_tokens(model: LatentModel, memory: EncoderOutput, z: Tensor, target_mask: Tensor) -> Tensor:
    """argmax p(y|z,x) at every position, (B, T); values at padding are arbitrary.

    Of the special symbols, only the end symbol may be output, and only by models whose targets have one.
    """
    return suppressed(model, model.decode(memory, z, target_mask)).argmax(-1)


def suppressed(model: LatentModel, logits: Tensor) -> Tensor:
    """Logits (B, T, V), overwritten, in which symbols that may not be output are never the largest."""
    first = first_symbol(model)
    if torch.compiler.is_exporting():
        # A sum with a constant: writing to a slice of a tensor is slow in exported graphs.
        return logits + torch.where(torch.arange(logits.size(-1), device=logits.device) < first, NEVER, 0.0)
    logits[..., :first] = float("-inf")
    return logits


def first_symbol(model: LatentModel) -> int:
    """The first id that may stand in an output."""
    return EOS if model.extra_positions else EOS + 1


def latent_mask(model: LatentModel, lengths: Tensor) -> Tensor:
    """Mask (B, T) over the latents of sentences of the given lengths (B,) in words."""
    return length_mask(lengths + model.extra_positions)


def length_mask(lengths: Tensor) -> Tensor:
    """Mask (B, T) of sequences of the given lengths (B,)."""
    return torch.arange(int(lengths.max()), device=lengths.device)[None, :] < lengths[:, None]


def best_ids(
    model: LatentModel | SourceLatentModel,
    memory: EncoderOutput,
    z: Tensor,
    mask: Tensor,
    scored: bool = True,
    choice: LengthChoice = MOST_PROBABLE,
) -> tuple[list[list[int]], list[float]]:
    """Subword ids of the translations argmax p(y|z,x), and their scores.

    A score is the mean log p(y_t|z,x) over all positions if `scored`, else 0.
    """
    tokens, scores = on_cpu(*outputs(model, memory, z, mask, scored, choice))
    return listed(tokens), scores.tolist()


def outputs(
    model: LatentModel | SourceLatentModel,
    memory: EncoderOutput,
    z: Tensor,
    mask: Tensor,
    scored: bool = True,
    choice: LengthChoice = MOST_PROBABLE,
) -> tuple[Tensor, Tensor]:
    """`best_ids` as tensors: tokens (B, N), padded, as a posterior reads them, and scores (B,).

    Where outputs are read off slots, scores are means over slots.
    """
    if on_source(model):
        logits, slots = decode_slots(model, memory, z, choice)
        return read_symbols(model, wide(logits), slots, scored)
    logits = model.decode(memory, z, mask)
    # Symbols that may not be output keep their probability in the normaliser.
    normaliser = wide(logits).logsumexp(-1) if scored else None
    best, tokens = suppressed(model, logits).max(-1)
    scores = torch.zeros(len(tokens), device=tokens.device)
    if normaliser is not None:
        scores = ((wide(best) - normaliser) * mask).sum(1) / mask.sum(1)
    return tokens.masked_fill(~mask, PAD), scores


def listed(tokens: Tensor) -> list[list[int]]:
    """Tokens (B, N) as lists of subword ids, without padding and end symbols."""
    return [[i for i in row if i not in (PAD, EOS)] for row in tokens.tolist()]


def word_rows(tokens: Tensor, mask: Tensor) -> list[list[int]]:
    """Outputs (B, T) as lists of subword ids, without padding and end symbols."""
    return without_ends(tokens.tolist(), mask.sum(1).tolist())


def without_ends(rows: list[list[int]], positions: list[int]) -> list[list[int]]:
    """The first `positions` ids of each row, without end symbols."""
    return [[i for i in row[:count] if i != EOS] for row, count in zip(rows, positions, strict=True)]
