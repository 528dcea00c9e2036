"""Means of figures over parts of a batch, updates of a training or batches of dev.

Sums and counts are added up before they are divided, so that it does not matter how sentences are cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workflow_src.types import Mean

# A mean whose sum and count are on the CPU.
Numbers = tuple[float, float]


def added(means: Iterable[Mean]) -> Mean:
    """The mean over everything that at least one mean is over."""
    sums, counts = zip(*means, strict=True)
    return sum(sums), sum(counts)


def read(means: Mapping[str, Mean]) -> dict[str, Numbers]:
    """Sums and counts as numbers. The CPU waits for those that are on a GPU."""
    return {name: (float(total), float(count)) for name, (total, count) in means.items()}


def divided(means: Iterable[Numbers]) -> float:
    """The value of the mean over everything that at least one mean is over. A mean of nothing is 0."""
    sums, counts = zip(*means, strict=True)
    return sum(sums) / sum(counts) if any(counts) else 0.0
