"""Changes by refinement: edit distance from the first output, and repetitions (Lee et al. 2020, section 5.3)."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein

from workflow_src.evaluation.analyses.inputs import Inputs, inspected_steps, standard_error
from workflow_src.evaluation.analyses.networks import entry_settings, traces_of
from workflow_src.evaluation.analyses.tokens import TokensSettings

Outputs = Sequence[Sequence[int]]


def measure(inputs: Inputs, settings: TokensSettings) -> dict[str, Any]:
    lines, steps = inputs.sentences(settings.sentences).sources, inspected_steps(settings.steps)
    rows: list[dict[str, Any]] = []
    for entry in inputs.searches:
        search, translator = entry_settings(entry, steps[-1]), inputs.translator(entry["system"])
        traces = traces_of(translator, lines, search)
        rows += [entry | compare(traces[0], traces[step], step) for step in steps]
    return {"sentences": len(lines), "rows": rows}


def repetitions(tokens: Sequence[int]) -> int:
    """Positions that hold the same subword as the one before."""
    return sum(now == before for before, now in itertools.pairwise(tokens))


def compare(first: Outputs, refined: Outputs, steps: int) -> dict[str, Any]:
    """Figures of `refined` outputs, after `steps` steps, against the `first` ones: means over sentences."""
    distances = [Levenshtein.distance(a, b) for a, b in zip(first, refined, strict=True)]
    before, after = [repetitions(a) for a in first], [repetitions(b) for b in refined]
    ratio, error = _ratio(before, after)
    return {
        "steps": steps,
        "edit_distance": statistics.fmean(distances),
        "edit_distance_error": standard_error(distances),
        "changed": sum(map(bool, distances)) / len(distances),
        "repetitions": statistics.fmean(after),
        "relative_repetitions": ratio,
        "relative_repetitions_error": error,
    }


def _ratio(denominators: Sequence[int], numerators: Sequence[int]) -> tuple[float | None, float | None]:
    """The ratio of two paired totals, and its standard error over sentences (the usual estimator of ratios)."""
    total, count = sum(denominators), len(denominators)
    if not total:
        return None, None
    ratio = sum(numerators) / total
    residuals = sum((a - ratio * b) ** 2 for a, b in zip(numerators, denominators, strict=True))
    return ratio, math.sqrt(count / max(1, count - 1) * residuals) / total
