"""Inference in the latent-variable model: z <- step(z), L times, and only at the end y = argmax p(y|z,x).

Searches differ in `step` alone (Lee et al. 2020, algorithm 1; Shu et al. 2020 for delta).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from workflow_src.decoding.candidates import read_symbols
from workflow_src.decoding.settings import RefinementSettings
from workflow_src.runtime.device import on_cpu
from workflow_src.spec import REFINER
from workflow_src.types import (
    EOS,
    PAD,
    Batch,
    Hypotheses,
    LatentLengthModel,
    LatentModel,
    RefinementStep,
    Refiner,
    SourceLatentModel,
    wide,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

# Below every logit.
NEVER = -1e9
# (memory, mask (B, T)) -> one step of latents (B, T, Z).
StepMaker = Callable[[Any, Tensor], RefinementStep]


class StepSettings(Protocol):
    """Settings of searches that move latents step by step."""

    @property
    def steps(self) -> int: ...

    @property
    def stop_threshold(self) -> float | None: ...

    @property
    def length_quantile(self) -> float | None: ...

    @property
    def lengthening(self) -> float: ...


def _stay(*_: object) -> RefinementStep:
    return lambda z: z


@dataclasses.dataclass(frozen=True)
class LengthChoice:
    """How target lengths are taken from their distribution: a quantile or the most probable, and how much longer."""

    quantile: float | None = None
    lengthening: float = 0.0


MOST_PROBABLE = LengthChoice()


@dataclasses.dataclass(frozen=True)
class DeltaStep:
    """One step of delta inference: z -> mean of q(z | argmax p(y|z,x), x).

    Where latents are those of source positions, the y is what the output stands for. Where they also say how long it
    is, each step has a length of its own, taken as `choice` says.
    """

    model: LatentModel | SourceLatentModel
    memory: Any
    mask: Tensor
    choice: LengthChoice = MOST_PROBABLE

    def __call__(self, z: Tensor) -> Tensor:
        if on_source(self.model):
            logits, slots = decoded(self.model, self.memory, z, self.choice)
            return self.after(self.model.output(logits.argmax(-1), slots))
        return self.after(best_tokens(self.model, self.memory, z, self.mask))

    def after(self, tokens: Tensor) -> Tensor:
        """The posterior mean of an output (B, T)."""
        return posterior_of(self.model, self.memory, tokens, self.mask)[0]


def delta_step(
    model: LatentModel | SourceLatentModel, memory, target_mask: Tensor, choice: LengthChoice = MOST_PROBABLE
) -> DeltaStep:
    """`DeltaStep`, as makers of steps are called."""
    return DeltaStep(model, memory, target_mask, choice)


def decoded(model: SourceLatentModel, memory, z: Tensor, choice: LengthChoice = MOST_PROBABLE) -> tuple[Tensor, Tensor]:
    """Logits (B, N, V) and mask (B, N) at the slots of latents (B, S, Z); a `choice` needs p(l|z)."""
    if choice == MOST_PROBABLE:
        return model.decode(memory, z)
    assert says_lengths(model), "families without p(l|z) refuse settings of lengths"
    return model.decode(memory, z, model.predict_lengths(memory, z, choice.quantile, choice.lengthening))


def gradient_step(refiner: Refiner, memory, target_mask: Tensor, step_size: float) -> RefinementStep:
    """One step along a learned direction: z -> z + step_size * s(z, x)."""

    def step(z: Tensor) -> Tensor:
        return z + step_size * refiner.direction(memory, z, target_mask)

    return step


def direction_steps(models: Mapping[str, Any], settings: RefinementSettings) -> StepMaker:
    """What makes the steps of a search along its network's direction: a score's output, or an energy's slope."""
    return lambda memory, mask: gradient_step(models[REFINER], memory, mask, settings.step_size)


def refine(z: Tensor, step: RefinementStep, steps: int) -> Tensor:
    """`steps` applications of `step` to latents (B, T, Z)."""
    for _ in range(steps):
        z = step(z)
    return z


def on_source(model: LatentModel | SourceLatentModel) -> TypeIs[SourceLatentModel]:
    """Whether a model's latents are those of source positions."""
    return getattr(model, "source_latents", False)


def says_lengths(model: LatentModel | SourceLatentModel) -> TypeIs[LatentLengthModel]:
    """Whether a model's latents say how long the output is."""
    return getattr(model, "latent_lengths", False)


def prior_of(model: LatentModel | SourceLatentModel, memory, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of p(z|x), (B, P, Z) each, at the positions of mask (B, P): of the source or of the target."""
    return model.prior(memory) if on_source(model) else model.prior(memory, mask)


def posterior_of(model: LatentModel | SourceLatentModel, memory, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of q(z|x,y), (B, P, Z) each, at the positions of mask (B, P).

    The y are tokens (B, N), padded, as `outputs` returns them: where latents are those of the target, its P positions.
    """
    return model.posterior(memory, tokens) if on_source(model) else model.posterior(memory, tokens, mask)


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
    model: LatentModel | SourceLatentModel,
    source: Tensor,
    make_step: StepMaker | None = None,
    steps: int = 0,
    lengths: Tensor | None = None,
    trace: bool = False,
    scored: bool = True,
    stop_threshold: float | None = None,
    length_quantile: float | None = None,
    lengthening: float = 0.0,
    stop_unchanged: bool = False,
) -> Hypotheses:
    """Translate source (B, S) from the prior mean with `steps` steps that `make_step` makes (None: without steps).

    `lengths` (B,) replace the predicted ones, which are the most probable or a `length_quantile`, and `lengthening`
    times the source's subwords more. With `trace`, the translation after every step is kept. Scores are the model's own
    mean log p(y_t|z,x); without `scored` they are 0, which spares a normalisation. Sentences do not influence each
    other. With `stop_threshold`, a sentence stops after a step shorter than it (see `refine_until`), with
    `stop_unchanged` after one that leaves its output as it was (`refine_until_unchanged`); `steps` then is the most it
    may take, and a trace repeats its last translation.
    """
    memory = model.encode(source)
    choice = LengthChoice(length_quantile, lengthening)
    if on_source(model):
        mask = memory.mask
        z, _ = model.prior(memory)
    else:
        if lengths is None:
            lengths = model.predict_lengths(memory, length_quantile, lengthening)
        mask = latent_mask(model, lengths)
        z, _ = model.prior(memory, mask)
    steps, make_step = (steps, make_step) if make_step else (0, _stay)
    if stop_unchanged and steps:
        return refine_until_unchanged(model, z, make_step, memory, mask, steps, scored, trace, choice)
    steps_taken = [steps] * len(source)
    traces: list[list[list[int]]] = []

    def keep(now: Tensor) -> None:
        if trace:
            traces.append(words(model, memory, now, mask, False, choice)[0])

    if stop_threshold is None:
        step = make_step(memory, mask)
        for _ in range(steps):
            keep(z)
            z = step(z)
    else:
        # Latents of source positions stand beside source states, which stay as wide as the batch.
        trim = not on_source(model)
        z, step_counts = refine_until(z, make_step, memory, mask, steps, stop_threshold, keep, trim)
        steps_taken = step_counts.tolist()
    rows, scores = words(model, memory, z, mask, scored, choice)
    # Sentences that stopped early keep what they had.
    traces += [rows] * (steps + 1 - len(traces))
    return Hypotheses(rows, scores, steps_taken, traces if trace else None)


def refined(
    model: LatentModel | SourceLatentModel,
    source: Tensor,
    make_step: StepMaker,
    settings: StepSettings,
    scored: bool,
    trace: bool,
) -> Hypotheses:
    """`translate_batch` as the settings of a refining search say: its steps, lengths and when it stops."""
    return translate_batch(
        model,
        source,
        make_step,
        settings.steps,
        trace=trace,
        scored=scored,
        stop_threshold=settings.stop_threshold,
        length_quantile=settings.length_quantile,
        lengthening=settings.lengthening,
        stop_unchanged=getattr(settings, "stop_unchanged", False),
    )


def words(
    model: LatentModel | SourceLatentModel,
    memory,
    z: Tensor,
    mask: Tensor,
    scored: bool = True,
    choice: LengthChoice = MOST_PROBABLE,
) -> tuple[list[list[int]], list[float]]:
    """The translations argmax p(y|z,x) and, if `scored`, their mean log p(y_t|z,x) over all positions (else 0)."""
    tokens, scores = on_cpu(*outputs(model, memory, z, mask, scored, choice))
    return listed(tokens), scores.tolist()


def outputs(
    model: LatentModel | SourceLatentModel,
    memory,
    z: Tensor,
    mask: Tensor,
    scored: bool = True,
    choice: LengthChoice = MOST_PROBABLE,
) -> tuple[Tensor, Tensor]:
    """What a posterior reads of the best outputs: tokens (B, N), padded, and their scores (B,), as `words`.

    Where outputs are read off slots, scores are means over slots.
    """
    if on_source(model):
        logits, slots = decoded(model, memory, z, choice)
        return read_symbols(model, wide(logits), slots, scored)
    logits = model.decode(memory, z, mask)
    # What may not be put out keeps its probability in the normaliser.
    normaliser = wide(logits).logsumexp(-1) if scored else None
    best, tokens = suppressed(model, logits).max(-1)
    scores = torch.zeros(len(tokens), device=tokens.device)
    if normaliser is not None:
        scores = ((wide(best) - normaliser) * mask).sum(1) / mask.sum(1)
    return tokens.masked_fill(~mask, PAD), scores


def listed(tokens: Tensor) -> list[list[int]]:
    """Tokens (B, N) as lists of words: without padding and end symbols."""
    return [[i for i in row if i not in (PAD, EOS)] for row in tokens.tolist()]


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
    step_counts = torch.zeros(z.size(0), dtype=torch.int64, device=z.device)
    active = torch.arange(z.size(0), device=z.device)
    step, part, part_mask = make_step(memory, mask), z, mask
    for _ in range(steps):
        if before:
            before(z)
        moved = step(part)
        distance = (wide(moved - part).norm(dim=-1) * part_mask).sum(1) / part_mask.sum(1)
        z[active, : moved.size(1)] = moved.to(z.dtype)
        step_counts[active] += 1
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
    return z, step_counts


def refine_until_unchanged(
    model: LatentModel | SourceLatentModel,
    z: Tensor,
    make_step: StepMaker,
    memory,
    mask: Tensor,
    steps: int,
    scored: bool = True,
    trace: bool = False,
    choice: LengthChoice = MOST_PROBABLE,
) -> Hypotheses:
    """Translate from latents z; a sentence stops after a step that leaves its output as it was, or after `steps`.

    A delta step depends on the output alone, so that all further ones would change nothing (Shu et al. 2020, algorithm
    1): results are those of `steps` steps. Sentences that have stopped leave the batch. Each output is decoded once.
    """
    tokens, scores = outputs(model, memory, z, mask, scored, choice)
    rows, values, step_counts = listed(tokens), scores.tolist(), [0] * len(tokens)
    traces = [list(rows)]
    active, step = torch.arange(len(tokens), device=z.device), make_step(memory, mask)
    part = memory
    for _ in range(steps):
        z = step.after(tokens) if isinstance(step, DeltaStep) else step(z)
        before, (tokens, scores) = tokens, outputs(model, part, z, mask, scored, choice)
        places, translations = active.tolist(), zip(listed(tokens), scores.tolist(), strict=True)
        for place, (row, value) in zip(places, translations, strict=True):
            rows[place], values[place], step_counts[place] = row, value, step_counts[place] + 1
        traces.append(list(rows))
        going = _differ(before, tokens)
        if not bool(going.any()):
            break
        if bool(going.all()):
            continue
        active, mask = active[going], mask[going]
        # Latents of source positions stand beside source states, which stay as wide as the batch.
        width = mask.size(1) if on_source(model) else int(mask.sum(1).max())
        mask, z = mask[:, :width], z[going, :width]
        tokens = tokens[going] if on_source(model) else tokens[going, :width]
        part = memory.select(active)
        step = make_step(part, mask)
    traces += [list(rows)] * (steps + 1 - len(traces))
    return Hypotheses(rows, values, step_counts, traces if trace else None)


def _differ(one: Tensor, other: Tensor) -> Tensor:
    """Which rows of tokens (B, N) and (B, M), both padded, are not the same, (B,) bool."""
    width = max(one.size(1), other.size(1))
    one, other = (torch.nn.functional.pad(x, (0, width - x.size(1)), value=PAD) for x in (one, other))
    return (one != other).any(1)


def word_rows(tokens: Tensor, mask: Tensor) -> list[list[int]]:
    """Outputs (B, T) as lists without padding and end symbols: a position that puts out an end symbol stays empty."""
    return without_ends(tokens.tolist(), mask.sum(1).tolist())


def without_ends(rows: list[list[int]], positions: list[int]) -> list[list[int]]:
    """The first so many ids of each row but for end symbols."""
    return [[i for i in row[:count] if i != EOS] for row, count in zip(rows, positions, strict=True)]


def draw_noise(batch: Batch, model: LatentModel | SourceLatentModel, generator: torch.Generator) -> None:
    """Draw the noise of latents that another process draws for this batch: later batches then get theirs."""
    shape = (*batch_mask(model, batch).shape, model.config.latent_dim)
    torch.randn(shape, generator=generator, device=batch.target.device)
