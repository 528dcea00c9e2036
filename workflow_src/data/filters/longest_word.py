"""Leaves out pairs with a very long word, in languages that separate words by spaces."""

from __future__ import annotations

from pydantic import Field

from workflow_src.config.languages import spaced
from workflow_src.data.characters import each
from workflow_src.data.patterns import ADDRESS_SIGN
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    max_characters: int = Field(40, gt=0, description="web addresses may be longer")


def check(settings: Settings, languages: tuple[str, str]) -> Check:
    most = settings.max_characters
    judged = tuple(map(spaced, languages))

    def too_long(text: str) -> str | None:
        """The first word that is too long."""
        if len(text) <= most:
            return None
        return next((word for word in text.split() if len(word) > most and not ADDRESS_SIGN.search(word)), None)

    def judge(pair: Pair) -> Verdict:
        word = (judged[0] and too_long(pair.source)) or (judged[1] and too_long(pair.target))
        return f"max_characters: {word}" if word else None

    return each(judge)


FILTER = Filter(name="longest_word", title="Longest word", settings=Settings, check=check, each_side=True)
