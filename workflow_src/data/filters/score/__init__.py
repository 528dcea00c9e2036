"""Pairs by their score, a column of the corpus."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import SCORES, Filter, Frozen


class Settings(Frozen):
    minimum: float | None = Field(None, description="pairs with a lower score are left out")
    maximum: float | None = Field(None, description="pairs with a higher score are left out")
    missing: bool = Field(True, description="keep pairs without a score, which come from parts without score_column")


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return "leaves out nothing" if settings.minimum is settings.maximum is None and settings.missing else None


FILTER = Filter(
    name="score",
    title="Score",
    settings=Settings,
    check="workflow_src.data.filters.score.filter:check",
    needs=(SCORES,),
    conflict=conflict,
)
