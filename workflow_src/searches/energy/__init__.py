"""Steps down the slope of an energy network (Lee et al. 2020, algorithm 1)."""

from workflow_src.decoding.settings import RefinementSettings, refinement_label
from workflow_src.spec import LATENT, MODEL, REFINER, Look, Role, Search


class EnergySettings(RefinementSettings):
    pass


SEARCH = Search(
    name="energy",
    title="energy",
    settings=EnergySettings,
    module="workflow_src.decoding.refinement:AlongDirection",
    needs={MODEL: Role(LATENT), "refiner": Role(REFINER)},
    refines=True,
    even_steps=True,
    traceable=True,
    series="steps",
    baseline="prior-mean",
    control="delta",
    label=refinement_label("energy"),
    look=Look(marker="v"),
)
