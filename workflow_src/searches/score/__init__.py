"""Steps along the output of a score network (Lee et al. 2020, algorithm 1)."""

from workflow_src.decoding.settings import RefinementSettings, refinement_label, varies
from workflow_src.spec import LATENT, MODEL, REFINER, Look, Role, Search


class ScoreSettings(RefinementSettings):
    pass


SEARCH = Search(
    name="score",
    title="score",
    settings=ScoreSettings,
    # Shared with `energy`: only the network's direction differs.
    module="workflow_src.decoding.refinement:AlongDirection",
    program=True,
    varies=varies,
    needs={MODEL: Role(LATENT), "refiner": Role(REFINER)},
    refines=True,
    even_steps=True,
    traceable=True,
    series="steps",
    baseline="prior-mean",
    control="delta",
    label=refinement_label("score"),
    look=Look(marker="^"),
)
