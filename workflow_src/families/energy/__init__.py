"""The energy network of Lee, Shu & Cho 2020: a scalar whose slope is the direction in latent space."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from workflow_src.losses.settings import ScoreMatchingConfig
from workflow_src.nn.settings import RefinerConfig
from workflow_src.spec import BASE, LATENT, REFINER, Family, Look, Role


class EnergyConfig(RefinerConfig):
    energy_pooling: Literal["mean", "sum"] = Field("mean", description="how the energy pools positions")


FAMILY = Family(
    name="energy",
    title="Energy network",
    model=EnergyConfig,
    objective=ScoreMatchingConfig,
    presets=Path(__file__).parents[3] / "config/models/energy.yaml",
    build="workflow_src.families.energy.model:EnergyNetwork",
    loss="workflow_src.losses.score_matching:score_matching",
    validation="workflow_src.families.refiners:validate",
    searches=("energy", "latent-search"),
    needs={BASE: Role(LATENT, agree=("dim", "latent_dim", "max_positions"))},
    traits=frozenset({REFINER}),
    start="workflow_src.families.refiners:start",
    rule="train_refiner",
    look=Look("#009e73", light="#008562", dark="#3cc79b"),
    order=3,
    loss_title=lambda _objective: "Score-matching loss",
)
