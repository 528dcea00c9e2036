"""The translation of the prior mean, without refinement."""

from workflow_src.decoding.settings import Lengthening, LengthQuantile, refinement_cost
from workflow_src.spec import LATENT, MODEL, Look, Role, Search, SearchSettings, Weights


class PriorMeanSettings(SearchSettings):
    length_quantile: LengthQuantile
    lengthening: Lengthening


def cost(_settings: PriorMeanSettings, weights: Weights, length: float) -> float:
    return refinement_cost(weights, 0, 0.0, length)


SEARCH = Search(
    name="prior-mean",
    title="prior mean",
    settings=PriorMeanSettings,
    run="workflow_src.searches.prior_mean.search:run",
    program="workflow_src.decoding.latent_pass:program",
    cost=cost,
    needs={MODEL: Role(LATENT)},
    look=Look(marker="D"),
)
