"""Delta inference (Shu et al. 2020): the posterior mean of the most probable translation, again and again."""

from pydantic import model_validator

from workflow_src.decoding.settings import (
    Lengthening,
    LengthQuantile,
    Steps,
    StopThreshold,
    StopUnchanged,
    refinement_label,
    varies,
)
from workflow_src.errors import ConfigError
from workflow_src.spec import LATENT, MODEL, Look, Role, Search, SearchSettings


class DeltaSettings(SearchSettings):
    steps: Steps
    length_quantile: LengthQuantile
    lengthening: Lengthening
    stop_threshold: StopThreshold
    stop_unchanged: StopUnchanged

    @model_validator(mode="after")
    def _stops_for_one_reason(self):
        if self.stop_unchanged and self.stop_threshold is not None:
            problem = "stop_unchanged stops sentences too"
            raise ConfigError("stop_threshold", self.stop_threshold, problem=problem, hint="remove one of the two")
        return self


SEARCH = Search(
    name="delta",
    title="delta",
    settings=DeltaSettings,
    module="workflow_src.decoding.refinement:Delta",
    program=True,
    varies=varies,
    needs={MODEL: Role(LATENT)},
    refines=True,
    even_steps=True,
    traceable=True,
    series="steps",
    baseline="prior-mean",
    label=refinement_label("delta"),
    look=Look(marker="o"),
)
