"""Greedy decoding of alignments in one pass: the best symbol of every slot, neighbours merged, blanks dropped."""

from typing import Annotated

from pydantic import Field

from workflow_src.spec import ALIGNED, MODEL, Look, Option, Role, Search, SearchSettings


class CtcGreedySettings(SearchSettings):
    blank_penalty: Annotated[float, Option(tune=(0.0, 0.5, 1.0, 1.5, 2.0), part="-blank{:g}")] = Field(
        0.0,
        allow_inf_nan=False,
        description="subtracted from the logit of the blank; larger values make outputs longer",
    )


SEARCH = Search(
    name="ctc-greedy",
    title="one pass",
    settings=CtcGreedySettings,
    module="workflow_src.searches.ctc_greedy.search:CtcGreedy",
    program=True,
    origins=True,
    needs={MODEL: Role(ALIGNED)},
    look=Look(marker=">"),
)
