"""Removing repetitions of the word or subword before, which models without autoregression tend to write."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

Item = TypeVar("Item")
# In the details of translations, and in scores: the text joined from subwords without their repetitions.
WITHOUT_REPEATED_SUBWORDS = "without_repeated_subwords"


def collapse(items: Sequence[Item], keep: Collection[Item] = ()) -> list[Item]:
    """`items` with runs of the same item reduced to one; runs of items in `keep` stay."""
    return [item for number, item in enumerate(items) if number == 0 or item != items[number - 1] or item in keep]


def collapse_repetitions(text: str) -> str:
    """`text` with runs of the same word reduced to one word (Lee et al. 2020, section 4.1). Words are cased."""
    return " ".join(collapse(text.split()))
