"""Greedy search: the most probable next token, again and again."""

from workflow_src.decoding.settings import MaxLengthRatio
from workflow_src.spec import AUTOREGRESSIVE, MODEL, Look, Role, Search, SearchSettings


class GreedySettings(SearchSettings):
    max_length_ratio: MaxLengthRatio


SEARCH = Search(
    name="greedy",
    title="greedy",
    settings=GreedySettings,
    module="workflow_src.searches.greedy.search:Greedy",
    positions=True,
    needs={MODEL: Role(AUTOREGRESSIVE)},
    look=Look(marker="s"),
)
