"""The translation of the prior mean, without refinement."""

from workflow_src.decoding.settings import Lengthening, LengthQuantile
from workflow_src.spec import LATENT, MODEL, Look, Role, Search, SearchSettings


class PriorMeanSettings(SearchSettings):
    length_quantile: LengthQuantile
    lengthening: Lengthening


SEARCH = Search(
    name="prior-mean",
    title="prior mean",
    settings=PriorMeanSettings,
    module="workflow_src.decoding.refinement:Refinement",
    program=True,
    needs={MODEL: Role(LATENT)},
    look=Look(marker="D"),
)
