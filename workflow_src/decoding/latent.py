"""Inference in the latent-variable model: z <- step(z), L times, and only at the end y = argmax p(y|z,x).

Searches differ in `step` alone (Lee et al. 2020, algorithm 1; Shu et al. 2020 for delta).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.candidates import read_symbols
from workflow_src.spec import REFINER, SearchSettings
from workflow_src.types import (
    EOS,
    PAD,
    Batch,
    Hypotheses,
    LatentModel,
    RefinementStep,
    Refiner,
    SourceLatentModel,
    wide,
)

# Below every logit.
NEVER = -1e9
# (memory, mask (B, T)) -> one step of latents (B, T, Z).
StepMaker = Callable[[Any, Tensor], RefinementStep]


def _stay(memory, target_mask: Tensor) -> RefinementStep:
    return lambda z: z


def delta_step(model: LatentModel, memory, target_mask: Tensor) -> RefinementStep:
    """One step of delta inference: z -> mean of q(z | argmax p(y|z,x), x).

    Where outputs are read off slots, what they stand for is the y.
    """

    def step(z: Tensor) -> Tensor:
        if on_source(model):
            logits, slots = model.decode(memory, z)
            return model.posterior(memory, model.output(logits.argmax(-1), slots))[0]
        tokens = best_tokens(model, memory, z, target_mask)
        return model.posterior(memory, tokens, target_mask)[0]

    return step


def gradient_step(refiner: Refiner, memory, target_mask: Tensor, step_size: float) -> RefinementStep:
    """One step along a learned direction: z -> z + step_size * s(z, x)."""

    def step(z: Tensor) -> Tensor:
        return z + step_size * refiner.direction(memory, z, target_mask)

    return step


def direction_steps(models: Mapping[str, Any], settings: SearchSettings) -> StepMaker:
    """What makes the steps of a search along its network's direction: a score's output, or an energy's slope."""
    return lambda memory, mask: gradient_step(models[REFINER], memory, mask, settings.step_size)


def refine(z: Tensor, step: RefinementStep, steps: int) -> Tensor:
    """`steps` applications of `step` to latents (B, T, Z)."""
    for _ in range(steps):
        z = step(z)
    return z


def on_source(model: LatentModel | SourceLatentModel) -> bool:
    """Whether a model's latents are those of source positions."""
    return getattr(model, "source_latents", False)


def batch_mask(model: LatentModel | SourceLatentModel, batch: Batch) -> Tensor:
    """Mask of the latents of a batch in training: (B, S) or (B, T)."""
    return batch.source_mask if on_source(model) else model.whole_target(batch.target) != PAD


def best_tokens(model: LatentModel, memory, z: Tensor, target_mask: Tensor) -> Tensor:
    """argmax p(y|z,x) at every position, (B, T); what stands at padding has no meaning.

    Of the special symbols, only the end symbol may be put out, and only by models whose targets have one.
    """
    return suppressed(model, model.decode(memory, z, target_mask)).argmax(-1)


def suppressed(model: LatentModel, logits: Tensor) -> Tensor:
    """Logits (B, T, V), overwritten, in which symbols that may not be put out never are the largest."""
    first = first_symbol(model)
    if torch.compiler.is_exporting():
        # A sum with a constant; writing to a part of a tensor is slow in exported graphs.
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


@torch.no_grad()
def translate_batch(
    model: LatentModel,
    source: Tensor,
    make_step: StepMaker | None = None,
    steps: int = 0,
    lengths: Tensor | None = None,
    trace: bool = False,
    scored: bool = True,
    stop_threshold: float | None = None,
    length_quantile: float | None = None,
    lengthening: float = 0.0,
) -> Hypotheses:
    """Translate source (B, S) from the prior mean with `steps` steps that `make_step` makes (None: without steps).

    `lengths` (B,) replace the predicted ones, which are the most probable or a `length_quantile`, and `lengthening`
    times the source's subwords more. With `trace`, the translation after every step is kept. Scores are the model's own
    mean log p(y_t|z,x); without `scored` they are 0, which spares a normalisation. Sentences do not influence each
    other. With `stop_threshold`, a sentence stops after a step shorter than it (see `refine_until`); `steps` then is
    the most it may take, and a trace repeats its last translation.
    """
    memory = model.encode(source)
    if on_source(model):
        mask = memory.mask
        z, _ = model.prior(memory)
    else:
        if lengths is None:
            lengths = model.predict_lengths(memory, length_quantile, lengthening)
        mask = latent_mask(model, lengths)
        z, _ = model.prior(memory, mask)
    steps, make_step = (steps, make_step) if make_step else (0, _stay)
    used = torch.full((len(source),), steps, dtype=torch.int64, device=source.device)
    traces = [] if trace else None
    keep = None
    if traces is not None:
        keep = lambda now: traces.append(words(model, memory, now, mask, scored=False)[0])  # noqa: E731
    if stop_threshold is None:
        step = make_step(memory, mask)
        for _ in range(steps):
            if keep:
                keep(z)
            z = step(z)
    else:
        # Latents of source positions stand beside source states, which stay as wide as the batch.
        trim = not on_source(model)
        z, used = refine_until(z, make_step, memory, mask, steps, stop_threshold, keep, trim)
    rows, scores = words(model, memory, z, mask, scored)
    if traces is not None:
        # Sentences that stopped early keep what they had.
        traces += [rows] * (steps + 1 - len(traces))
    return Hypotheses(rows, scores, used.tolist(), traces)


def refined(
    model: LatentModel, source: Tensor, make_step: StepMaker, settings: SearchSettings, scored: bool, trace: bool
) -> Hypotheses:
    """`translate_batch` as the settings of a refining search say: its steps, lengths and when it stops."""
    return translate_batch(
        model, source, make_step, settings.steps, trace=trace, scored=scored, stop_threshold=settings.stop_threshold,
        length_quantile=settings.length_quantile, lengthening=settings.lengthening,
    )  # fmt: skip


def words(
    model: LatentModel, memory, z: Tensor, mask: Tensor, scored: bool = True
) -> tuple[list[list[int]], list[float]]:
    """The translations argmax p(y|z,x) and, if `scored`, their mean log p(y_t|z,x) over all positions (else 0)."""
    if on_source(model):
        return slot_words(model, memory, z, scored)
    logits = model.decode(memory, z, mask)
    # What may not be put out keeps its probability in the normaliser.
    normaliser = wide(logits).logsumexp(-1) if scored else None
    best, tokens = suppressed(model, logits).max(-1)
    scores = [0.0] * len(tokens)
    if normaliser is not None:
        scores = (((wide(best) - normaliser) * mask).sum(1) / mask.sum(1)).tolist()
    return word_rows(tokens, mask), scores


def slot_words(model: SourceLatentModel, memory, z: Tensor, scored: bool) -> tuple[list[list[int]], list[float]]:
    """`words` of outputs that are read off slots; scores are means over slots."""
    logits, slots = model.decode(memory, z)
    rows, scores = read_symbols(model, wide(logits), slots, scored)
    return [[i for i in row if i != PAD] for row in rows.tolist()], scores.tolist()


def refine_until(
    z: Tensor,
    make_step: StepMaker,
    memory,
    mask: Tensor,
    steps: int,
    threshold: float,
    before: Callable[[Tensor], None] | None = None,
    trim: bool = True,
) -> tuple[Tensor, Tensor]:
    """Refine latents z (B, T, Z) until every sentence stands still; (z, steps taken (B,) int64).

    A sentence stops after a step whose mean length over its positions, (1/T) sum_t |z'_t - z_t|, is below `threshold`,
    or after `steps` of them. Sentences that have stopped leave the batch. `before(z)` is called before every step that
    some sentence takes. `trim`: positions that no sentence has any more leave the batch too.
    """
    z = z.clone()
    used = torch.zeros(z.size(0), dtype=torch.int64, device=z.device)
    active = torch.arange(z.size(0), device=z.device)
    step, part, part_mask = make_step(memory, mask), z, mask
    for _ in range(steps):
        if before:
            before(z)
        moved = step(part)
        distance = (wide(moved - part).norm(dim=-1) * part_mask).sum(1) / part_mask.sum(1)
        z[active, : moved.size(1)] = moved.to(z.dtype)
        used[active] += 1
        going = distance >= threshold
        if not bool(going.any()):
            break
        if bool(going.all()):
            part = moved
            continue
        active = active[going]
        width = int(mask[active].sum(1).max()) if trim else mask.size(1)
        part, part_mask = moved[going, :width], mask[active, :width]
        step = make_step(memory.select(active), part_mask)
    return z, used


def word_rows(tokens: Tensor, mask: Tensor) -> list[list[int]]:
    """Outputs (B, T) as lists without padding and end symbols: a position that puts out an end symbol stays empty."""
    return without_ends(tokens.tolist(), mask.sum(1).tolist())


def without_ends(rows: list[list[int]], positions: list[int]) -> list[list[int]]:
    """The first so many ids of each row but for end symbols."""
    return [[i for i in row[:count] if i != EOS] for row, count in zip(rows, positions, strict=True)]


def draw_noise(batch: Batch, model, generator: torch.Generator) -> None:
    """Draw the noise of latents that another process draws for this batch: later batches then get theirs."""
    shape = (*batch_mask(model, batch).shape, model.config.latent_dim)
    torch.randn(shape, generator=generator, device=batch.target.device)
