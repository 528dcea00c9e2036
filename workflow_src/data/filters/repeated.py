"""Leaves out pairs that came before, and pairs with a side that came often enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from workflow_src.data.characters import bare
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict

# Counts are kept in 16 bits.
MOST = 1 << 16


class Settings(Frozen):
    compare: Literal["exact", "near"] = Field(
        "near", description="near: by letters and digits alone, whatever their case and what stands between them"
    )
    pairs: int | None = Field(1, gt=0, lt=MOST, description="how often a pair is kept; null: always")
    source: int | None = Field(None, gt=0, lt=MOST, description="in how many pairs a source is kept; null: in all")
    target: int | None = Field(None, gt=0, lt=MOST, description="in how many pairs a target is kept; null: in all")


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return "leaves out nothing" if settings.pairs is settings.source is settings.target is None else None


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    import numpy as np

    from workflow_src.data.groups import Counts, hashes

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


FILTER = Filter(name="repeated", title="Repeated", settings=Settings, check=check, conflict=conflict, looks_back=True)
