"""Choosing settings on dev: every combination is tried, the highest BLEU wins, ties go to the one listed first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

WHOLE_NUMBERS = ("lengths", "samples")


def combinations(tune: dict[str, list[float]]) -> list[dict[str, Any]]:
    """All combinations of the listed values, the last setting varying fastest."""
    values = [[int(v) if name in WHOLE_NUMBERS else v for v in listed] for name, listed in tune.items()]
    return [dict(zip(tune, chosen, strict=True)) for chosen in itertools.product(*values)]


def choose(
    tune: dict[str, list[float]], measure: Callable[[dict[str, Any]], dict[str, float]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The combination with the highest `measure(...)["bleu"]`, and the whole curve in the order tried."""
    curve = [{"settings": settings} | measure(settings) for settings in combinations(tune)]
    best = max(curve, key=lambda point: point["bleu"])
    return best["settings"], curve
