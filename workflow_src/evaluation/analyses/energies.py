"""Energies of outputs, -log p(y|x) under a system that scores (Tu et al. 2020, section 3), whoever made them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from workflow_src.data.batching import pad
from workflow_src.decoding.ranking import Rescorer
from workflow_src.evaluation.analyses.errors import standard_error


@torch.no_grad()
def energies(
    scorer: Rescorer, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], batch: int, device: Any
) -> list[float | None]:
    """-log p(y|x) in nats of an output for each source (subword ids without end symbols), ends counted.

    None where the system cannot tell: an empty source, a sequence longer than its positions, an impossible output.
    `batch` sentences are scored together, which changes nothing.
    """
    limit = scorer.config.max_positions - 1
    able = [i for i, source in enumerate(sources) if source and max(len(source), len(outputs[i])) <= limit]
    able.sort(key=lambda i: (len(outputs[i]), len(sources[i])))
    found: list[float | None] = [None] * len(sources)
    for start in range(0, len(able), batch):
        rows = able[start : start + batch]
        states = scorer.scoring_states(pad([sources[i] for i in rows], eos=True).to(device))
        target = pad([outputs[i] for i in rows], eos=False).to(device)
        for i, value in zip(rows, scorer.log_probability(states, target).tolist(), strict=True):
            found[i] = -value if math.isfinite(value) else None
    return found


def summary(values: Sequence[float | None], outputs: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Means over what could be scored: `per_sentence` with its standard error, and `per_token`, ends counted.

    `unscored` is the number of sentences left out; where nothing is left, means are None.
    """
    scored = [(value, len(output) + 1) for value, output in zip(values, outputs, strict=True) if value is not None]
    told: dict[str, Any] = {"sentences": len(scored), "unscored": len(values) - len(scored)}
    if not scored:
        return told | {"per_sentence": None, "error": None, "per_token": None}
    total, tokens = sum(value for value, _ in scored), sum(count for _, count in scored)
    error = standard_error([value for value, _ in scored])
    return told | {"per_sentence": total / len(scored), "error": error, "per_token": total / tokens}


def under(
    scorers: Mapping[str, Any], sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], batch: int
) -> dict[str, Any]:
    """The `summary` of outputs under the first of `scorers`, translators by name; in `others` that under each other.

    Where one scores there are no `others`.
    """
    told = {
        name: summary(energies(one.network, sources, outputs, batch, one.runtime.device), outputs)
        for name, one in scorers.items()
    }
    first, *rest = told
    return told[first] | ({"others": {name: told[name] for name in rest}} if rest else {})
