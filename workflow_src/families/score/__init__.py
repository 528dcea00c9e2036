"""The score network of Lee, Shu & Cho 2020: the direction in latent space itself."""

from pathlib import Path

from workflow_src.losses.settings import ScoreMatchingConfig
from workflow_src.nn.settings import RefinerConfig
from workflow_src.spec import BASE, LATENT, REFINER, VECTOR_FIELD, Family, Look, Role

FAMILY = Family(
    name="score",
    title="Score network",
    model=RefinerConfig,
    objective=ScoreMatchingConfig,
    presets=Path(__file__).parents[3] / "config/models/score.yaml",
    build="workflow_src.families.score.model:ScoreNetwork",
    loss="workflow_src.losses.score_matching:score_matching",
    validation="workflow_src.families.refiners:validate",
    searches=("score", "latent-search"),
    needs={BASE: Role(LATENT, agree=("dim", "latent_dim", "max_positions"))},
    traits=frozenset({REFINER, VECTOR_FIELD}),
    start="workflow_src.families.refiners:start",
    rule="train_refiner",
    look=Look("#d55e00", light="#c25400", dark="#f0883e"),
    order=2,
    loss_title=lambda _objective: "Score-matching loss",
)
