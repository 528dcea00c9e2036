"""The most probable path and words of a graph together, for each length, and the best of these."""

from typing import Annotated

from pydantic import Field

from workflow_src.decoding.settings import MergeEqual, Penalty, graph_bytes
from workflow_src.spec import GRAPH, MODEL, Look, Option, Role, Search, SearchSettings


class GraphViterbiSettings(SearchSettings):
    """An output y has the score log p(y, its best path | x) / (|y| + 1) ** length_penalty, the end counted."""

    length_penalty: Annotated[Penalty, Option(tune=(0.5, 1.0, 1.5), part="-penalty{:g}")] = Field(
        1.0, description="larger values make outputs longer"
    )
    merge_equal: MergeEqual


SEARCH = Search(
    name="graph-viterbi",
    title="graph, best path",
    settings=GraphViterbiSettings,
    module="workflow_src.searches.graph_viterbi.search:GraphViterbi",
    program=True,
    origins=True,
    # Paths are looked for outside of it.
    graph=lambda _settings: None,
    needs={MODEL: Role(GRAPH)},
    held=lambda _settings, sizes: max(graph_bytes(sizes), 4.0 * sizes.sentences * sizes.positions**2),
    look=Look(marker="d"),
)
