"""Latent search (Lee et al. 2020, section 4.4): several lengths, several samples of z, the best translation wins."""

from typing import Annotated

from pydantic import Field

from workflow_src.decoding.settings import RESCORER, Lengthening, Steps, StepSize, ranked_by
from workflow_src.registry import searches
from workflow_src.spec import LATENT, MODEL, SCORER, Look, Option, Role, Search, SearchSettings


class LatentSearchSettings(SearchSettings):
    lengths: Annotated[int, Option(tune=(3, 5), part="-{}", always=True, holds=True, passes=True)] = Field(
        5, ge=1, description="most probable target lengths tried"
    )
    samples: Annotated[int, Option(tune=(1, 5), part="x{}", always=True, holds=True, passes=True)] = Field(
        5, ge=1, description="samples of z for each length"
    )
    mean_first: Annotated[bool, Option(part="-mean")] = Field(False, description="the first sample is the prior mean")
    search_seed: Annotated[int, Option(part="-seed{}")] = Field(1, ge=0, lt=2**31, description="seed of the samples")
    steps: Steps
    step_size: StepSize
    rescorer: Annotated[str | None, Option(role=RESCORER, part=lambda v: "" if v else "-own", always=True)] = Field(
        None, description="the system that ranks candidates; none: the model's own score"
    )
    refinement: Annotated[str | None, Option(steps=True)] = Field(
        None, description="the search whose steps refine candidates; none: the system's own"
    )
    lengthening: Lengthening


def label(settings: LatentSearchSettings) -> str:
    """The refinement, numbers of lengths and samples, steps, and the system that ranks."""
    how = searches()[settings.refinement].title if settings.steps and settings.refinement else "prior samples"
    sizes = f"search {settings.lengths:g} × {settings.samples:g}"
    steps = [f"L = {settings.steps}"] if settings.steps else []
    return ", ".join([how, sizes, *steps, *ranked_by(settings.rescorer)])


def details(settings: LatentSearchSettings) -> list[str]:
    """Words for `mean_first`, and for ranking by the model's own score where no other system ranks."""
    return ["mean first"] * settings.mean_first + ["own score"] * (settings.rescorer is None)


SEARCH = Search(
    name="latent-search",
    title="latent search",
    settings=LatentSearchSettings,
    module="workflow_src.searches.latent_search.search:LatentSearch",
    needs={MODEL: Role(LATENT), RESCORER: Role(SCORER, agree=("subwords",), optional=True)},
    width=lambda settings: settings.lengths * settings.samples,
    label=label,
    details=details,
    look=Look("#cc79a7", "*", light="#b0568c", dark="#e49ac2"),
)
