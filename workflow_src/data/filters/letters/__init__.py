"""Pairs with a side of symbols and digits."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    min_share: float = Field(0.5, ge=0, le=1, description="of the visible characters of each side")


FILTER = Filter(
    name="letters",
    title="Share of letters",
    settings=Settings,
    check="workflow_src.data.filters.letters.filter:check",
    each_side=True,
)
