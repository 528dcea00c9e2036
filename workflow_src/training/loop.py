"""The training loop: batches, updates, validation, saving, resuming, stopping. No branch on families."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from workflow_src.config.sizes import sized_number
from workflow_src.data.batching import epoch_batches
from workflow_src.errors import ArtifactError
from workflow_src.nn.layers import compile_stacks
from workflow_src.nn.weights import set_weights, weights_of
from workflow_src.runtime import device_memory
from workflow_src.runtime.signals import Preempted, Preemption
from workflow_src.training.dev import Validation
from workflow_src.training.means import Numbers, read
from workflow_src.training.reporting import Reporter
from workflow_src.training.state import Progress, StateFolder, pack_optimiser, unpack_optimiser
from workflow_src.training.update import Figures, Part, Task, Updater

log = logging.getLogger("continuum")
T = TypeVar("T")

# Actions before an update; all processes take the largest that one of them asks for.
GO_ON, SAVE, STOP = range(3)
# The loss on dev in the figures of validations.
LOSS = "dev_loss"


class Trainer:
    """Trains the model of a task for `config.max_steps` updates.

    The same seed gives the same weights; so does a training that was killed and resumed (bit for bit on one CPU
    thread). A state is saved every `config.save_every` updates, and when the last one is `save_minutes` old. In several
    processes, only the first has `states`. `validate_start`: the weights that training begins with are validated too,
    as update 0, and `keep: best` may keep them.
    """

    def __init__(
        self,
        task: Task,
        validation: Validation,
        states: StateFolder | None = None,
        log_every: int = 100,
        save_minutes: float = 5.0,
        validate_start: bool = False,
    ):
        self.task = task
        self.model = task.model.to(task.runtime.device)
        frozen = [task.frozen] if task.frozen is not None else []
        for network in [*frozen, *task.roles.values()]:
            network.to(task.runtime.device).eval().requires_grad_(False)
        if task.runtime.compile:
            for network in [task.model, *frozen, *task.roles.values()]:
                compile_stacks(network)
        self.validation = validation
        self.states = states
        self.log_every = log_every
        self.save_seconds = 60 * save_minutes
        self.validate_start = validate_start
        self.updater = Updater(task)
        self.reporter = Reporter(task)
        self.progress = Progress()
        self.preemption = Preemption()
        # The update whose state was written last; 0: none.
        self.saved = 0
        # The time of that, or of the start of training.
        self.saved_at = time.monotonic()
        self.snapshots: list[dict[str, Tensor]] = []
        # Figures of the updates since the last validation.
        self.window: dict[str, list[Numbers]] = {}
        # Updates whose figures are still on the device, with the parts of their batches.
        self.pending: list[tuple[list[Part], Figures]] = []
        self._began = 0.0

    def run(self) -> Progress:
        """Train to the end and leave the chosen weights in the model.

        Raises Preempted after SIGTERM, SIGUSR1 or SIGINT, the state saved; KeyboardInterrupt at a second SIGINT; and
        InputError when training diverges or memory does not suffice.
        """
        with self.preemption:
            try:
                self._train()
            except Preempted as stop:
                state = "no state was saved before; the same command starts anew."
                if self.saved:
                    folder = f" in {self.states.parent}" if self.states else ""
                    state = f"the state of update {self.saved} is kept{folder}; the same command goes on from there."
                raise Preempted(f"stopped by {stop} after update {self.progress.step}: {state}") from None
        return self.progress

    def _train(self) -> None:
        self._resume()
        progress, task = self.progress, self.task
        save_every = sized_number(task.config.save_every)
        parts = self._batch_parts()
        self.model.train()
        if progress.step < task.max_steps:
            if not len(task.corpus):
                raise ArtifactError(task.corpus.prefix, "has no pairs to train on", "encode it again")
            # A batch that memory does not suffice for ends training now, not after hours.
            self.updater.rehearse()
            moments = self.updater.moments_to_come()
            self._on_dev("while validating before the first update", self.validation.rehearse)
            del moments
        if self.validate_start and task.max_steps and not (progress.step or progress.history):
            self._validate()
        if progress.validated < progress.step and self._validates():
            self._validate()
        self._began = time.perf_counter()
        self.reporter.begin(progress)
        while progress.step < task.max_steps and not self._out_of_patience():
            action = task.group.largest(self._next_action())
            if action == STOP:
                self._stop()
            if action == SAVE:
                self._collect()
                self._save()
                self._began = time.perf_counter()
            batch = [next(parts) for _ in range(task.parts_per_update)]
            self.pending.append((batch, self.updater.update(progress.step, batch)))
            progress.step += 1
            last = progress.step == task.max_steps
            reports, saves = (progress.step % interval == 0 for interval in (self.log_every, save_every))
            validates = self._validates()
            # Figures stay on the device until then: reading them waits for everything queued before.
            if not (reports or validates or saves or last):
                continue
            self._collect()
            if reports:
                losses = self.window.get("loss", [])
                self.reporter.pace(progress, losses[-self.log_every :])
            # Before validation, which can be repeated; several processes could not stop together within it.
            if saves or last or (validates and task.group.size > 1):
                self._save()
            if validates:
                self._validate()
            # Neither saving nor validating counts as training.
            self._began = time.perf_counter()
        if progress.step < task.max_steps:
            patience = task.config.patience
            log.info("no better validation in %d: training stops after update %d", patience, progress.step)
            self._save()
        self._choose_weights()

    def _next_action(self) -> int:
        """The action of this process before the next update; the clock of the first one says when to save."""
        if self.preemption.received is not None:
            return STOP
        due = self.task.group.first and time.monotonic() - self.saved_at >= self.save_seconds
        return SAVE if due else GO_ON

    def _out_of_patience(self) -> bool:
        """Whether the last `patience` validations were no better than one before them, in the figure that selects
        weights and in the loss, which falls long before BLEU rises from 0.
        """
        patience, progress = self.task.config.patience, self.progress
        # Called after every update; only a validation changes the answer.
        if patience is None or progress.validated != progress.step or len(progress.history) <= patience:
            return False
        ranks = self._ranks()
        losses = [loss for _, loss in ranks]
        last_better = max(ranks.index(max(ranks)), losses.index(max(losses)))
        return last_better < len(ranks) - patience

    def _ranks(self) -> list[tuple[float, float]]:
        """Numbers that order the validations: of the larger one the weights are better. Among equal figures that
        select weights, it is the lower loss; NaN is never better.
        """
        sign = -1 if self.validation.smallest else 1
        figures = [sign * entry[self.validation.criterion] for entry in self.progress.history]
        losses = [-entry.get(LOSS, math.nan) for entry in self.progress.history]
        return [(_number(figure), _number(loss)) for figure, loss in zip(figures, losses, strict=True)]

    def _validates(self) -> bool:
        step = self.progress.step
        return step % sized_number(self.task.config.validate_every) == 0 or step == self.task.max_steps

    def _batch_parts(self) -> Iterator[Part]:
        """Parts of batches from where training stands; the position moves on as they are taken."""
        progress, task = self.progress, self.task
        number = 0
        while True:
            epoch_rows = task.corpus.epoch_rows(task.seed, progress.epoch)
            batches = epoch_batches(task.corpus, task.part_tokens, task.seed, progress.epoch, rows=epoch_rows)
            while progress.position < len(batches):
                rows = batches[progress.position]
                part = Part(rows, progress.epoch, progress.position, number % task.parts_per_update)
                number += 1
                progress.position += 1
                # End symbols count, one a sentence.
                progress.target_tokens += int(task.corpus.target_lengths[rows].sum()) + len(rows)
                yield part
            progress.epoch += 1
            progress.position = 0

    def _stop(self) -> None:
        """Save and leave, in all processes."""
        self._collect()
        self._save()
        # torchrun kills the others as soon as one process ends.
        self.task.group.wait()
        raise Preempted(self.preemption.received or "a signal to another process")

    def _collect(self) -> None:
        """Read the figures of the last updates from the device; count the time, and the updates that were skipped.

        Raises InputError when too many were skipped, before a state is saved: the last one is from before them.
        """
        progress = self.progress
        first = progress.step - len(self.pending) + 1
        pending = self.pending
        self.pending = []
        for number, (parts, figures) in enumerate(pending, first):
            means = read(figures)
            skipped, _ = means.pop("skipped")
            if skipped:
                progress.skipped += 1
                progress.skipped_in_row += 1
                self.reporter.skipped(progress, number, parts, means, self.saved)
                continue
            progress.skipped_in_row = 0
            for name, mean in means.items():
                self.window.setdefault(name, []).append(mean)
        now = time.perf_counter()
        progress.seconds += now - self._began
        self._began = now

    def _validate(self) -> None:
        try:
            figures = self._figures()
        except Preempted:
            self._save()
            raise
        progress, config = self.progress, self.task.config
        progress.history.append(self.reporter.entry(progress, self.window, figures))
        progress.validated = progress.step
        self.window = {}
        text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        log.info("step %d  validation: %s", progress.step, text)
        self.reporter.warn_of_unreachable(progress.history[-1])
        ranks = self._ranks()
        better = config.keep == "best" and ranks.index(max(ranks)) == len(ranks) - 1
        # The first process keeps the weights. Those of update 0 take no part in an average: they were not trained here.
        averaged = config.keep == "average" and progress.step > 0
        if self.task.group.first and (better or averaged):
            weights = {name: tensor.cpu().clone() for name, tensor in weights_of(self.model).items()}
            count = config.average_last if config.keep == "average" else 1
            self.snapshots = [*self.snapshots, weights][-count:]

    def _figures(self) -> dict[str, float]:
        """Figures on dev."""
        return self._on_dev(f"while validating after update {self.progress.step}", self.validation.figures)

    def _on_dev(self, when: str, compute: Callable[[nn.Module], T]) -> T:
        """What `compute` returns of the model. Validation changes nothing, so a signal ends it at once."""
        self.model.eval()
        fix = "choose a smaller preset, shorter dev sentences, or a device with more memory"
        try:
            with device_memory.reported_as(lambda message: (f"{when} ({message})", fix)), self.preemption.at_once():
                return compute(self.model)
        finally:
            self.model.train()

    def _choose_weights(self) -> None:
        """Put the weights that `keep` asks for into the model."""
        progress = self.progress
        if self.task.config.keep == "best" and progress.history:
            ranks = self._ranks()
            progress.chosen = ranks.index(max(ranks))
            log.info("the weights of update %d are kept", progress.history[progress.chosen]["step"])
        count = self.task.group.from_first(len(self.snapshots))
        if count:
            weights = weights_of(self.model)
            mean = None
            if self.snapshots:
                mean = {name: sum(s[name].double() for s in self.snapshots) / count for name in self.snapshots[0]}
            mean = self.task.group.from_first(mean)
            set_weights(self.model, {name: tensor.to(weights[name]) for name, tensor in mean.items()}, "chosen")
        if count > 1 and self.task.config.keep == "average":
            figures = self._figures()
            progress.history.append({**self.reporter.entry(progress, self.window, figures), "averaged": count})
            log.info("average of the last %d: %s", count, "  ".join(f"{k} {v:.4g}" for k, v in figures.items()))
        self.model.eval()

    def _save(self) -> None:
        """Write the state unless that of this update is written; after a skipped update the older states are kept."""
        progress = self.progress
        if self.saved == progress.step or progress.skipped_in_row:
            return
        self._check_same_weights()
        if self.states is not None:
            tensors = {f"model.{name}": tensor for name, tensor in weights_of(self.model).items()}
            tensors |= pack_optimiser(self.updater.optimiser)
            for index, snapshot in enumerate(self.snapshots):
                tensors |= {f"snapshot.{index}.{name}": tensor for name, tensor in snapshot.items()}
            progress.snapshots = len(self.snapshots)
            self.states.save(progress.step, tensors, dataclasses.asdict(progress) | {"window": self.window})
        self.saved, self.saved_at = progress.step, time.monotonic()

    def _check_same_weights(self) -> None:
        """Raises RuntimeError where weights of processes differ by more than rounding: those of the first are saved."""
        task = self.task
        if task.group.size == 1:
            return
        norms = torch.stack([tensor.double().norm() for tensor in weights_of(self.model).values()]).cpu()
        for rank, other_norms in enumerate(task.group.gather(norms)):
            if not torch.allclose(norms, other_norms, rtol=1e-3, atol=1e-6):
                raise RuntimeError(f"processes {task.group.rank} and {rank} of this training have different weights")

    def _resume(self) -> None:
        state = self.task.group.from_first(self._load())
        if state is None:
            if self.task.group.size > 1:
                weights = {name: tensor.cpu() for name, tensor in weights_of(self.model).items()}
                set_weights(self.model, self.task.group.from_first(weights), "of the first process")
            return
        tensors, values = state
        self.window = values.pop("window")
        self.progress = Progress(**values)
        self.saved = self.progress.step
        set_weights(self.model, _with_prefix(tensors, "model."), "of the training state")
        unpack_optimiser(self.updater.optimiser, tensors)

    def _load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The state to go on from, in the first process; snapshots stay in it."""
        if self.states is None or (state := self.states.load()) is None:
            return None
        tensors, values = state
        log.info("resumed at step %d from %s", values["step"], self.states.parent)
        self.snapshots = [_with_prefix(tensors, f"snapshot.{index}.") for index in range(values["snapshots"])]
        return {name: tensor for name, tensor in tensors.items() if not name.startswith("snapshot.")}, values


def _number(value: float) -> float:
    """The value, and less than any other for NaN."""
    return -math.inf if math.isnan(value) else value


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
