"""Mask-predict: an output is predicted at once, and its least confident subwords again, several times."""

from typing import Annotated

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
    without_roles,
)
from workflow_src.spec import MASKED, MODEL, Look, Option, Role, Search, SearchSettings


class MaskPredictSettings(SearchSettings):
    iterations: Annotated[int, Option(required=True, part="-{}", always=True, passes=True)] = Field(
        10, ge=1, description="passes of the decoder; before pass t + 1 of T, N (T - t) / T of N subwords are masked"
    )
    length_beam: Annotated[
        int, Option(tune=(3, 5), part="-lengths{}", length=True, follow=True, holds=True, passes=True)
    ] = Field(5, ge=1, description="most probable target lengths that are decoded side by side")
    length_quantile: LengthQuantile
    lengthening: Lengthening
    length_penalty: LengthPenalty
    rescorer: Rescorer = Field(
        None, description="the system that ranks lengths; none: the model's log-probability / |y| ** length_penalty"
    )

    @model_validator(mode="after")
    def _settings_have_lengths_to_choose_from(self):
        check_lengths("length_beam", self.length_beam, self.length_quantile, self.length_penalty, self.rescorer)
        return self


def label(settings: MaskPredictSettings) -> str:
    """Such as `mask-predict, T = 4, ranked by teacher`."""
    return ", ".join(["mask-predict", f"T = {settings.iterations}", *ranked_by(settings.rescorer)])


SEARCH = Search(
    name="mask-predict",
    title="mask-predict",
    settings=MaskPredictSettings,
    module="workflow_src.searches.mask_predict.search:MaskPredict",
    program=True,
    graph=without_roles,
    # A graph predicts all positions in every pass, our own code only masked ones.
    batches=False,
    at_lengths=True,
    needs={MODEL: Role(MASKED), RESCORER: RANKING},
    traceable=True,
    series="iterations",
    first_value=1,
    width=lambda settings: settings.length_beam,
    label=label,
    look=Look(marker="h"),
)
