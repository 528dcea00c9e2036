"""Leaves out pairs by the length of a side."""

from __future__ import annotations

from pydantic import Field, model_validator

from workflow_src.data.characters import each, word_counter
from workflow_src.errors import ConfigError
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    min_words: int = Field(
        1, ge=0, description="estimated from characters, where words are not separated by spaces; so too max_words"
    )
    max_words: int | None = Field(100, gt=0)
    min_characters: int = Field(1, ge=0)
    max_characters: int | None = Field(1000, gt=0)

    @model_validator(mode="after")
    def _ranges(self):
        for unit in ("words", "characters"):
            least, most = getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}")
            if most is not None and least > most:
                raise ConfigError(f"min_{unit}", least, allowed=f"{most} or less (max_{unit})")
        return self


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return (
        "leaves out nothing"
        if settings.max_words is settings.max_characters is None and not (settings.min_words or settings.min_characters)
        else None
    )


def check(settings: Settings, languages: tuple[str, str]) -> Check:
    source_words, target_words = map(word_counter, languages)
    least_words, least_characters = settings.min_words, settings.min_characters
    most_words = settings.max_words or float("inf")
    most_characters = settings.max_characters or float("inf")

    def judge(pair: Pair) -> Verdict:
        source, target, _ = pair
        first, second = len(source), len(target)
        if first < least_characters or second < least_characters:
            return f"min_characters: {min(first, second)} characters"
        if first > most_characters or second > most_characters:
            return f"max_characters: {max(first, second)} characters"
        first, second = source_words(source), target_words(target)
        if first < least_words or second < least_words:
            return f"min_words: {min(first, second)} words"
        if first > most_words or second > most_words:
            return f"max_words: {max(first, second)} words"
        return None

    return each(judge)


FILTER = Filter(name="length", title="Length", settings=Settings, check=check, each_side=True, conflict=conflict)
