"""Leaves out pairs with a side in capitals, in scripts that have them."""

from __future__ import annotations

from pydantic import Field

from workflow_src.data.characters import each
from workflow_src.spec import Check, Filter, Frozen


class Settings(Frozen):
    max_share: float = Field(0.8, ge=0, lt=1, description="of a side's letters")
    min_letters: int = Field(10, gt=0, description="sides with fewer, such as abbreviations, are kept")


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    most, least = settings.max_share, settings.min_letters

    def is_capitals(text: str) -> bool:
        capitals = sum(map(str.isupper, text))
        return capitals > 0 and (count := capitals + sum(map(str.islower, text))) >= least and capitals > most * count

    return each(lambda pair: "max_share" if is_capitals(pair.source) or is_capitals(pair.target) else None)


FILTER = Filter(name="capitals", title="Capitals", settings=Settings, check=check, each_side=True)
