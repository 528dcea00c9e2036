"""Pairs with different numbers on their sides."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    min_share: float = Field(1.0, ge=0, le=1, description="of the numbers of the side with more of them")
    written_out: int = Field(
        20, ge=0, description="numbers up to this one need not be on the other side, where they may be words"
    )


FILTER = Filter(
    name="numbers", title="Numbers", settings=Settings, check="workflow_src.data.filters.numbers.filter:check"
)
