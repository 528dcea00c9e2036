"""Leaves out pairs with numbers on one side that the other does not have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from workflow_src.data.filters.numbers import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict

DIGIT = re.compile(r"\d")
# Thousands in groups; a decimal or an hour, but no part of a date; digits. Languages differ in what separates them.
NUMBER = re.compile(
    r"\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\d{3})+(?!\d)(?:[.,]\d+)?|(?<!\d[.,:])\d+[.,:]\d+(?![.,:]?\d)|\d+"
)
SEPARATORS = re.compile(r"\D+")


def numbers(text: str) -> Counter[int]:
    """How often each number stands in a text, its separators left out: 1.5 and 1,5 are 15."""
    return Counter(int(SEPARATORS.sub("", number)[:18]) for number in NUMBER.findall(text))


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    least, written_out = settings.min_share, settings.written_out

    def judge(pair: Pair) -> Verdict:
        source, target, _ = pair
        if not (DIGIT.search(source) or DIGIT.search(target)):
            return None
        first, second = numbers(source), numbers(target)
        if first == second:
            return None
        shared = (first & second).total()
        unmatched = [
            sum(count for number, count in (numbers_here - numbers_there).items() if number > written_out)
            for numbers_here, numbers_there in ((first, second), (second, first))
        ]
        return "min_share" if shared < least * (shared + max(unmatched)) else None

    return each(judge)
