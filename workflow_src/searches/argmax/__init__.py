"""The best symbol of every position at a predicted length, or at several lengths of which the best output wins."""

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
    ranked_graph,
)
from workflow_src.spec import LENGTHS, MODEL, Look, Option, Role, Search, SearchSettings


class ArgmaxSettings(SearchSettings):
    """Symbols for skipped positions are dropped; runs of the same subword go where reports remove them."""

    lengths: Annotated[int, Option(tune=(3, 5), part="-{}", length=True, holds=True, passes=True)] = Field(
        1, ge=1, description="most probable target lengths tried"
    )
    length_quantile: LengthQuantile
    lengthening: Lengthening
    length_penalty: LengthPenalty
    rescorer: Rescorer = Field(
        None,
        description="the system that ranks lengths; none: the mean log-probability of positions, times "
        "|y| ** (1 - length_penalty)",
    )

    @model_validator(mode="after")
    def _settings_have_lengths_to_choose_from(self):
        check_lengths("lengths", self.lengths, self.length_quantile, self.length_penalty, self.rescorer)
        return self


def label(settings: ArgmaxSettings) -> str:
    """Such as `argmax, 5 lengths, ranked by teacher`."""
    words = [f"{settings.lengths} lengths"] if settings.lengths > 1 else []
    return ", ".join(["argmax", *words, *ranked_by(settings.rescorer)])


SEARCH = Search(
    name="argmax",
    title="argmax",
    settings=ArgmaxSettings,
    module="workflow_src.searches.argmax.search:Argmax",
    program=True,
    at_lengths=True,
    graph=ranked_graph,
    needs={MODEL: Role(LENGTHS), RESCORER: RANKING},
    width=lambda settings: settings.lengths,
    label=label,
    look=Look(marker="v"),
)
