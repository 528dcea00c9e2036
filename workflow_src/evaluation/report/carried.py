"""Text in the captions of all tables: the data and their checksum, the seeds, and the training of systems.

Systems are those of results.json, one for each system and seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

from workflow_src.evaluation.manifest import network_families
from workflow_src.evaluation.report.results import Row
from workflow_src.evaluation.report.trained import TrainedSystem

SYSTEMS = "The table of systems has their parameters, updates, target tokens seen and training data."


def checksum(sums: dict[str, str] | None) -> str | None:
    """One SHA-256 for a corpus: that of the output of `sha256sum` for its files, sorted by name; None without files."""
    if not sums:
        return None
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()).hexdigest()


def data(dataset: str, sums: dict[str, str] | None, seeds: Iterable[int]) -> str:
    """Dataset, the first digits of its checksum, and seeds."""
    digest = checksum(sums)
    distinct_seeds = sorted(set(seeds))
    named = f"{dataset}, SHA-256 {digest[:12]}…" if digest else f"{dataset}, checksum unknown"
    return f"{named}; seed{'s' * (len(distinct_seeds) > 1)} {', '.join(map(str, distinct_seeds))}."


def first_seeds(systems: Sequence[TrainedSystem], names: Collection[str]) -> list[TrainedSystem]:
    """The systems of `names`, each once, with its first seed."""
    by_name: dict[str, TrainedSystem] = {}
    for system in systems:
        if system.system in names:
            by_name.setdefault(system.system, system)
    return list(by_name.values())


def training(systems: Sequence[TrainedSystem], names: Collection[str]) -> str:
    """Updates and target tokens of the systems of `names`, with their first seeds."""
    words = "; ".join(system.trained_words for system in first_seeds(systems, names))
    return f"Trained{_whose(systems, names)}: {words}." if words else ""


def unequal(systems: Sequence[TrainedSystem], names: Collection[str]) -> str:
    """A sentence where the networks of `names` differ in their updates, or in target tokens by over 5 %; else empty."""
    families = network_families()
    networks = [system for system in first_seeds(systems, names) if system.family in families]
    token_counts = [system.target_tokens for system in networks if system.target_tokens is not None]
    unlike = bool(token_counts) and max(token_counts) > 1.05 * min(token_counts)
    if len({system.updates for system in networks}) < 2 and not unlike:
        return ""
    words = "; ".join(system.trained_words for system in networks)
    return f"Networks were not trained equally long{_whose(systems, names)}: {words}."


def _whose(systems: Sequence[TrainedSystem], names: Collection[str]) -> str:
    """Words for figures of `first_seeds` where some system has several seeds."""
    counted = [system.system for system in systems if system.system in names]
    return " (figures of the first seed)" if len(set(counted)) < len(counted) else ""


def notes(systems: Sequence[TrainedSystem], rows: Sequence[Row]) -> dict[str, str]:
    """Notes on the systems for every table of a report with `rows` of results.json."""
    unlike = unequal(systems, {row.system for row in rows})
    return {"Systems": " ".join(filter(None, [SYSTEMS, unlike]))}
