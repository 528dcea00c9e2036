"""The directed acyclic Transformer of Huang et al. 2022: one pass, whose outputs are paths through a graph."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from workflow_src.losses.settings import Matches, continues, loss_title
from workflow_src.nn.settings import StackConfig
from workflow_src.spec import GRAPH, PARALLEL, REPETITIONS, SCORER, Family, Look, Sizes, changed


class DatConfig(StackConfig):
    """`max_positions` counts source subwords and vertices alike."""

    encoder_layers: int = Field(gt=0)
    layers: int = Field(gt=0, description="non-causal decoder layers")
    vertices: float = Field(
        4.0, ge=1, le=16, description="vertices of the graph for each source subword, the end symbol counted"
    )
    inputs: Literal["soft", "positions"] = Field(
        "soft",
        description="a vertex begins with a mean of the source states around its place, or (positions, as in the "
        "paper) with a learned vector of its place alone",
    )


class DatObjectiveConfig(Matches):
    glance_share: float = Field(
        0.5, ge=0, le=1, description="share of the wrong symbols that is shown when training begins; 0: glancing is off"
    )
    glance_end: float = Field(0.1, ge=0, le=1, description="the share when training ends; linear between the two")


def conflict(_model: DatConfig, objective: DatObjectiveConfig) -> str | None:
    """Glancing is of the likelihood: a setting of it that was changed has no effect on n-gram matches, nor has its end
    where it is off."""
    for name in ("glance_share", "glance_end"):
        if objective.ngrams and changed(objective, name):
            return f"objective.{name} is of the likelihood, and objective.ngrams replaces that; remove one of the two"
    if not objective.glance_share and objective.glance_end and changed(objective, "glance_end"):
        return (
            "objective.glance_end has no effect, as objective.glance_share: 0 switches glancing off; remove glance_end"
        )
    return None


def bytes_held(model: DatConfig, sizes: Sizes) -> float:
    """Bytes of what the loss keeps for each pair of vertices, transitions and their gradients among it, and of the
    decoder's attention: as measured with one and three layers and two to eight heads, within 12 %."""
    return sizes.sentences * sizes.positions**2 * (40.0 + 6 * model.heads * (model.layers + 1))


FAMILY = Family(
    name="dat",
    title="Directed acyclic Transformer",
    model=DatConfig,
    objective=DatObjectiveConfig,
    presets=Path(__file__).parents[3] / "config/models/dat.yaml",
    build="workflow_src.families.dat.model:DirectedAcyclicTransformer",
    loss="workflow_src.families.dat.objective:path_loss",
    validation="workflow_src.families.dat.validation:validate",
    searches=("graph-path", "graph-viterbi", "graph-beam"),
    positions=lambda model: model.vertices,
    held=bytes_held,
    traits=frozenset({GRAPH, PARALLEL, REPETITIONS, SCORER}),
    conflict=conflict,
    continues=continues,
    loss_title=loss_title,
    look=Look("#5d4aa8", dark="#9d8cf0"),
    order=4,
)
