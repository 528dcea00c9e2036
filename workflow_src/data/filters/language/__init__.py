"""Pairs with a side in another language."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    min_probability: float = Field(0.1, gt=0, lt=1, description="of a side's language, among those that are compared")
    min_letters: int = Field(20, ge=0, description="sides with fewer, tags left out, are kept: too little to tell by")
    others: tuple[str, ...] | None = Field(
        None, description="languages that both are compared with; default: each other, and those near to the two"
    )


FILTER = Filter(
    name="language", title="Language", settings=Settings, check="workflow_src.data.filters.language.filter:check"
)
