"""Leaves out pairs by their score."""

from __future__ import annotations

from pydantic import Field

from workflow_src.data.characters import each
from workflow_src.spec import SCORES, Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    minimum: float | None = Field(None, description="pairs with a lower score are left out")
    maximum: float | None = Field(None, description="pairs with a higher score are left out")
    missing: bool = Field(True, description="keep pairs without a score, which come from parts without score_column")


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return "leaves out nothing" if settings.minimum is settings.maximum is None and settings.missing else None


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    least, most, missing = settings.minimum, settings.maximum, settings.missing

    def judge(pair: Pair) -> Verdict:
        score = pair.score
        if score is None:
            return None if missing else "missing"
        if least is not None and not score >= least:
            return f"minimum: {score:g}"
        return f"maximum: {score:g}" if most is not None and not score <= most else None

    return each(judge)


FILTER = Filter(name="score", title="Score", settings=Settings, check=check, needs=(SCORES,), conflict=conflict)
