"""An n-gram language model of target subwords: counted, not trained; it ranks outputs of other systems."""

from pathlib import Path

from pydantic import Field

from workflow_src.spec import LANGUAGE_MODEL, Family, Frozen


class NgramConfig(Frozen):
    order: int = Field(4, ge=1, le=8, description="words of the longest n-grams")
    max_sentences: int | None = Field(
        None, gt=0, description="sentences that are counted, spread evenly over the training text; none: all"
    )


class NgramObjectiveConfig(Frozen):
    """Counting has no settings."""


FAMILY = Family(
    name="ngram",
    title="N-gram language model",
    model=NgramConfig,
    objective=NgramObjectiveConfig,
    presets=Path(__file__).parents[3] / "config/models/ngram.yaml",
    build="workflow_src.families.ngram.model:NgramLanguageModel",
    fit="workflow_src.families.ngram.model:fit",
    traits=frozenset({LANGUAGE_MODEL}),
    rule="train_language_model",
    order=9,
)
