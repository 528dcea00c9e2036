"""Leaves out pairs by their score."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.data.filters.score import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    least, most, missing = settings.minimum, settings.maximum, settings.missing

    def judge(pair: Pair) -> Verdict:
        score = pair.score
        if score is None:
            return None if missing else "missing"
        if least is not None and not score >= least:
            return f"minimum: {score:g}"
        return f"maximum: {score:g}" if most is not None and not score <= most else None

    return each(judge)
