"""Pairs with one side much longer than the other."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    max_words: float | None = Field(
        3.0, gt=1, description="words of the longer side for one of the other; characters, as `length` counts them"
    )
    max_characters: float | None = Field(
        3.0, gt=1, description="likewise; not where only one of the languages separates its words by spaces"
    )
    min_characters: int = Field(15, ge=0, description="pairs whose longer side has fewer are kept")


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return "leaves out nothing" if settings.max_words is settings.max_characters is None else None


FILTER = Filter(
    name="ratio",
    title="Length ratio",
    settings=Settings,
    check="workflow_src.data.filters.ratio.filter:check",
    conflict=conflict,
)
