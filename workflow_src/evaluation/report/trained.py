"""The trained systems of an experiment: what identifies each, and their table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.config import texts
from workflow_src.config.resolved import System
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
class TrainedSystem:
    """One system and seed, with its training texts (`data`); counts are None where they are unknown. `entry` has its
    cells in the table of systems."""

    system: str
    seed: int
    data: str
    parameters: int | None = None
    updates: int | None = None
    target_tokens: int | None = None
    minutes: float | None = None
    entry: Mapping[str, str | Cell] = dataclasses.field(default_factory=dict)


def describe_system(
    system: System, seed: int, config: TrainingSummary, history: Sequence[Mapping[str, Any]]
) -> TrainedSystem:
    """A trained system from its `config` and the entries of its training.jsonl."""
    data = texts.words(system.learnt_data) + (" (reversed)" if system.reversed else "")
    sizes, last_entry = config.sizes or {}, history[-1] if history else {}
    sides = ("target",) if sizes.get("joint") or "source" not in sizes else ("source", "target")
    unreachable = [
        next((f"{100 * entry[name]:.2f}" for entry in reversed(history) if name in entry), "")
        for name in ("unreachable", "dev_unreachable")
    ]
    validated = [
        f"{title} {last_entry[key]:.4g}" for key, title in VALIDATED.items() if last_entry.get(key) is not None
    ]
    entry: dict[str, str | Cell] = {
        "system": system.name,
        "family": system.family.name,
        "preset": system.preset,
        "data": data,
        "seed": str(seed),
        "subwords": " / ".join(count(sizes.get(side)) for side in sides),
        "parameters": count(config.parameters),
        "updates": count(config.steps),
        "target tokens seen": count(config.target_tokens_seen),
        "minutes": "" if config.minutes is None else f"{config.minutes:.1f}",
        UNREACHABLE: " / ".join(share or "–" for share in unreachable) if any(unreachable) else "",
        "still improving (BLEU)": Cell(progress.gain_words(history), kind="words"),
        "last validation on dev": Cell(", ".join(validated) or "–", kind="last"),
    }
    return TrainedSystem(
        system.name,
        seed,
        data,
        config.parameters,
        config.steps,
        config.target_tokens_seen,
        config.minutes,
        entry,
    )


def table(systems: Sequence[TrainedSystem]) -> Table:
    """The table of systems."""
    caption = Caption("", {"Still improving": progress.RULE})
    words = ("system", "family", "preset", "data")
    return table_of([system.entry for system in systems], words, caption=caption, look="plain systems", wide=True)
