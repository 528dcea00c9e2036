"""Repeated pairs, and pairs with a repeated side."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workflow_src.spec import Filter, Frozen

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


FILTER = Filter(
    name="repeated",
    title="Repeated",
    settings=Settings,
    check="workflow_src.data.filters.repeated.filter:check",
    conflict=conflict,
    looks_back=True,
)
