"""The conditional masked language model of Ghazvininejad et al. 2019: masked subwords, given the others and x."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from workflow_src.decoding.settings import lengths_refusal
from workflow_src.losses.settings import OnePassConfig
from workflow_src.nn.settings import StackConfig
from workflow_src.spec import LENGTHS, MASKED, PARALLEL, Family, Look, Search, SearchSettings

MASK = "mask"


class CmlmConfig(StackConfig):
    encoder_layers: int = Field(gt=0)
    layers: int = Field(gt=0, description="non-causal decoder layers")
    max_length_difference: int = Field(50, gt=0, description="the length head classifies |y|-|x| in [-this, this]")
    length_pooling: Literal["mean", "attention"] = Field("mean", description="of source states in the length head")


class CmlmObjectiveConfig(OnePassConfig):
    length_smoothing: float = Field(
        0.0, ge=0, description="length labels are Gaussians of this deviation, in subwords, around the true difference"
    )


def refuses(model: CmlmConfig, _search: Search, settings: SearchSettings) -> str | None:
    """Why a model cannot be decoded with the settings: iterations or lengths that it does not have."""
    iterations = getattr(settings, "iterations", 1)
    if iterations > model.max_positions:
        return (
            f"takes at most {model.max_positions} iterations, one for each position of its longest output "
            f"(model.max_positions), and iterations is {iterations}; say {model.max_positions} or fewer"
        )
    return lengths_refusal(model.max_length_difference, settings)


FAMILY = Family(
    name="cmlm",
    title="Masked language model",
    model=CmlmConfig,
    objective=CmlmObjectiveConfig,
    presets=Path(__file__).parents[3] / "config/models/cmlm.yaml",
    build="workflow_src.families.cmlm.model:MaskedLanguageModel",
    loss="workflow_src.families.cmlm.objective:masked_loss",
    validation="workflow_src.families.cmlm.validation:validate",
    searches=("mask-predict", "argmax"),
    traits=frozenset({LENGTHS, MASKED, PARALLEL}),
    refuses=refuses,
    symbols=(MASK,),
    look=Look("#b8860b", dark="#e0b84c"),
    order=5,
)
