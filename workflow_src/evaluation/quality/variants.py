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


def variants(outputs: Sequence[str], joined: Sequence[str]) -> dict[Removal, list[str]]:
    """Outputs by what is removed from them: `outputs`, and `joined` from their subwords without repetitions."""
    return {"none": list(outputs), "words": [collapse_repetitions(text) for text in outputs], "subwords": list(joined)}
