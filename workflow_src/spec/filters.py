"""Declarations of filters of training text, and the pairs that they judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pydantic.dataclasses import dataclass

from workflow_src.spec.fields import CHECKED, EngineName, Title
from workflow_src.spec.sections import Frozen

# An input of filters beside the two texts: the pair's score, a column of the corpus.
SCORES: Literal["scores"] = "scores"


class Pair(NamedTuple):
    """A pair of lines of the training text; `score` where a filter needs scores and the corpus has one."""

    source: str
    target: str
    score: float | None = None


# Verdict on one pair: None keeps it, another pair replaces it, and text says why it is left out. The text begins with
# the name of a setting, or with another of a few reasons. Reports count pairs by this reason. Details of the one pair
# may follow behind CAUSE, as in "max_words: 93 words". Reports show them with examples.
Verdict = None | Pair | str
CAUSE = ": "
# Gives the verdict on each of a list of pairs.
Check = Callable[[list[Pair]], list[Verdict]]


@dataclass(frozen=True, config=CHECKED)
class Filter:
    """A step of cleaning the training text, which keeps, repairs or leaves out each pair.

    title       of its row in tables
    settings    a class of its own; every setting has a default
    check       (settings, languages of source and target) -> function of a list of pairs -> a list with the verdict on
                each. A filter that `looks_back` has one for a text, whose pairs come in their order, so that it may
                remember pairs; others have one in each process. Libraries are imported in it, not beside the
                declaration, which planning imports
    each_side   whether it judges each side by itself, so that it cleans text of one language too, as both sides
    looks_back  whether its verdict on a pair depends on pairs that came before
    needs       its inputs beside the two texts: SCORES
    conflict    (settings, languages of source and target) -> None, or why it cannot filter such a text, or would leave
                it as it is: the end of a sentence that begins with its name
    """

    name: EngineName
    title: Title
    settings: type[Frozen]
    check: Callable[[Any, tuple[str, str]], Check]
    each_side: bool = False
    looks_back: bool = False
    needs: tuple[Literal["scores"], ...] = ()
    conflict: Callable[[Any, tuple[str, str]], str | None] = lambda _settings, _languages: None
