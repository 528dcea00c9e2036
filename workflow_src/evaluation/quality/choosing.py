"""Choosing settings on dev: every combination is tried, the highest BLEU wins, ties go to the one listed first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any


def combinations(tune: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """All combinations of the listed values, the last setting varying fastest."""
    return [dict(zip(tune, chosen, strict=True)) for chosen in itertools.product(*tune.values())]


def choose(
    tune: dict[str, list[Any]], measure: Callable[[dict[str, Any]], dict[str, float]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The combination with the highest `measure(...)["bleu"]`, and the whole curve in the order tried."""
    curve = [{"settings": settings} | measure(settings) for settings in combinations(tune)]
    best = max(curve, key=lambda point: point["bleu"])
    return best["settings"], curve
