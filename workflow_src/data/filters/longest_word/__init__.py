"""Pairs with a word that is too long to be one."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    max_characters: int = Field(40, gt=0, description="web addresses may be longer")


FILTER = Filter(
    name="longest_word",
    title="Longest word",
    settings=Settings,
    check="workflow_src.data.filters.longest_word.filter:check",
    each_side=True,
)
