"""Takes out control characters and characters of no width, or leaves out pairs that have some."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workflow_src.data.characters import CONTROL, INVISIBLE, each
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    action: Literal["repair", "drop"] = Field("repair", description="repair: take them out; drop: leave out such pairs")


def visible(text: str) -> str:
    """Text without control characters, which separate words, and without characters of no width."""
    return text if text.isprintable() else INVISIBLE.sub("", CONTROL.sub(" ", text)).strip()


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    drop = settings.action == "drop"

    def judge(pair: Pair) -> Verdict:
        source, target, score = pair
        if source.isprintable() and target.isprintable():
            return None
        repaired = Pair(visible(source), visible(target), score)
        if repaired == pair:
            return None
        return "action" if drop else repaired

    return each(judge)


FILTER = Filter(name="invisible", title="Invisible characters", settings=Settings, check=check, each_side=True)
