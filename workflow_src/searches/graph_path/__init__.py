"""One path through the graph of a model: the best next vertex again and again."""

from typing import Annotated

from pydantic import Field

from workflow_src.decoding.settings import MergeEqual, graph_bytes
from workflow_src.spec import GRAPH, MODEL, Look, Option, Role, Search, SearchSettings


class GraphPathSettings(SearchSettings):
    """The vertex after i is argmax over j of log E_ij + lookahead * max over words v of log P(v|v_j)."""

    lookahead: Annotated[float, Option(tune=(0.0, 0.5, 1.0, 1.5), part="-ahead{:g}", always=True)] = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="weight of the log-probability of a vertex's best word, where the next vertex is chosen; 0: greedy",
    )
    merge_equal: MergeEqual


def label(settings: GraphPathSettings) -> str:
    """Such as `graph, lookahead`."""
    words = ["greedy" if settings.lookahead == 0 else "lookahead"]
    words += [f"{settings.lookahead:g}"] if settings.lookahead not in (0, 1) else []
    return ", ".join(["graph", " ".join(words), *(["equal neighbours merged"] if settings.merge_equal else [])])


SEARCH = Search(
    name="graph-path",
    title="graph, best next vertex",
    settings=GraphPathSettings,
    module="workflow_src.searches.graph_path.search:GraphPath",
    program=True,
    origins=True,
    needs={MODEL: Role(GRAPH)},
    held=lambda settings, sizes: graph_bytes(sizes, copies=2 if settings.lookahead else 1),
    label=label,
    look=Look(marker="D"),
)
