"""Pairs with a side in capitals, as titles are."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    max_share: float = Field(0.8, ge=0, le=1, description="of a side's letters")
    min_letters: int = Field(10, gt=0, description="sides with fewer, such as abbreviations, are kept")


FILTER = Filter(
    name="capitals",
    title="Capitals",
    settings=Settings,
    check="workflow_src.data.filters.capitals.filter:check",
    each_side=True,
)
