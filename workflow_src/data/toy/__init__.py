"""The generator `toy`: German-English pairs of a grammar that gives every valid translation (docs/toy.md)."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from workflow_src.config.base import distinct
from workflow_src.spec import Frozen, Generator

# Kinds of sentences; `sentences.py` says how often each is drawn.
SentenceKind = Literal[
    "plain", "adverb", "question", "negated", "to-clause", "complement", "conjunction", "fronted", "relative", "quality"
]


class Settings(Frozen):
    """Sentences, size and seed: the same settings give the same corpus."""

    train: int = Field(24000, gt=0, description="pairs")
    dev: int = Field(1000, gt=0, description="pairs")
    test: int = Field(1000, gt=0, description="pairs")
    seed: int = Field(1, ge=0)
    kinds: Annotated[tuple[SentenceKind, ...], AfterValidator(distinct)] = Field(
        get_args(SentenceKind), min_length=1, description="kinds of sentences that are drawn"
    )


GENERATOR = Generator(
    name="toy",
    title="Toy grammar",
    languages=("de", "en"),
    settings=Settings,
    generate="workflow_src.data.toy.grammar:generate",
)
