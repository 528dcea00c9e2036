"""Noisy parallel decoding: several draws of the latents; the best of their outputs wins (Gu & Kong 2021, section 4)."""

from typing import Annotated

from pydantic import Field

from workflow_src.decoding.settings import RANKING, RESCORER, Rescorer, ranked_by, ranked_graph
from workflow_src.spec import MODEL, SOURCE_LATENT, Look, Option, Role, Search, SearchSettings


class NpdSettings(SearchSettings):
    draws: Annotated[int, Option(required=True, part="-{}", always=True, holds=True, passes=True)] = Field(
        5, ge=1, description="draws of the latents from the prior"
    )
    temperature: Annotated[float, Option(tune=(0.1, 0.5, 1.0), part="-temperature{:g}")] = Field(
        0.1, ge=0, allow_inf_nan=False, description="factor of the prior's deviation in draws"
    )
    search_seed: Annotated[int, Option(part="-seed{}")] = Field(1, ge=0, lt=2**31, description="seed of the draws")
    rescorer: Rescorer = Field(
        None, description="the system that ranks outputs; none: the model's mean log-probability"
    )


def label(settings: NpdSettings) -> str:
    """Such as `NPD, 5 draws, ranked by teacher`."""
    draws = f"{settings.draws} draw{'s' * (settings.draws > 1)}"
    return ", ".join(["NPD", draws, *ranked_by(settings.rescorer)])


SEARCH = Search(
    name="npd",
    title="NPD",
    settings=NpdSettings,
    module="workflow_src.searches.npd.search:NoisyParallel",
    program=True,
    graph=ranked_graph,
    needs={MODEL: Role(SOURCE_LATENT), RESCORER: RANKING},
    series="draws",
    width=lambda settings: settings.draws,
    label=label,
    look=Look(marker="P"),
)
