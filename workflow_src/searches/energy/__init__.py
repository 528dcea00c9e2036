"""Steps down the slope of an energy network (Lee et al. 2020, algorithm 1)."""

from workflow_src.decoding.settings import RefinementSettings, refinement_cost, refinement_label
from workflow_src.spec import LATENT, MODEL, REFINER, Look, Role, Search, Weights


class EnergySettings(RefinementSettings):
    pass


def step_cost(weights: Weights) -> float:
    """The network forward, and backward to the latents."""
    return 4.0 * weights["refiner"]["network"]


def cost(settings: EnergySettings, weights: Weights, length: float) -> float:
    return refinement_cost(weights, settings.steps, step_cost(weights), length)


SEARCH = Search(
    name="energy",
    title="energy",
    settings=EnergySettings,
    run="workflow_src.decoding.refinement:search_along_direction",
    cost=cost,
    needs={MODEL: Role(LATENT), "refiner": Role(REFINER)},
    step="workflow_src.decoding.refinement:direction_steps",
    step_cost=step_cost,
    traceable=True,
    series="steps",
    baseline="prior-mean",
    control="delta",
    label=refinement_label("energy"),
    look=Look(marker="v"),
)
