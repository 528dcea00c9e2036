"""Greedy search: the most probable next token, again and again."""

from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from workflow_src.spec import AUTOREGRESSIVE, MODEL, Look, Option, Role, Search, SearchSettings, Weights


class GreedySettings(SearchSettings):
    # Earlier versions handed these to rules: without them every greedy translation would be made anew.
    constants = MappingProxyType({"beam": 1, "length_penalty": 1.0})

    max_length_ratio: Annotated[float, Option()] = Field(
        2.0, gt=0, allow_inf_nan=False, description="outputs stop at this times |x| + 10"
    )


def cost(settings: GreedySettings, weights: Weights, length: float) -> float:
    model = weights[MODEL]
    return 2.0 * length * (model["encoder"] + model["decoder"] + model["output"])


SEARCH = Search(
    name="greedy",
    title="greedy",
    settings=GreedySettings,
    run="workflow_src.searches.greedy.search:run",
    cost=cost,
    needs={MODEL: Role(AUTOREGRESSIVE)},
    look=Look(marker="s"),
)
