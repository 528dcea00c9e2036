"""Greedy search: the most probable next token, again and again."""

from pydantic import Field

from workflow_src.spec import AUTOREGRESSIVE, MODEL, Look, Role, Search, SearchSettings


class GreedySettings(SearchSettings):
    max_length_ratio: float = Field(2.0, gt=0, allow_inf_nan=False, description="outputs stop at this times |x| + 10")


SEARCH = Search(
    name="greedy",
    title="greedy",
    settings=GreedySettings,
    module="workflow_src.searches.greedy.search:Greedy",
    positions=True,
    needs={MODEL: Role(AUTOREGRESSIVE)},
    look=Look(marker="s"),
)
