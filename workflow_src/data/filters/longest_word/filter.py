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

    def too_long(text: str) -> bool:
        return len(text) > most and any(len(word) > most and not ADDRESS.search(word) for word in text.split())

    def judge(pair: Pair) -> Verdict:
        if (judged[0] and too_long(pair.source)) or (judged[1] and too_long(pair.target)):
            return "max_characters"
        return None

    return each(judge)
