"""Leaves out pairs by the length of a side."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.data.filters.length import Settings
from workflow_src.data.texts import each, word_counter
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
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
