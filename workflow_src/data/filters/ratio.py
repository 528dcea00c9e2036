"""Leaves out pairs by the ratio of the lengths of their sides."""

from __future__ import annotations

from pydantic import Field

from workflow_src.config.languages import characters_a_word, spaced
from workflow_src.data.characters import each, word_counter
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    max_words: float | None = Field(
        3.0, gt=1, description="words of the longer side for one of the other, estimated as for `length`"
    )
    max_characters: float | None = Field(
        3.0,
        gt=1,
        description="likewise; not where one language says more by a character, as without spaces between words",
    )
    min_characters: int = Field(15, ge=0, description="pairs whose longer side has fewer are kept")


def conflict(settings: Settings, languages: tuple[str, str]) -> str | None:
    by_characters = settings.max_characters is not None and alike(languages)
    return None if by_characters or settings.max_words is not None else "leaves out nothing"


def alike(languages: tuple[str, str]) -> bool:
    """True where both languages say about as much by a character."""
    source, target = (None if spaced(code) else characters_a_word(code) for code in languages)
    return source == target


def check(settings: Settings, languages: tuple[str, str]) -> Check:
    source_words, target_words = map(word_counter, languages)
    most_characters = (alike(languages) and settings.max_characters) or float("inf")
    most_words = settings.max_words or float("inf")
    least = settings.min_characters

    def judge(pair: Pair) -> Verdict:
        source, target, _ = pair
        first, second = len(source), len(target)
        if first < least and second < least:
            return None
        if first > most_characters * second or second > most_characters * first:
            return f"max_characters: {first} and {second} characters"
        first, second = source_words(source), target_words(target)
        if first > most_words * second or second > most_words * first:
            return f"max_words: {first} and {second} words"
        return None

    return each(judge)


FILTER = Filter(name="ratio", title="Length ratio", settings=Settings, check=check, conflict=conflict)
