"""Passes that refine a guess of all words, a fixed number or until the output repeats (Lee, Mansimov & Cho 2018)."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from workflow_src.decoding.settings import (
    RANKING,
    RESCORER,
    Lengthening,
    LengthPenalty,
    LengthQuantile,
    Rescorer,
    check_lengths,
    ranked_by,
    ranked_graph,
)
from workflow_src.errors import ConfigError
from workflow_src.spec import ITERATIVE, MODEL, Look, Option, Role, Search, SearchSettings


class IterativeRefinementSettings(SearchSettings):
    passes: Annotated[int, Option(required=True, part="-{}", always=True, passes=True)] = Field(
        4, ge=1, description="passes of the decoders, the first guess counted"
    )
    stop: Annotated[
        Literal["fixed", "adaptive"],
        Option(part=lambda v: "-adaptive" if v == "adaptive" else "", stop=True),
    ] = Field(
        "fixed", description="adaptive: a sentence stops after the pass that repeats the output before it, or after all"
    )
    patience: Annotated[int, Option(part="-patience{}")] = Field(
        1, ge=1, description="adaptive: passes in a row that must repeat the output"
    )
    lengths: Annotated[int, Option(tune=(3, 5), part="-lengths{}", length=True, holds=True, passes=True)] = Field(
        1, ge=1, description="most probable target lengths tried"
    )
    length_quantile: LengthQuantile
    lengthening: Lengthening
    length_penalty: LengthPenalty
    rescorer: Rescorer = Field(
        None,
        description="the system that ranks lengths; none: its log-probability in the last pass / |y| ** length_penalty",
    )

    @model_validator(mode="after")
    def _settings_have_lengths_to_choose_from(self):
        check_lengths("lengths", self.lengths, self.length_quantile, self.length_penalty, self.rescorer)
        return self

    @model_validator(mode="after")
    def _fixed_passes_need_no_patience(self):
        if self.stop == "fixed" and self.patience > 1:
            hint = "remove it, or set stop: adaptive"
            raise ConfigError("patience", self.patience, problem="stop is fixed", hint=hint)
        # The default is allowed with any number of passes.
        if self.patience > 1 and self.patience >= self.passes:
            problem = f"of {self.passes} passes at most {self.passes - 1} repeat the one before"
            raise ConfigError("patience", self.patience, problem=problem, hint="lower it, or set stop: fixed")
        return self


def label(settings: IterativeRefinementSettings) -> str:
    """Such as `iterative refinement, 8 passes, ranked by teacher`."""
    passes = f"{settings.passes} pass{'es' * (settings.passes > 1)}"
    return ", ".join(["iterative refinement", passes, *ranked_by(settings.rescorer)])


SEARCH = Search(
    name="iterative-refinement",
    title="iterative refinement",
    settings=IterativeRefinementSettings,
    module="workflow_src.searches.iterative_refinement.search:IterativeRefinement",
    program=True,
    graph=ranked_graph,
    varies=lambda settings: "with stop: adaptive" if settings.stop == "adaptive" else None,
    even_steps=True,
    needs={MODEL: Role(ITERATIVE), RESCORER: RANKING},
    traceable=True,
    series="passes",
    first_value=1,
    baseline="argmax",
    width=lambda settings: settings.lengths,
    label=label,
    look=Look(marker="h"),
)
