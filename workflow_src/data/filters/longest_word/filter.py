"""Leaves out pairs with a very long word, in languages that separate words by spaces."""

from __future__ import annotations

import re
from collections.abc import Callable

from workflow_src.config.languages import spaced
from workflow_src.data.filters.longest_word import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict

ADDRESS = re.compile(r"://|www\.|@")


def check(settings: Settings, languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    most = settings.max_characters
    judged = tuple(map(spaced, languages))

    def too_long(text: str) -> str | None:
        """The first word that is too long."""
        if len(text) <= most:
            return None
        return next((word for word in text.split() if len(word) > most and not ADDRESS.search(word)), None)

    def judge(pair: Pair) -> Verdict:
        word = (judged[0] and too_long(pair.source)) or (judged[1] and too_long(pair.target))
        return f"max_characters: {word}" if word else None

    return each(judge)
