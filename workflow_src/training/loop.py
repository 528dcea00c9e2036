"""The training loop: batches, updates, validation, saving, resuming. No branch on families."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.config.experiment import TrainingConfig
from workflow_src.data.batching import collate, epoch_batches
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.models.layers import compile_stacks
from workflow_src.models.weights import set_weights, weights_of
from workflow_src.training.optim import learning_rate, make_optimiser
from workflow_src.training.runtime import Runtime
from workflow_src.training.state import StateFolder, pack_optimiser, pack_random, unpack_optimiser, unpack_random
from workflow_src.types import Batch, Objective, TrainingContext

log = logging.getLogger("continuum")

# Figures stay on the device for so many updates: reading one waits for everything queued before it.
COLLECT_EVERY = 20


@dataclasses.dataclass(frozen=True)
class Validation:
    """Figures on dev from a model, and which of them says which weights are best (larger is better)."""

    figures: Callable[[nn.Module], dict[str, float]]
    criterion: str


@dataclasses.dataclass
class Progress:
    """What a resumed training must know beside tensors."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    snapshots: int = 0


class Trainer:
    """Trains `model` for `config.max_steps` updates.

    `frozen` is handed to the objective. The same seed gives the same weights; so does a training that was killed and
    resumed (bit for bit on one CPU thread).
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: TrainingConfig,
        corpus: EncodedCorpus,
        validation: Validation,
        runtime: Runtime,
        states: StateFolder,
        seed: int,
        frozen: nn.Module | None = None,
        log_every: int = 100,
    ):
        self.model = model.to(runtime.device)
        self.frozen = frozen.to(runtime.device).eval().requires_grad_(False) if frozen is not None else None
        self.objective = objective
        self.config = config
        self.corpus = corpus
        self.validation = validation
        self.runtime = runtime
        self.states = states
        self.seed = seed
        self.log_every = log_every
        if runtime.compile:
            compile_stacks(self.model)
            if self.frozen is not None:
                compile_stacks(self.frozen)
        self.optimiser = make_optimiser(self.model, config)
        self.generator = runtime.generator(seed)
        self.progress = Progress()
        self.snapshots: list[dict[str, Tensor]] = []
        self.window: dict[str, list[float]] = {}
        self.pending: list[dict[str, Tensor | float]] = []

    def run(self) -> Progress:
        """Train to the end and leave the chosen weights in the model."""
        self._resume()
        progress, config = self.progress, self.config
        batches = self._batches()
        mark = (progress.target_tokens, progress.seconds)
        self.model.train()
        began = time.perf_counter()
        while progress.step < config.max_steps:
            self.pending.append(self._update([next(batches) for _ in range(config.accumulate)]))
            progress.step += 1
            last = progress.step == config.max_steps
            reports, validates, saves = (
                progress.step % every == 0 for every in (self.log_every, config.validate_every, config.save_every)
            )
            if not (reports or validates or saves or last or len(self.pending) == COLLECT_EVERY):
                continue
            self._collect()
            progress.seconds += time.perf_counter() - began
            if reports:
                mark = self._report(mark)
            if validates or last:
                self._validate()
            if saves or last:
                self._save()
            began = time.perf_counter()
        self._choose_weights()
        return progress

    def _batches(self) -> Iterator[Batch]:
        """Batches from where training stands; the position moves on as they are taken."""
        progress = self.progress
        size = max(1, self.config.batch_tokens // self.config.accumulate)
        while True:
            rows = epoch_batches(self.corpus, size, self.seed, progress.epoch)
            if not rows:
                raise ValueError(f"the training corpus {self.corpus.prefix} has no pairs; encode it again.")
            while progress.position < len(rows):
                batch = collate(self.corpus, rows[progress.position])
                progress.position += 1
                yield batch.to(self.runtime.device)
            progress.epoch += 1
            progress.position = 0

    def _update(self, batches: list[Batch]) -> dict[str, float]:
        """One update from the parts of one batch; each part counts as much as it has terms."""
        config, step = self.config, self.progress.step
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(config, step)
        context = TrainingContext(step, config.max_steps, self.generator, self.frozen)
        collected, counts = [], []
        for batch in batches:
            with self.runtime.autocast():
                terms = self.objective(self.model, batch, context)
            (terms.total * terms.count).backward()
            counts.append(terms.count)
            collected.append({"loss": terms.total.detach(), **terms.figures})
            self.progress.target_tokens += batch.num_target_tokens
        total = sum(counts)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_div_(gradients, total)
        norm = torch.nn.utils.get_total_norm(gradients)
        if config.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), config.clip_norm, norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        shares = [count / total for count in counts]
        figures = {
            name: sum(part[name] * share for part, share in zip(collected, shares, strict=True))
            for name in collected[0]
        }
        return figures | {"gradient_norm": norm}

    def _collect(self) -> None:
        """Read the figures of the last updates from the device. Raises ValueError when one is not finite.

        This happens before a state is saved: the last one is whole, and no retry would end otherwise.
        """
        first = self.progress.step - len(self.pending) + 1
        for number, figures in enumerate(self.pending, first):
            for name, value in figures.items():
                value = float(value)
                if name in ("loss", "gradient_norm") and not math.isfinite(value):
                    raise ValueError(
                        f"training diverged: the {name.replace('_', ' ')} of update {number} is {value}; lower "
                        f"training.learning_rate ({self.config.learning_rate}) or set training.clip_norm."
                    )
                self.window.setdefault(name, []).append(value)
        self.pending = []

    def _report(self, mark: tuple[int, float]) -> tuple[int, float]:
        progress = self.progress
        rate = (progress.target_tokens - mark[0]) / max(1e-9, progress.seconds - mark[1])
        left = (self.config.max_steps - progress.step) * progress.seconds / progress.step
        loss = float(np.mean(self.window["loss"][-self.log_every :])) if self.window else float("nan")
        log.info(
            "step %d/%d  loss %.3f  %.0f target tokens/s  %.1f minutes left",
            *(progress.step, self.config.max_steps, loss, rate, left / 60),
        )
        return progress.target_tokens, progress.seconds

    def _entry(self, figures: dict[str, float]) -> dict[str, Any]:
        progress = self.progress
        means = {name: float(np.mean(values)) for name, values in self.window.items()}
        return {
            "step": progress.step,
            "minutes": round(progress.seconds / 60, 3),
            "target_tokens": progress.target_tokens,
            "tokens_per_second": round(progress.target_tokens / max(1e-9, progress.seconds), 1),
            "learning_rate": learning_rate(self.config, max(0, progress.step - 1)),
            **means,
            **figures,
        }

    def _validate(self) -> None:
        figures = self._figures()
        self.progress.history.append(self._entry(figures))
        self.window = {}
        text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        log.info("step %d  validation: %s", self.progress.step, text)
        weights = {name: tensor.cpu().clone() for name, tensor in weights_of(self.model).items()}
        if self.config.keep == "average":
            self.snapshots = [*self.snapshots, weights][-self.config.average_last :]
        elif self.config.keep == "best":
            value = figures[self.validation.criterion]
            if self.progress.best is None or value > self.progress.best or math.isnan(self.progress.best):
                self.progress.best, self.snapshots = value, [weights]

    def _figures(self) -> dict[str, float]:
        self.model.eval()
        try:
            return self.validation.figures(self.model)
        finally:
            self.model.train()

    def _choose_weights(self) -> None:
        if not self.snapshots:
            self.model.eval()
            return
        count = len(self.snapshots)
        mean = {name: sum(s[name].double() for s in self.snapshots) / count for name in self.snapshots[0]}
        own = weights_of(self.model)
        set_weights(self.model, {name: tensor.to(own[name]) for name, tensor in mean.items()}, "chosen")
        if self.config.keep == "average" and count > 1:
            figures = self._figures()
            self.progress.history.append({**self._entry(figures), "averaged": count})
            log.info("average of the last %d: %s", count, "  ".join(f"{k} {v:.4g}" for k, v in figures.items()))
        self.model.eval()

    def _save(self) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in weights_of(self.model).items()}
        tensors |= pack_optimiser(self.optimiser) | pack_random(self.generator)
        for index, snapshot in enumerate(self.snapshots):
            tensors |= {f"snapshot.{index}.{name}": tensor for name, tensor in snapshot.items()}
        self.progress.snapshots = len(self.snapshots)
        self.states.save(self.progress.step, tensors, dataclasses.asdict(self.progress) | {"window": self.window})

    def _resume(self) -> None:
        found = self.states.load()
        if found is None:
            return
        tensors, values = found
        self.window = values.pop("window")
        self.progress = Progress(**values)
        set_weights(self.model, _below(tensors, "model."), self.states.folder)
        unpack_optimiser(self.optimiser, tensors)
        unpack_random(self.generator, tensors)
        self.snapshots = [_below(tensors, f"snapshot.{index}.") for index in range(self.progress.snapshots)]
        log.info("resumed at step %d from %s", self.progress.step, self.states.folder)


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
