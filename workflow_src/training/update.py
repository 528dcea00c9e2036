"""One update of the weights: gradients of the parts of a batch, and the step, which is skipped where it would do harm.

An update whose loss or gradient is not finite, or whose gradient explodes, is skipped: weights, moments and the count
of Adam's steps stay as they are. The device decides, so that nothing waits for it.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.config.experiment import TrainingConfig
from workflow_src.config.sizes import sized_number
from workflow_src.data.batching import Pairs, collate
from workflow_src.errors import OutOfMemory
from workflow_src.runtime import device_memory
from workflow_src.runtime.device import Runtime
from workflow_src.runtime.processes import Group
from workflow_src.types import Objective, TrainingContext

log = logging.getLogger("continuum")

# Figures of an update by name, on the device.
Figures = dict[str, Tensor | float]
# Gradient norms that "exploding" is measured against.
NORMS = 100
SHOWN_ROWS = 20


def parts_of_an_update(accumulate: int, processes: int) -> int:
    """Number of parts that a batch is computed in: `accumulate`, or its next multiple of the processes."""
    return math.lcm(accumulate, processes)


@dataclasses.dataclass(frozen=True)
class Part:
    """Pairs whose gradient is computed at once: rows of the corpus, and where in the training they stand."""

    rows: np.ndarray
    epoch: int
    position: int
    number: int
    halves: tuple[int, ...] = ()

    def split(self) -> list[Part]:
        """Its two halves by sentences."""
        middle = len(self.rows) // 2
        cut = (self.rows[:middle], self.rows[middle:])
        return [dataclasses.replace(self, rows=rows, halves=(*self.halves, i)) for i, rows in enumerate(cut)]


def describe(parts: list[Part]) -> str:
    """The sentences that an update read, in words for a message."""
    rows = [int(row) for part in parts for row in part.rows]
    numbers = ", ".join(map(str, rows[:SHOWN_ROWS])) + (" …" if len(rows) > SHOWN_ROWS else "")
    first, last = parts[0], parts[-1]
    place = f"epoch {first.epoch + 1}, batch {first.position + 1}"
    if len(parts) > 1:
        place += f" to epoch {last.epoch + 1}, batch {last.position + 1}"
    return f"{place}, {len(rows)} pairs, rows (from 0) {numbers}"


class Gate:
    """Decides on the device which updates are skipped."""

    def __init__(self, factor: float | None, device: torch.device):
        self.factor = factor
        self.norms = torch.full((NORMS,), torch.nan, device=device)

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Whether to skip, a 0-d bool. `norms` takes the gradient norms of updates that are not."""
        skip = ~(torch.isfinite(loss) & torch.isfinite(norm))
        if self.factor is not None:
            # Until the window is full the median is NaN, and no norm is larger than that.
            skip = skip | (norm > self.factor * self.norms.median())
            self.norms = torch.where(skip, self.norms, torch.cat([self.norms[1:], norm[None].to(self.norms)]))
        return skip


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Rate of update `step`, counted from 0.

    Both schedules rise linearly for `warmup_steps`. inverse-sqrt then falls as 1/sqrt(step) (Vaswani et al. 2017,
    section 5.3); polynomial is multiplied throughout by (1 - step / max_steps) ** decay_power and ends at 0.
    """
    warmup_steps, update = sized_number(config.warmup_steps), step + 1
    rising = min(1.0, update / warmup_steps) if warmup_steps else 1.0
    if config.schedule == "polynomial":
        return config.learning_rate * rising * (1 - step / sized_number(config.max_steps)) ** config.decay_power
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
    """Updates the weights of `model`; holds the optimiser and the generators that training draws from."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: TrainingConfig,
        corpus: Pairs,
        runtime: Runtime,
        group: Group,
        seed: int,
        frozen: nn.Module | None,
        split_parts: bool,
        roles: Mapping[str, nn.Module] | None = None,
    ):
        self.model = model
        self.objective = objective
        self.config = config
        self.max_steps = sized_number(config.max_steps)
        self.corpus = corpus
        self.runtime = runtime
        self.group = group
        self.seed = seed
        self.frozen = frozen
        self.roles = roles or {}
        self.split_parts = split_parts
        self.parts_per_update = parts_of_an_update(config.accumulate, group.size)
        self.optimiser = make_optimiser(model, config)
        self.generator = runtime.generator(seed)
        self.gate = Gate(config.explode_factor, runtime.device)
        self._splits = 0

    def update(self, step: int, parts: list[Part]) -> Figures:
        """Update number `step`, from 0, on all parts of its batch. Returns figures, `skipped` among them.

        Each part counts as much as it has terms. Figures stay on the device.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.config, step)
        counts, collected = self._add_gradients(step, self.group.share(parts))
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        problem = (
            f"while update {step + 1} was applied ({{}}): the optimiser needs three times the memory of the weights "
            "beside a batch's"
        )
        fix = (
            f"lower training.batch_tokens ({self.config.batch_tokens}), choose a smaller preset, or a device with more "
            "memory"
        )
        with device_memory.reported_as(problem, fix):
            figures = self._mean(counts, collected, gradients)
            return figures | self._apply(gradients, torch.as_tensor(figures["loss"]))

    def take_splits(self) -> int:
        """Number of parts that this process computed in halves, because memory ran out, since the last call."""
        splits, self._splits = self._splits, 0
        return splits

    def _mean(self, counts: list[int], collected: list[Figures], gradients: list[Tensor]) -> Figures:
        """Means over the parts of the batch, gradients' in place."""
        if self.group.size > 1:
            return self._mean_over_processes(counts, collected, gradients)
        total = sum(counts)
        torch._foreach_div_(gradients, total)
        shares = [count / total for count in counts]
        return {
            name: sum(part[name] * share for part, share in zip(collected, shares, strict=True))
            for name in collected[0]
        }

    def _mean_over_processes(self, counts: list[int], collected: list[Figures], gradients: list[Tensor]) -> Figures:
        """Means over the parts of all processes, gradients' in place."""
        names = list(collected[0])
        weighted = [sum(part[name] * count for part, count in zip(collected, counts, strict=True)) for name in names]
        tensors = [torch.as_tensor(value, dtype=torch.float64, device=self.runtime.device) for value in weighted]
        sums = self.group.add_up(torch.stack([tensors[0].new_tensor(float(sum(counts))), *tensors]))
        total, *totals = sums.unbind()
        self.group.mean_gradients(gradients, total)
        return {name: value / total for name, value in zip(names, totals, strict=True)}

    def _apply(self, gradients: list[Tensor], loss: Tensor) -> Figures:
        norm = torch.nn.utils.get_total_norm(gradients)
        skipped = self.gate(loss, norm)
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip_norm, norm)
        # Fused kernels, which read this attribute, leave everything as it is where it is 1.
        vars(self.optimiser)["found_inf"] = skipped.float()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return {"gradient_norm": norm, "skipped": skipped}

    def _add_gradients(self, step: int, parts: list[Part]) -> tuple[list[int], list[Figures]]:
        """Leave in `.grad` the sum over the parts of loss times terms; returns terms and figures of each part.

        When memory runs out, the part is cut into halves, and all parts are computed again: how much of its gradient
        was added before is unknown. Raises OutOfMemory when it cannot be cut, or is not to be.
        """
        while True:
            computed: list[tuple[int, Figures]] = []
            shortage = None
            while shortage is None and len(computed) < len(parts):
                part = parts[len(computed)]
                shortage = self._add_gradient(step, part, computed)
            if shortage is None:
                return [count for count, _ in computed], [figures for _, figures in computed]
            self.optimiser.zero_grad(set_to_none=True)
            device_memory.release()
            shape = self._shape(part)
            if not self.split_parts or len(part.rows) == 1:
                raise OutOfMemory(f"in update {step + 1} on {shape} ({shortage})", self._fix(part))
            log.warning("warning: out of memory in update %d on %s: computed in halves", step + 1, shape)
            self._splits += 1
            parts = [*parts[: len(computed)], *part.split(), *parts[len(computed) + 1 :]]

    def _add_gradient(self, step: int, part: Part, computed: list[tuple[int, Figures]]) -> str | None:
        """Add a part's gradient and append its terms and figures to `computed`; returns the message of the allocator
        when memory ran out.

        Outside of this function nothing refers to the error, whose frames would keep the memory.
        """
        try:
            computed.append(self._loss_and_gradient(step, part))
        except device_memory.ERRORS as failure:
            if not device_memory.is_out_of_memory(failure):
                raise
            return device_memory.first_line(failure)
        return None

    def _loss_and_gradient(self, step: int, part: Part) -> tuple[int, Figures]:
        """Compute the loss of a part and add its gradient; returns its terms and figures."""
        if self.parts_per_update > 1:
            # Random draws for a part depend on its number, not on the process that computes it.
            entropy = np.random.SeedSequence([self.seed, step, part.number, *part.halves])
            seed = int(entropy.generate_state(1, np.uint64)[0] >> 1)
            torch.manual_seed(seed)
            self.generator.manual_seed(seed)
        batch = collate(self.corpus, part.rows).to(self.runtime.device)
        context = TrainingContext(step, self.max_steps, self.generator, self.frozen, self.roles)
        with self.runtime.autocast():
            terms = self.objective(self.model, batch, context)
        (terms.loss * terms.count).backward()
        return terms.count, {"loss": terms.loss.detach(), **terms.figures}

    def _shape(self, part: Part) -> str:
        source = int(self.corpus.source_lengths[part.rows].max()) + 1
        target = max(1, int(self.corpus.target_lengths[part.rows].max()))
        return f"a batch of {len(part.rows)} pairs, {source} source and {target} target subwords wide"

    def _fix(self, part: Part) -> str:
        """What makes room for a part."""
        config = self.config
        fixes = [
            f"lower training.batch_tokens ({config.batch_tokens})",
            f"raise training.accumulate ({config.accumulate})",
            *([] if self.split_parts else ["set runtime.split_batches to true"]),
        ]
        if len(part.rows) == 1:
            fixes = ["lower recipe.max_length", "choose a smaller preset", "take a device with more memory"]
        return f"{', '.join(fixes[:-1])} or {fixes[-1]}"
