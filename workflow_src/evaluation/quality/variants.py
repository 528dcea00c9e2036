"""Outputs, and the figures of quality files, by what is removed from outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workflow_src.config.experiment import Removal
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions
from workflow_src.records.checked import Lenient

# Names of scores in a quality file, by what is removed from the outputs.
VARIANTS: dict[Removal, str] = {
    "none": "kept",
    "words": "without_repeated_words",
    "subwords": WITHOUT_REPEATED_SUBWORDS,
}


class Quality(Lenient):
    """A quality file: figures by metric in each of VARIANTS, their intervals (`NAME_ci`) and signatures."""

    kept: dict[str, Any] = {}
    without_repeated_words: dict[str, Any] = {}
    without_repeated_subwords: dict[str, Any] = {}
    sentences: int | None = None
    mean_steps: float | None = None
    placeholders: dict[str, int] = {}

    def figures(self, removal: Removal) -> dict[str, Any]:
        """The figures of outputs without the repetitions that `removal` names."""
        figures: dict[str, Any] = getattr(self, VARIANTS[removal])
        return figures


def variants(outputs: Sequence[str], shortened: Sequence[str]) -> dict[Removal, list[str]]:
    """Outputs by removal of repetitions; `shortened` are joined from subwords without repetitions."""
    without_words = [collapse_repetitions(text) for text in outputs]
    return {"none": list(outputs), "words": without_words, "subwords": list(shortened)}
