"""Takes out control characters and characters of no width, or leaves out pairs that have some."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.data.filters.invisible import Settings
from workflow_src.data.normalise import CONTROL, INVISIBLE
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict


def visible(text: str) -> str:
    """Text without control characters, which separate words, and without characters of no width."""
    return text if text.isprintable() else INVISIBLE.sub("", CONTROL.sub(" ", text)).strip()


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
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
