"""Leaves out pairs that came before, and pairs with a side that came often enough."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workflow_src.data.filters.repeated import Settings
from workflow_src.data.repeats import Counts, hashes
from workflow_src.data.splits import bare
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    form: Callable[[str], str] = bare if settings.compare == "near" else str
    limits = {name: limit for name in ("pairs", "source", "target") if (limit := getattr(settings, name)) is not None}
    counts = {name: Counts() for name in limits}

    def judge(pairs: list[Pair]) -> list[Verdict]:
        sides = {
            "source": hashes([form(pair.source) for pair in pairs]),
            "target": hashes([form(pair.target) for pair in pairs]),
        }
        # Turned, so that a pair and the same pair the other way round differ.
        keys = sides | {"pairs": sides["source"] * np.uint64(0x9E3779B97F4A7C15) ^ sides["target"]}
        verdicts: list[Verdict] = [None] * len(pairs)
        remaining = np.arange(len(pairs))
        for name, limit in limits.items():
            over_limit = counts[name].add(keys[name][remaining], limit)
            for number in remaining[over_limit]:
                verdicts[number] = name
            remaining = remaining[~over_limit]
        return verdicts

    return judge
