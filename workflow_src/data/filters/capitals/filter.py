"""Leaves out pairs with a side in capitals, in scripts that have them."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.data.filters.capitals import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    most, least = settings.max_share, settings.min_letters

    def is_capitals(text: str) -> bool:
        capitals = sum(map(str.isupper, text))
        return capitals > 0 and (count := capitals + sum(map(str.islower, text))) >= least and capitals > most * count

    return each(lambda pair: "max_share" if is_capitals(pair.source) or is_capitals(pair.target) else None)
