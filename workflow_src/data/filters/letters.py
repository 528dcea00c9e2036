"""Leaves out pairs with a side in which few characters are letters."""

from __future__ import annotations

from pydantic import Field

from workflow_src.data.characters import each, letters, visible
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    min_share: float = Field(0.5, gt=0, le=1, description="of the visible characters of each side")


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    share = settings.min_share

    def judge(pair: Pair) -> Verdict:
        for text in (pair.source, pair.target):
            if (count := letters(text)) < share * (characters := visible(text)):
                return f"min_share: {count} letters of {characters} characters"
        return None

    return each(judge)


FILTER = Filter(name="letters", title="Share of letters", settings=Settings, check=check, each_side=True)
