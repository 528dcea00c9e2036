"""Leaves out pairs with sides that are equal, or nearly equal."""

from __future__ import annotations

from pydantic import Field

from workflow_src.data.characters import each
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    max_similarity: float = Field(
        0.9, ge=0, le=1, description="1 less the edits of a side (Levenshtein) for each of its characters"
    )


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    from rapidfuzz.distance import Levenshtein

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


FILTER = Filter(name="copies", title="Untranslated", settings=Settings, check=check)
