"""Refinement of latents: z <- step(z), L times, then y = argmax p(y|z,x).

Searches differ in the step alone: along a direction (Lee et al. 2020, algorithm 1), or to the posterior mean of the
argmax (delta; Shu et al. 2020).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor

from workflow_src import registry
from workflow_src.config.roles import refinement
from workflow_src.decoding.search import SearchModule, State, Watch, padded_alike, run_steps
from workflow_src.nn.layers import Memory
from workflow_src.nn.length import MOST_PROBABLE, LengthChoice
from workflow_src.nn.models import LatentModel
from workflow_src.spec import REFINER, SearchSettings
from workflow_src.types import Networks, wide


def delta_step(
    model: LatentModel, memory: Memory, z: Tensor, mask: Tensor, choice: LengthChoice = MOST_PROBABLE
) -> Tensor:
    """One step of delta inference for latents z (B, P, Z): the mean of q(z | argmax p(y|z,x), x)."""
    outputs, _ = model.read(memory, z, mask, choice)
    return model.posterior(memory, outputs, mask)[0]


def delta_goal(model: LatentModel, memory: Memory, z: Tensor, mask: Tensor, steps: int) -> Tensor:
    """Latents z (B, P, Z) after `steps` steps of delta inference."""
    for _ in range(steps):
        z = delta_step(model, memory, z, mask)
    return z


class Refinement(SearchModule):
    """Steps of latents from the prior mean, without any by default: the search `prior-mean`.

    With `stop_threshold`, a sentence stops after a step whose mean length over its positions, (1/P) sum_p |z'_p - z_p|,
    is below it.
    """

    refines = True

    def __init__(self, networks: Networks, settings: Any, scored: bool = True):
        super().__init__(networks, settings, scored)
        self.steps = getattr(settings, "steps", 0)
        self.threshold: float | None = getattr(settings, "stop_threshold", None)

    def moved(self, memory: Memory, z: Tensor, mask: Tensor) -> Tensor:
        """Latents z (B, P, Z) after one step."""
        raise NotImplementedError

    def stopped(self) -> Callable[[State, State, Tensor], Tensor] | None:
        """Whether sentences stop, (B,), from the states before and after a step; None where they never do."""
        threshold = self.threshold
        if threshold is None:
            return None
        return lambda before, after, mask: step_length(before[0], after[0], mask) < threshold

    def forward(self, source: Tensor, lengths: Tensor | None = None, watch: Watch | None = None) -> tuple[Tensor, ...]:
        memory, choice = self.encode(source), self.choice(lengths)
        mask = self.model.latent_mask(memory, choice)
        z, _ = self.model.prior(memory, mask)
        return self.refined(memory, z, mask, choice, watch)

    def refined(
        self, memory: Memory, z: Tensor, mask: Tensor, choice: LengthChoice, watch: Watch | None
    ) -> tuple[Tensor, ...]:
        """`forward` from latents z (B, P, Z)."""
        model: LatentModel = self.model

        def advance(_number: int, state: State, memory: Memory, mask: Tensor) -> State:
            return (self.moved(memory, state[0], mask),)

        show = None if watch is None else lambda state: watch(model.read(memory, state[0], mask, choice)[0])
        (z,), counts = run_steps((z,), advance, self.steps or 0, memory, mask, self.stopped(), show)
        outputs, scores = model.read(memory, z, mask, choice, self.scored)
        return (outputs, scores) if counts is None else (outputs, scores, counts)


class AlongDirection(Refinement):
    """z <- z + step_size * s(z, x): the output of a score network, or the negative gradient of an energy."""

    def __init__(self, networks: Networks, settings: Any, scored: bool = True):
        super().__init__(networks, settings, scored)
        self.refiner = networks[REFINER]

    def moved(self, memory: Memory, z: Tensor, mask: Tensor) -> Tensor:
        return z + self.settings.step_size * self.refiner.direction(memory, z, mask)


class Delta(Refinement):
    """z <- mean of q(z | argmax p(y|z,x), x). Where latents say the length, each step has a length of its own.

    With `stop_unchanged`, a sentence stops after a step that does not change its output: further steps would change
    nothing, since a step depends on the output alone (Shu et al. 2020, algorithm 1).
    """

    def moved(self, memory: Memory, z: Tensor, mask: Tensor) -> Tensor:
        return delta_step(self.model, memory, z, mask, self.choice())

    def refined(
        self, memory: Memory, z: Tensor, mask: Tensor, choice: LengthChoice, watch: Watch | None
    ) -> tuple[Tensor, ...]:
        """Each output is read once: a step begins with it."""
        model, steps, stopped = self.model, self.steps or 0, self.stopped()

        def read(number: int, z: Tensor, memory: Memory, mask: Tensor, lengths: Tensor | None) -> State:
            at_lengths = dataclasses.replace(choice, lengths=lengths)
            scored = self.scored and (number == steps or stopped is not None)
            state = z, *model.read(memory, z, mask, at_lengths, scored)
            return state if lengths is None else (*state, lengths)

        def advance(number: int, state: State, memory: Memory, mask: Tensor) -> State:
            z, _ = model.posterior(memory, state[1], mask)
            return read(number, z, memory, mask, state[3] if len(state) > 3 else None)

        state = read(0, z, memory, mask, choice.lengths)
        show = None if watch is None else lambda state: watch(state[1])
        (_, outputs, scores, *_), counts = run_steps(state, advance, steps, memory, mask, stopped, show)
        return (outputs, scores) if counts is None else (outputs, scores, counts)

    def stopped(self) -> Callable[[State, State, Tensor], Tensor] | None:
        if self.settings.stop_unchanged:
            return lambda before, after, _mask: ~differ(before[1], after[1])
        return super().stopped()


def step_length(before: Tensor, after: Tensor, mask: Tensor) -> Tensor:
    """Mean length (B,) of a step of latents (B, P, Z) over the positions of mask (B, P)."""
    return (wide(after - before).norm(dim=-1) * mask).sum(1) / mask.sum(1)


def differ(outputs: Tensor, other_outputs: Tensor) -> Tensor:
    """Whether rows of outputs (B, N) and (B, M), both padded, differ, (B,) bool."""
    first, second = padded_alike(outputs, other_outputs)
    return (first != second).any(1)


def open_refinement(networks: Networks, settings: SearchSettings) -> Refinement | None:
    """The search whose steps a search takes, its own or the one that a setting names; None where it takes none."""
    search = refinement(settings)
    if search is None:
        return None
    if not isinstance(settings, search.settings):
        shared = {name: getattr(settings, name) for name in search.settings.model_fields if hasattr(settings, name)}
        settings = search.settings.model_validate(shared)
    return registry.import_object(search.module)(networks, settings, False)
