"""Leaves out pairs with a side in which few characters are letters."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.data.filters.letters import Settings
from workflow_src.data.texts import each, letters, visible
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    share = settings.min_share

    def judge(pair: Pair) -> Verdict:
        for text in (pair.source, pair.target):
            if (count := letters(text)) < share * (characters := visible(text)):
                return f"min_share: {count} letters of {characters} characters"
        return None

    return each(judge)
