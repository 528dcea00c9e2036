"""Descriptions of trained systems: with their figures, and as cells of the table of systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from workflow_src.config import texts
from workflow_src.config.resolved import System
from workflow_src.evaluation.document import Cell, Table
from workflow_src.evaluation.report import progress
from workflow_src.records.checked import Strict

Count = Annotated[int, Field(ge=0)]
# The column of the table of systems: targets that a system cannot output, as shares of training pairs and of dev.
UNREACHABLE = "unreachable targets, % of train / dev"
# Number of columns of words in the table of systems; figures follow.
WORDS = 4
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


class TrainedSystem(Strict):
    """One system and seed. Values that are unknown or do not apply are null."""

    system: str = Field(min_length=1)
    family: str = Field(min_length=1)
    preset: str = Field(min_length=1)
    data: str = Field(min_length=1, description="training texts, with weights other than 1")
    seed: int
    source_subwords: Count | None
    target_subwords: Count | None
    joint_subwords: bool | None = Field(description="both languages share their subwords")
    parameters: Count | None
    updates: Count | None
    target_tokens: Count | None = Field(description="seen in training")
    minutes: Annotated[float, Field(ge=0)] | None
    last_gain: float | None = Field(description="gain in BLEU on dev of the last fifth of the updates")
    best_dev_bleu: float | None = Field(description="the best BLEU on dev of the validations")
    unreachable: Annotated[float, Field(ge=0, le=1)] | None = Field(
        description="share of training targets that it cannot output"
    )
    dev_unreachable: Annotated[float, Field(ge=0, le=1)] | None
    last_validation: dict[str, float]

    @property
    def trained_words(self) -> str:
        return f"{self.system} {_count(self.updates)} updates, {_count(self.target_tokens)} target tokens"

    def cells(self) -> dict[str, str]:
        """Cells of the table of systems by the headings of their columns."""
        cells = {
            "system": self.system,
            "family": self.family,
            "preset": self.preset,
            "data": self.data,
            "seed": str(self.seed),
            "subwords": self._subwords(),
            "parameters": _count(self.parameters),
            "updates": _count(self.updates),
            "target tokens seen": _count(self.target_tokens),
            "minutes": "–" if self.minutes is None else f"{self.minutes:.1f}",
            "still improving": progress.gain_words(self.last_gain, self.best_dev_bleu),
            "last validation": ", ".join(f"{VALIDATED[key]} {value:.4g}" for key, value in self.last_validation.items())
            or "–",
        }
        if self.unreachable is None or self.dev_unreachable is None:
            return cells
        return cells | {UNREACHABLE: f"{100 * self.unreachable:.2f} / {100 * self.dev_unreachable:.2f}"}

    def _subwords(self) -> str:
        """Subwords of the system: one number where both languages share them."""
        if self.joint_subwords or self.source_subwords is None:
            return _count(self.target_subwords)
        return f"{_count(self.source_subwords)} / {_count(self.target_subwords)}"


def describe_system(
    system: System, seed: int, config: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> TrainedSystem:
    """A trained system from its config.json and the entries of its training.jsonl."""
    sizes = config.get("sizes") or {}
    last_entry = history[-1] if history else {}
    reached = {name: entry[name] for entry in history for name in ("unreachable", "dev_unreachable") if name in entry}
    return TrainedSystem(
        system=system.name,
        family=system.family.name,
        preset=system.preset,
        data=texts.words(system.learnt_data) + (" (reversed)" if system.reversed else ""),
        seed=seed,
        source_subwords=sizes.get("source"),
        target_subwords=sizes.get("target"),
        joint_subwords=sizes.get("joint"),
        parameters=config.get("parameters"),
        updates=config.get("steps"),
        target_tokens=config.get("target_tokens_seen"),
        minutes=config.get("minutes"),
        last_gain=progress.last_gain(history),
        best_dev_bleu=progress.best_bleu(history),
        unreachable=reached.get("unreachable"),
        dev_unreachable=reached.get("dev_unreachable"),
        last_validation={key: last_entry[key] for key in VALIDATED if last_entry.get(key) is not None},
    )


def table(systems: Sequence[TrainedSystem]) -> Table:
    """The table of systems; the column of unreachable targets is there where some system has them."""
    lines = [system.cells() for system in systems]
    heads = ["system", "family", "preset", "data", "seed", "subwords", "parameters", "updates", "target tokens seen"]
    heads += ["minutes", *([UNREACHABLE] if any(UNREACHABLE in line for line in lines) else [])]
    rows: list[list[str | Cell]] = [
        [
            *(line.get(head, "–") for head in heads),
            Cell(line["still improving"], kind="words"),
            Cell(line["last validation"], kind="last"),
        ]
        for line in lines
    ]
    heads += ["still improving (BLEU)", "last validation on dev"]
    return Table(heads, rows, left=WORDS, look="plain systems", wide=True)


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
