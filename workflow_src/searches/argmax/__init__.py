"""The best symbol of every position at a predicted length, or at several lengths of which the best output wins."""

from typing import Annotated

from pydantic import Field, model_validator

from workflow_src.decoding.settings import (
    RESCORER,
    SCORING,
    Lengthening,
    LengthPenalty,
    LengthQuantile,
    check_one_length,
    check_penalty,
    ranked_graph,
    ranking_weights,
)
from workflow_src.spec import LENGTHS, MODEL, SCORER, Look, Option, Role, Search, SearchSettings, Weights


class ArgmaxSettings(SearchSettings):
    """Symbols for skipped positions are dropped; runs of the same subword go where reports remove them."""

    lengths: Annotated[int, Option(tune=(3, 5), part="-{}", length=True, holds=True)] = Field(
        1, ge=1, description="most probable target lengths tried"
    )
    length_quantile: LengthQuantile
    lengthening: Lengthening
    length_penalty: LengthPenalty
    rescorer: Annotated[str | None, Option(role=RESCORER, part=lambda v: f"-by-{v}" if v else "")] = Field(
        None, description="the system that ranks lengths; none: the model's log-probability / |y| ** length_penalty"
    )

    @model_validator(mode="after")
    def _settings_have_lengths_to_choose_from(self):
        check_one_length(self.length_quantile, "lengths", self.lengths)
        check_penalty(self.length_penalty, "lengths", self.lengths, self.rescorer)
        return self


def cost(settings: ArgmaxSettings, weights: Weights, length: float) -> float:
    """Operations: the source is read once, every length is decoded, from the latents' mean if any, and read by the
    rescorer."""
    model = weights[MODEL]
    total = model["encoder"] + settings.lengths * (model.get("prior", 0) + model["decoder"] + model["output"])
    return 2.0 * length * (total + ranking_weights(weights, settings.lengths))


def label(settings: ArgmaxSettings) -> str:
    """Such as `argmax, 5 lengths, ranked by teacher`."""
    words = [f"{settings.lengths} lengths"] if settings.lengths > 1 else []
    words += [f"ranked by {settings.rescorer}"] if settings.rescorer else []
    return ", ".join(["argmax", *words])


SEARCH = Search(
    name="argmax",
    title="argmax",
    settings=ArgmaxSettings,
    run="workflow_src.searches.argmax.search:run",
    program="workflow_src.searches.argmax.search:program",
    at_lengths="workflow_src.searches.argmax.search:at_lengths",
    graph=ranked_graph,
    cost=cost,
    needs={MODEL: Role(LENGTHS), RESCORER: Role(SCORER, agree=("subwords",), optional=True, program=SCORING)},
    width=lambda settings: settings.lengths,
    label=label,
    look=Look(marker="v"),
)
