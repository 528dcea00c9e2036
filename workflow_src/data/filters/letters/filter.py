"""Leaves out pairs with a side in which few characters are letters."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.data.filters.letters import Settings
from workflow_src.data.texts import each, letters, visible
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    share = settings.min_share

    def lacks_letters(text: str) -> bool:
        return letters(text) < share * visible(text)

    return each(lambda pair: "min_share" if lacks_letters(pair.source) or lacks_letters(pair.target) else None)
