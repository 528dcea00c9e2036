"""Greedy search: the most probable next token, again and again."""

from pydantic import Field

from workflow_src.spec import AUTOREGRESSIVE, MODEL, Look, Role, Search, SearchSettings, Weights


class GreedySettings(SearchSettings):
    max_length_ratio: float = Field(2.0, gt=0, allow_inf_nan=False, description="outputs stop at this times |x| + 10")


def cost(_settings: GreedySettings, weights: Weights, length: float) -> float:
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
