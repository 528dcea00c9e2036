"""Leaves out pairs by the ratio of the lengths of their sides."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.config.languages import spaced
from workflow_src.data.filters.ratio import Settings
from workflow_src.data.texts import each, word_counter
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    source_words, target_words = map(word_counter, languages)
    alike = spaced(languages[0]) == spaced(languages[1])
    most_characters = (alike and settings.max_characters) or float("inf")
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
