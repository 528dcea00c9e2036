"""One update of the weights: gradients of the parts of a batch, and the step, which is skipped where it would do harm.

An update whose loss or gradient is not finite is skipped: weights, moments and the count of Adam's steps stay as they
are. The device decides, so that nothing waits for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.config.sizes import sized_number
from workflow_src.config.training import TrainingConfig
from workflow_src.data.batching import Pairs, collate, largest_batches
from workflow_src.errors import DeclarationError
from workflow_src.losses.draws import seed_of
from workflow_src.runtime import device_memory
from workflow_src.runtime.device import Runtime
from workflow_src.runtime.processes import Group
from workflow_src.training.means import added
from workflow_src.types import Mean, Objective, TrainingContext

# Figures of an update by name, with sums and counts on the device.
Figures = dict[str, Mean]
# Names of figures that a training counts itself: of an update, and of an entry in its history.
OWN_FIGURES = (
    "loss",
    "gradient_norm",
    "skipped",
    "step",
    "minutes",
    "target_tokens",
    "tokens_per_second",
    "learning_rate",
    "averaged",
)
SHOWN_ROWS = 20
# Power of the polynomial schedule.
DECAY_POWER = 0.9


@dataclasses.dataclass(frozen=True)
class Task:
    """What a training learns, from what, and how.

    The objective gets the `frozen` base and the networks in `roles`; neither learns. In several processes, all of a
    `group` have the same task.
    """

    model: nn.Module
    objective: Objective
    corpus: Pairs
    config: TrainingConfig
    seed: int
    runtime: Runtime
    group: Group = dataclasses.field(default_factory=Group)
    frozen: nn.Module | None = None
    roles: Mapping[str, nn.Module] = dataclasses.field(default_factory=dict)

    @property
    def max_steps(self) -> int:
        return sized_number(self.config.max_steps)

    @property
    def parts_per_update(self) -> int:
        return self.config.parts(self.group.size)

    @property
    def part_tokens(self) -> int:
        """Padded subwords of the longer side in one part of a batch."""
        return self.config.part_tokens(self.group.size)


@dataclasses.dataclass(frozen=True)
class Part:
    """Pairs whose gradient is computed at once: rows of the corpus, and where in the training they stand."""

    rows: np.ndarray
    epoch: int
    position: int
    number: int


def check_names(where: str, figures: Iterable[str]) -> None:
    """Raises DeclarationError for a figure of a family with the name of one that a training counts itself."""
    for name in figures:
        if name in OWN_FIGURES:
            problem = f'returns a figure "{name}", and trainings count {", ".join(OWN_FIGURES)} themselves'
            raise DeclarationError(where, problem, "rename it")


def describe(parts: list[Part]) -> str:
    """The sentences that an update read, in words for a message."""
    rows = [int(row) for part in parts for row in part.rows]
    numbers = ", ".join(map(str, rows[:SHOWN_ROWS])) + (" …" if len(rows) > SHOWN_ROWS else "")
    first, last = parts[0], parts[-1]
    place = f"epoch {first.epoch + 1}, batch {first.position + 1}"
    if len(parts) > 1:
        place += f" to epoch {last.epoch + 1}, batch {last.position + 1}"
    return f"{place}, {len(rows)} pairs, rows (from 0) {numbers}"


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Rate of update `step`, counted from 0.

    Both schedules rise linearly for `warmup_steps`. inverse-sqrt then falls as 1/sqrt(step) (Vaswani et al. 2017,
    section 5.3); polynomial is multiplied throughout by (1 - step / max_steps) ** 0.9 and ends at 0.
    """
    warmup_steps, update = sized_number(config.warmup_steps), step + 1
    rising = min(1.0, update / warmup_steps) if warmup_steps else 1.0
    if config.schedule == "polynomial":
        return config.learning_rate * rising * (1 - step / sized_number(config.max_steps)) ** DECAY_POWER
    if update <= warmup_steps:
        return config.learning_rate * rising
    return config.learning_rate * (max(1, warmup_steps) / update) ** 0.5


def make_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Fused AdamW over all parameters (Adam where weight_decay is 0)."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


class Updater:
    """Updates the weights of a task's model; holds the optimiser."""

    def __init__(self, task: Task):
        self.task = task
        self.optimiser = make_optimiser(task.model, task.config)

    def rehearse(self) -> None:
        """Compute the gradients of the batches that need most memory in any epoch, and drop them.

        Memory for the optimiser's moments and for the gradients of other parts is taken meanwhile. Raises OutOfMemory
        where memory does not suffice.
        """
        task = self.task
        other_parts = int(task.parts_per_update > task.group.size)
        for rows in largest_batches(task.corpus, task.part_tokens):
            with self._reported("for the largest batch of this training,", rows):
                reserved = self.moments_to_come() + self._copies(other_parts)
                # At the end of training, when all terms of a loss are computed.
                self._loss_and_gradient(rows, task.max_steps - 1)
                del reserved
            self.optimiser.zero_grad(set_to_none=True)

    def moments_to_come(self) -> list[Tensor]:
        """Tensors that take the memory of the optimiser's moments, which the first update makes; then none."""
        return [] if self.optimiser.state else self._copies(2)

    def _copies(self, count: int) -> list[Tensor]:
        return [torch.empty_like(parameter) for parameter in self._learnt() for _ in range(count)]

    def update(self, step: int, parts: list[Part]) -> Figures:
        """Update number `step`, from 0, on all parts of its batch. Returns figures, `skipped` among them.

        Each part counts as much as it has terms. Figures stay on the device. Raises OutOfMemory where memory does not
        suffice.
        """
        task = self.task
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(task.config, step)
        computed = []
        for part in task.group.share(parts):
            with self._reported(f"in update {step + 1} on", part.rows):
                # Dropout depends on the number of a part, not on the process that computes it.
                torch.manual_seed(seed_of(task.seed, step, part.number))
                computed.append(self._loss_and_gradient(part.rows, step))
        gradients = [p.grad for p in self._learnt() if p.grad is not None]
        when, fix = f"while update {step + 1} was applied", "choose a smaller preset, or a device with more memory"
        with device_memory.reported_as(lambda message: (f"{when} ({message})", f"{self._fewer_tokens}, {fix}")):
            figures = self._joined(computed)
            loss, count = figures["loss"]
            task.group.mean_gradients(gradients, count)
            return figures | self._apply(gradients, torch.as_tensor(loss))

    def _learnt(self) -> list[nn.Parameter]:
        return list(self.task.model.parameters())

    def _loss_and_gradient(self, rows: np.ndarray, step: int) -> Figures:
        """Add the gradient of the sum of the loss's terms over pairs to `.grad`; returns figures, `loss` among them."""
        task = self.task
        batch = collate(task.corpus, rows).to(task.runtime.device)
        context = TrainingContext(step, task.max_steps, seed_of(task.seed, step), task.frozen, task.roles)
        with task.runtime.autocast():
            terms = task.objective(task.model, batch, context)
        check_names("the objective", terms.figures)
        loss = terms.loss * terms.count
        loss.backward()
        return {"loss": (loss.detach(), terms.count), **terms.means}

    def _joined(self, computed: list[Figures]) -> Figures:
        """Figures over the parts of the batch, those of all processes."""
        figures = {name: added(part[name] for part in computed) for name in computed[0]}
        if self.task.group.size == 1:
            return figures
        # What is added to a tensor on the device is on the device, and the CPU does not wait for it.
        zero = torch.zeros((), dtype=torch.float64, device=self.task.runtime.device)
        values = torch.stack([zero + value for mean in figures.values() for value in mean])
        sums, counts = self.task.group.add_up(values).view(-1, 2).unbind(1)
        return dict(zip(figures, zip(sums.unbind(), counts.unbind(), strict=True), strict=True))

    def _apply(self, gradients: list[Tensor], loss: Tensor) -> Figures:
        norm = torch.nn.utils.get_total_norm(gradients)
        skipped = ~(torch.isfinite(loss) & torch.isfinite(norm))
        if self.task.config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.task.model.parameters(), self.task.config.clip_norm, norm)
        # Fused kernels, which read this attribute, leave everything as it is where it is 1.
        vars(self.optimiser)["found_inf"] = skipped.float()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return {"gradient_norm": (norm, 1), "skipped": (skipped, 1)}

    def _reported(self, when: str, rows: np.ndarray) -> contextlib.AbstractContextManager[None]:
        """Raise OutOfMemory, which describes a batch, where memory runs out in here."""
        return device_memory.reported_as(lambda message: (f"{when} {self._shape(rows)} ({message})", self._fix(rows)))

    def _shape(self, rows: np.ndarray) -> str:
        source = int(self.task.corpus.source_lengths[rows].max()) + 1
        target = max(1, int(self.task.corpus.target_lengths[rows].max()))
        return f"a batch of {len(rows)} pairs, {source} source and {target} target subwords wide"

    def _fix(self, rows: np.ndarray) -> str:
        """What makes room for a batch."""
        if len(rows) == 1:
            return "lower recipe.max_length, choose a smaller preset or take a device with more memory"
        return f"{self._fewer_tokens} or raise training.accumulate ({self.task.config.accumulate})"

    @property
    def _fewer_tokens(self) -> str:
        return f"lower training.batch_tokens ({self.task.config.batch_tokens})"
