"""Refinement of latents: z <- step(z), L times, then y = argmax p(y|z,x).

Searches differ in `step` alone: along a direction (Lee et al. 2020, algorithm 1), or to the posterior mean of the
argmax (delta; Shu et al. 2020).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from workflow_src.decoding.latent import (
    MOST_PROBABLE,
    LengthChoice,
    best_ids,
    best_tokens,
    decode_slots,
    latent_mask,
    listed,
    on_source,
    outputs,
    posterior_of,
)
from workflow_src.decoding.settings import RefinementSettings
from workflow_src.spec import MODEL, REFINER, SearchSettings
from workflow_src.types import (
    PAD,
    EncoderOutput,
    Hypotheses,
    LatentModel,
    Networks,
    RefinementStep,
    Refiner,
    SourceLatentModel,
    wide,
)

# (memory, mask (B, T)) -> one step of latents (B, T, Z).
StepMaker = Callable[[EncoderOutput, Tensor], RefinementStep]


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
class DeltaStep:
    """One step of delta inference: z -> mean of q(z | argmax p(y|z,x), x).

    Where latents are those of source positions, y is the model's `output` of the argmax. Where lengths are predicted
    from latents too, each step has a length of its own, by `choice`.
    """

    model: LatentModel | SourceLatentModel
    memory: EncoderOutput
    mask: Tensor
    choice: LengthChoice = MOST_PROBABLE

    def __call__(self, z: Tensor) -> Tensor:
        if on_source(self.model):
            logits, slots = decode_slots(self.model, self.memory, z, self.choice)
            return self.after(self.model.output(logits.argmax(-1), slots))
        return self.after(best_tokens(self.model, self.memory, z, self.mask))

    def after(self, tokens: Tensor) -> Tensor:
        """The posterior mean of an output (B, T)."""
        return posterior_of(self.model, self.memory, tokens, self.mask)[0]


def delta_steps(models: Networks, settings: SearchSettings | StepSettings) -> StepMaker:
    """A maker of delta steps, with the settings' choice of lengths where latents determine these."""
    choice = LengthChoice(getattr(settings, "length_quantile", None), getattr(settings, "lengthening", 0.0))
    return lambda memory, mask: DeltaStep(models[MODEL], memory, mask, choice)


def gradient_step(refiner: Refiner, memory: EncoderOutput, target_mask: Tensor, step_size: float) -> RefinementStep:
    """One step along a learned direction: z -> z + step_size * s(z, x)."""

    def step(z: Tensor) -> Tensor:
        return z + step_size * refiner.direction(memory, z, target_mask)

    return step


def direction_steps(models: Networks, settings: RefinementSettings) -> StepMaker:
    """A maker of steps along the direction of a refiner: the output of a score network, or an energy's gradient."""
    return lambda memory, mask: gradient_step(models[REFINER], memory, mask, settings.step_size)


def refine(z: Tensor, step: RefinementStep, steps: int, before_step: Callable[[Tensor], None] | None = None) -> Tensor:
    """`steps` applications of `step` to latents (B, T, Z), with `before_step(z)` called before each."""
    for _ in range(steps):
        if before_step:
            before_step(z)
        z = step(z)
    return z


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
    """Translate source (B, S) from the prior mean with `steps` steps of `make_step` (None: without steps).

    `lengths` (B,) replace the predicted ones, which are the most probable or a `length_quantile`, plus `lengthening`
    times the number of source subwords. `trace` keeps the translation after every step. Scores are the model's own mean
    log p(y_t|z,x); without `scored` they are 0, which spares a normalisation. Sentences do not influence each other.
    With `stop_threshold`, a sentence stops after a shorter step (see `refine_until`), with `stop_unchanged` after a
    step that does not change its output (`refine_until_unchanged`), at the latest after `steps`; its trace then repeats
    its last translation.
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
    step_counts = [steps] * len(source)
    traces: list[list[list[int]]] = []

    def keep(now: Tensor) -> None:
        if trace:
            traces.append(best_ids(model, memory, now, mask, False, choice)[0])

    if stop_threshold is None:
        z = refine(z, make_step(memory, mask), steps, keep)
    else:
        # Latents of source positions have the width of source states, which is that of the whole batch.
        trim = not on_source(model)
        z, counts = refine_until(z, make_step, memory, mask, steps, stop_threshold, keep, trim)
        step_counts = counts.tolist()
    rows, scores = best_ids(model, memory, z, mask, scored, choice)
    # Sentences that stopped early keep their outputs.
    traces += [rows] * (steps + 1 - len(traces))
    return Hypotheses(rows, scores, step_counts, traces if trace else None)


def translate_refined(
    model: LatentModel | SourceLatentModel,
    source: Tensor,
    make_step: StepMaker,
    settings: StepSettings,
    scored: bool,
    trace: bool,
) -> Hypotheses:
    """`translate_batch` with the settings of a refining search: its steps, lengths and stopping."""
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


def search_by_delta(
    models: Networks, source: Tensor, settings: StepSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    """Delta inference: translation refined by `delta_steps`."""
    return translate_refined(models[MODEL], source, delta_steps(models, settings), settings, scored, trace)


def search_along_direction(
    models: Networks, source: Tensor, settings: RefinementSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    """The search of score and energy networks: translation refined by `direction_steps`."""
    return translate_refined(models[MODEL], source, direction_steps(models, settings), settings, scored, trace)


def refine_until(
    z: Tensor,
    make_step: StepMaker,
    memory: EncoderOutput,
    mask: Tensor,
    steps: int,
    threshold: float,
    before_step: Callable[[Tensor], None] | None = None,
    trim: bool = True,
) -> tuple[Tensor, Tensor]:
    """Refine latents z (B, T, Z) until every sentence stops; returns z and numbers of steps (B,) int64.

    A sentence stops after a step whose mean length over its positions, (1/T) sum_t |z'_t - z_t|, is below `threshold`,
    or after `steps`. Sentences that have stopped leave the batch. `before_step(z)` is called before every step of the
    batch. `trim`: positions that no sentence has any more leave the batch too.
    """
    z = z.clone()
    step_counts = torch.zeros(z.size(0), dtype=torch.int64, device=z.device)
    active = torch.arange(z.size(0), device=z.device)
    step, active_z, active_mask = make_step(memory, mask), z, mask
    for _ in range(steps):
        if before_step:
            before_step(z)
        moved = step(active_z)
        distance = (wide(moved - active_z).norm(dim=-1) * active_mask).sum(1) / active_mask.sum(1)
        z[active, : moved.size(1)] = moved.to(z.dtype)
        step_counts[active] += 1
        going = distance >= threshold
        if not bool(going.any()):
            break
        if bool(going.all()):
            active_z = moved
            continue
        active = active[going]
        width = int(mask[active].sum(1).max()) if trim else mask.size(1)
        active_z, active_mask = moved[going, :width], mask[active, :width]
        step = make_step(memory.select(active), active_mask)
    return z, step_counts


def refine_until_unchanged(
    model: LatentModel | SourceLatentModel,
    z: Tensor,
    make_step: StepMaker,
    memory: EncoderOutput,
    mask: Tensor,
    steps: int,
    scored: bool = True,
    trace: bool = False,
    choice: LengthChoice = MOST_PROBABLE,
) -> Hypotheses:
    """Translate from latents z; a sentence stops after a step that does not change its output, or after `steps`.

    A delta step depends on the output alone, so that further steps would change nothing (Shu et al. 2020, algorithm 1):
    results are those of `steps` steps. Sentences that have stopped leave the batch. Each output is decoded once.
    """
    tokens, scores = outputs(model, memory, z, mask, scored, choice)
    rows, values, step_counts = listed(tokens), scores.tolist(), [0] * len(tokens)
    traces = [list(rows)]
    active, step = torch.arange(len(tokens), device=z.device), make_step(memory, mask)
    active_memory = memory
    for _ in range(steps):
        z = step.after(tokens) if isinstance(step, DeltaStep) else step(z)
        previous, (tokens, scores) = tokens, outputs(model, active_memory, z, mask, scored, choice)
        places, translations = active.tolist(), zip(listed(tokens), scores.tolist(), strict=True)
        for place, (row, value) in zip(places, translations, strict=True):
            rows[place], values[place], step_counts[place] = row, value, step_counts[place] + 1
        traces.append(list(rows))
        going = _differ(previous, tokens)
        if not bool(going.any()):
            break
        if bool(going.all()):
            continue
        active, mask = active[going], mask[going]
        # As in `translate_batch`: latents of source positions keep the width of source states.
        width = mask.size(1) if on_source(model) else int(mask.sum(1).max())
        mask, z = mask[:, :width], z[going, :width]
        tokens = tokens[going] if on_source(model) else tokens[going, :width]
        active_memory = memory.select(active)
        step = make_step(active_memory, mask)
    traces += [list(rows)] * (steps + 1 - len(traces))
    return Hypotheses(rows, values, step_counts, traces if trace else None)


def _differ(tokens: Tensor, other_tokens: Tensor) -> Tensor:
    """Whether rows of tokens (B, N) and (B, M), both padded, differ, (B,) bool."""
    width = max(tokens.size(1), other_tokens.size(1))
    first, second = (nn.functional.pad(x, (0, width - x.size(1)), value=PAD) for x in (tokens, other_tokens))
    return (first != second).any(1)
