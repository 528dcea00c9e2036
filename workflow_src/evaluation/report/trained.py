"""The trained systems of an experiment: what identifies each, and their table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.config import texts
from workflow_src.config.resolved import System
from workflow_src.evaluation.charts import finite, is_curve
from workflow_src.evaluation.document import Caption, Cell, Table, table_of
from workflow_src.evaluation.report import progress
from workflow_src.evaluation.report.carried import count
from workflow_src.evaluation.report.files import TrainingSummary

# Figures of the last validation in the table of systems, with their titles.
VALIDATED = {
    "dev_bleu": "BLEU",
    "dev_bleu_posterior": "BLEU from the posterior",
    "dev_bleu_carried": "BLEU that latents carry",
    "dev_kl": "KL",
    "dev_length_accuracy": "lengths right",
    "dev_cosine": "cosine",
    "dev_cosine_noise0": "cosine at noise 0",
}
# Targets that a system cannot output, as shares of training pairs and of dev.
UNREACHABLE = "unreachable targets, % of train / dev"


@dataclasses.dataclass(frozen=True)
class Training:
    """A training of a system with a seed: its `config` and the entries of its training.jsonl."""

    system: System
    seed: int
    config: TrainingSummary
    entries: Sequence[Mapping[str, Any]]

    @property
    def data(self) -> str:
        """Its training texts with their weights."""
        return texts.words(self.system.learnt_data) + (" (reversed)" if self.system.reversed else "")

    @property
    def loss_title(self) -> str:
        """The title of the panel of its training loss."""
        return self.system.family.loss_title(self.system.objective)

    def points(self, key: str) -> list[tuple[float, float]]:
        """Updates, and a figure of validation or training."""
        return finite((entry["step"], entry.get(key)) for entry in self.entries)

    def has_curve(self, key: str) -> bool:
        """Whether a figure was logged at several updates and was not zero throughout."""
        points = self.points(key)
        return is_curve(points) and any(value for _, value in points)

    @property
    def cells(self) -> dict[str, str | Cell]:
        """Its cells in the table of systems."""
        config, sizes = self.config, self.config.sizes or {}
        sides = ("target",) if sizes.get("joint") or "source" not in sizes else ("source", "target")
        return {
            "system": self.system.name,
            "family": self.system.family.name,
            "preset": self.system.preset,
            "data": self.data,
            "seed": str(self.seed),
            "subwords": " / ".join(count(sizes.get(side)) for side in sides),
            "parameters": count(config.parameters),
            "updates": count(config.steps),
            "target tokens seen": count(config.target_tokens_seen),
            "minutes": "" if config.minutes is None else f"{config.minutes:.1f}",
            UNREACHABLE: self._unreachable,
            "still improving (BLEU)": Cell(progress.gain_words(self.entries), kind="words"),
            "last validation on dev": Cell(self._last_validation or "–", kind="last"),
        }

    @property
    def _unreachable(self) -> str:
        shares = [
            next((f"{100 * entry[name]:.2f}" for entry in reversed(self.entries) if name in entry), "")
            for name in ("unreachable", "dev_unreachable")
        ]
        return " / ".join(share or "–" for share in shares) if any(shares) else ""

    @property
    def _last_validation(self) -> str:
        last = self.entries[-1] if self.entries else {}
        return ", ".join(f"{title} {last[key]:.4g}" for key, title in VALIDATED.items() if last.get(key) is not None)


def table(trainings: Sequence[Training]) -> Table:
    """The table of systems."""
    caption = Caption("", {"Still improving": progress.RULE})
    words = ("system", "family", "preset", "data")
    return table_of([training.cells for training in trainings], words, caption=caption, look="plain systems", wide=True)
