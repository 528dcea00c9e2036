"""Leaves out pairs with sides that are equal, or nearly equal."""

from __future__ import annotations

from collections.abc import Callable

from rapidfuzz.distance import Levenshtein

from workflow_src.data.filters.copies import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    most = settings.max_similarity
    similarity = Levenshtein.normalized_similarity

    def judge(pair: Pair) -> Verdict:
        source, target, _ = pair
        if source == target:
            return "equal"
        # Fewer characters cannot become more without as many edits.
        if min(len(source), len(target)) < most * max(len(source), len(target)):
            return None
        alike = similarity(source.casefold(), target.casefold(), score_cutoff=most)
        return f"max_similarity: {alike:.2f}" if alike > most else None

    return each(judge)
