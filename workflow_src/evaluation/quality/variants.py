"""Outputs by what is removed from them."""

from __future__ import annotations

from collections.abc import Sequence

from workflow_src.config.experiment import Removal
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions

# Names of scores in a quality file, by what is removed from the outputs.
VARIANTS: dict[Removal, str] = {
    "none": "kept",
    "words": "without_repeated_words",
    "subwords": WITHOUT_REPEATED_SUBWORDS,
}


def variants(outputs: Sequence[str], shortened: Sequence[str]) -> dict[Removal, list[str]]:
    """Outputs by removal of repetitions; `shortened` are joined from subwords without repetitions."""
    without_words = [collapse_repetitions(text) for text in outputs]
    return {"none": list(outputs), "words": without_words, "subwords": list(shortened)}
