"""Sizes that follow the corpus, where a configuration says `auto`: subwords, updates, the longest training sentence.

Subwords and updates grow with the square root of the corpus. A text of twice the size is so learned in fewer epochs,
and its vocabulary is larger, because a text has to show a subword often enough for it to be learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen
from workflow_src.spec.sections import NONE

AUTO: Literal["auto"] = "auto"
# Subwords for each root of a training pair: about 4,000 for 150,000 pairs, about 22,000 for 5 million.
SUBWORDS_A_ROOT = 10
FEWEST_SUBWORDS, MOST_SUBWORDS = 500, 32_000
# Single characters among these: those of alphabets. A script with more of them, as of Chinese or Japanese, would leave
# no room for longer subwords, and the other language would be spelt in letters.
ALPHABETS = 200
# Target tokens of a text that is seen once. One of a hundredth of this is seen ten times.
SEEN_ONCE = 160_000_000
UNLIMITED = 10**12
# Parts that `max_steps` is divided into: a warm-up, the updates between validations and those between saved states are
# one part each.
WARMUPS = 20
VALIDATIONS = 10
SAVES = 20
LONGEST_WARMUP, LONGEST_UNSAVED = 4000, 1000
# The share of training pairs that `max_length` lets pass, and its bounds. Pairs below the lower one cost little. Above
# the upper one attention, which compares all subwords of a sentence, takes most of the memory of a batch.
FITTING = 0.995
LOWEST_MAX_LENGTH, HIGHEST_MAX_LENGTH = 64, 500


AtLeast0 = Annotated[int, Field(ge=0)] | Literal["auto"]
AtLeast1 = Annotated[int, Field(gt=0)] | Literal["auto"]
MaxLength = Annotated[
    Annotated[int, Field(gt=1)] | Literal["auto"],
    Field(description="training pairs with more subwords on a side are left out; auto: 99.5 % of them stay"),
]


def vocabulary_size(pairs: int, single: int = 0) -> int:
    """Subwords for a training text of so many pairs: in hundreds, within the bounds above, and further ones for single
    characters.

    `single` counts subwords that are single characters of the text; those beyond `ALPHABETS` come on top.
    """
    hundreds = round(SUBWORDS_A_ROOT * math.sqrt(pairs) / 100)
    return min(max(100 * hundreds, FEWEST_SUBWORDS), MOST_SUBWORDS) + max(0, single - ALPHABETS)


def max_length(lengths: Iterable[int]) -> int:
    """The least limit that the share `FITTING` of training pairs keeps, within the bounds above.

    `lengths` are the subwords of the longer side of each pair, at least one.
    """
    ascending = sorted(lengths)
    limit = ascending[math.ceil(FITTING * len(ascending)) - 1]
    return min(max(limit, LOWEST_MAX_LENGTH), HIGHEST_MAX_LENGTH)


class AutoStepsConfig(Frozen):
    """How many updates a training makes, by the target tokens of its text. `max_steps: auto` has these defaults."""

    epochs: float | None = Field(None, gt=0, description="passes over the text; none: the fewer the larger it is")
    at_least: int = Field(500, gt=0, description="updates; with epochs, 1 is the default")
    at_most: int = Field(100_000, gt=0, description="updates; with epochs, there is no limit by default")

    @model_validator(mode="before")
    @classmethod
    def _epochs_are_made_in_full(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and raw.get("epochs") not in (None, *NONE):
            return {"at_least": 1, "at_most": UNLIMITED} | raw
        return raw

    @model_validator(mode="after")
    def _bounds(self):
        if self.at_least > self.at_most:
            raise ConfigError("at_least", self.at_least, allowed=f"at_most, {self.at_most}, or less")
        return self

    def updates(self, tokens: int, batch_tokens: int, batches: float | None = None) -> int:
        """Updates of `batch_tokens` for a text of `tokens` target tokens, end symbols counted.

        `batches` are those of an epoch; None: as many as its target tokens fill. A batch has fewer target tokens than
        `batch_tokens` where sources are longer than targets, and where lengths differ.
        """
        if self.epochs:
            count = self.epochs * (batches or tokens / batch_tokens)
        else:
            count = math.sqrt(SEEN_ONCE * tokens) / batch_tokens
        return min(max(math.ceil(count), self.at_least), self.at_most)


def _steps(value: Any) -> Any:
    if isinstance(value, str) and value != AUTO and not value.isdecimal():
        raise ConfigError("", allowed="a whole number, auto, or a section of its bounds")
    return {} if value == AUTO else value


Steps = Annotated[
    Annotated[int, Field(ge=0)] | AutoStepsConfig,
    BeforeValidator(_steps, json_schema_input_type=AtLeast0 | AutoStepsConfig),
]


def sized_number(value: object) -> int:
    """A size of a sized configuration, which has numbers alone."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number: call sized() before")
    return value


def share(steps: int, parts: int) -> int:
    """Updates between events of which a training has `parts`, at least 1."""
    return max(1, math.ceil(steps / parts))
