"""Reports of a training: its pace in the log, its figures in the history, and warnings of faults."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from workflow_src.errors import InputError
from workflow_src.training.means import Numbers, divided
from workflow_src.training.state import Progress
from workflow_src.training.update import Part, Task, describe, learning_rate

log = logging.getLogger("continuum")

# Updates that may be skipped in all: max_skipped, and one in so many.
UPDATES_A_SKIP = 20
# Share of the time below which the main thread of a training waits for a core.
BUSY = 0.5
# Seconds between two reports that this share is measured over, at least.
PACE_SECONDS = 2.0
# Figures of families with the share of targets that a model cannot output, by name, and the pairs that they are of.
UNREACHABLE = {"unreachable": "training pairs", "dev_unreachable": "dev pairs"}


class Reporter:
    """Reports of one training. Its methods change neither the progress nor the weights."""

    def __init__(self, task: Task):
        self.task = task
        # Updates, target tokens and seconds at the last report.
        self._mark = (0, 0, 0.0)
        # Seconds that the main thread had computed at the last report.
        self._cpu_seconds = 0.0
        self._warned_of_cores = False
        # Figures of UNREACHABLE that the log has warned of.
        self._warned: set[str] = set()

    def begin(self, progress: Progress) -> None:
        """Start the time that the first pace is measured over."""
        self._mark = _mark(progress)
        self._cpu_seconds = time.thread_time()

    def pace(self, progress: Progress, losses: Sequence[Numbers]) -> None:
        """Log the pace since the last report, and the mean of the losses since then.

        The time left follows from this pace, since earlier updates may be of another machine.
        """
        mark = _mark(progress)
        steps, tokens, seconds = (now - then for now, then in zip(mark, self._mark, strict=True))
        self._mark = mark
        log.info(
            "step %d/%d  loss %.3f  %.0f target tokens/s  %.1f minutes left",
            progress.step,
            self.task.max_steps,
            divided(losses) if losses else float("nan"),
            tokens / max(1e-9, seconds),
            (self.task.max_steps - progress.step) * seconds / steps / 60,
        )
        self._warn_of_busy_cores(seconds)

    def _warn_of_busy_cores(self, seconds: float) -> None:
        """Warn once where the main thread waits for a core of the CPU more than it computes.

        Its time alone counts: the other threads also wait where small networks leave them nothing to do.
        """
        earlier = self._cpu_seconds
        self._cpu_seconds = time.thread_time()
        # Validations add to the seconds of the CPU alone, so that they raise the share.
        share = (self._cpu_seconds - earlier) / max(1e-9, seconds)
        on_cpu = self.task.group.first and self.task.runtime.device.type == "cpu"
        if on_cpu and seconds >= PACE_SECONDS and share < BUSY and not self._warned_of_cores:
            self._warned_of_cores = True
            log.warning(
                "warning: training waits for the CPU: it computes %.0f %% of the time, because other processes want "
                "the same cores; run fewer jobs side by side%s",
                100 * share,
                ", or set runtime.training_threads: 1" if torch.get_num_threads() > 1 else "",
            )

    def skipped(
        self, progress: Progress, number: int, parts: list[Part], figures: Mapping[str, Numbers], saved: int
    ) -> None:
        """Warn of an update that was skipped; `saved` is the update of the last saved state, or 0.

        Raises InputError when too many were skipped.
        """
        config = self.task.config
        loss, norm = (divided([figures[name]]) for name in ("loss", "gradient_norm"))
        measured = f"loss {loss:.4g}, gradient norm {norm:.4g}"
        batch = describe(parts)
        if self.task.group.first:
            log.warning("warning: update %d was skipped (%s): %s", number, measured, batch)
        too_many = progress.skipped > config.max_skipped + number // UPDATES_A_SKIP
        if progress.skipped_in_row > config.max_skipped or too_many:
            total = f"{progress.skipped_in_row} in a row, {progress.skipped} in all"
            state = f"The state of update {saved} is untouched" if saved else "No state was saved before"
            raise InputError(
                "training",
                f"diverged: update {number} had {measured} ({batch} of {self.task.corpus.prefix}), and {total} were "
                "skipped",
                f"lower training.learning_rate ({config.learning_rate}), set or lower training.clip_norm "
                f"({config.clip_norm}) or look at these sentences; training.max_skipped is "
                f"{config.max_skipped}. {state}",
            )

    def entry(
        self, progress: Progress, window: Mapping[str, list[Numbers]], figures: Mapping[str, float]
    ) -> dict[str, Any]:
        """The entry of a validation in the history: its figures, and means of those of the updates before it."""
        means = {name: divided(of_updates) for name, of_updates in window.items()}
        return {
            "step": progress.step,
            "minutes": round(progress.seconds / 60, 3),
            "target_tokens": progress.target_tokens,
            "tokens_per_second": round(progress.target_tokens / max(1e-9, progress.seconds), 1),
            "learning_rate": learning_rate(self.task.config, max(0, progress.step - 1)),
            "skipped": progress.skipped,
            **means,
            **figures,
        }

    def warn_of_unreachable(self, entry: Mapping[str, Any]) -> None:
        """Warn once of training pairs and once of dev pairs whose targets the model can never output."""
        for name, pairs in UNREACHABLE.items():
            share = entry.get(name, 0.0)
            if share > 0 and name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "warning: %.3g %% of the %s cannot be reached: their targets are longer than what the model can "
                    "put out for their sources; see docs/methods.md on %s",
                    100 * share,
                    pairs,
                    name,
                )


def _mark(progress: Progress) -> tuple[int, int, float]:
    """Updates, target tokens and seconds so far."""
    return progress.step, progress.target_tokens, progress.seconds
