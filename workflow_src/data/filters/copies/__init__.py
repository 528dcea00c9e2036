"""Pairs with two sides that are equal, or nearly so: untranslated text."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    max_similarity: float = Field(
        0.9, ge=0, le=1, description="1 less the edits of a side (Levenshtein) for each of its characters"
    )


FILTER = Filter(
    name="copies", title="Untranslated", settings=Settings, check="workflow_src.data.filters.copies.filter:check"
)
