"""The fully non-autoregressive model of Gu & Kong 2021: one pass, trained with latent alignments (CTC)."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from workflow_src.nn.settings import StackConfig, decoder_layer, encoder_layer
from workflow_src.spec import ALIGNED, Family, Frozen, Look

BLANK = "blank"


class NatConfig(StackConfig):
    """`max_positions` counts source subwords and slots alike."""

    encoder_layers: int = Field(gt=0)
    layers: int = Field(gt=0, description="non-causal decoder layers")
    loss: Literal["ctc"] = Field("ctc", description="what it learns by: ctc sums over all alignments with the slots")
    upsample: float = Field(2.0, ge=1, le=8, description="slots for each source subword, the end symbol counted")
    copy_source: Literal["soft", "uniform"] = Field(
        "soft", description="a slot begins with a mean of the source states around its place, or (uniform) with one"
    )
    copy_temperature: float = Field(
        0.3, gt=0, description="soft copy: weights are softmax(-distance in source positions / this)"
    )


class NatObjectiveConfig(Frozen):
    """The loss has no settings yet."""


def weights(model: NatConfig, vocabulary: int) -> dict[str, int]:
    return {
        "encoder": model.encoder_layers * encoder_layer(model),
        "decoder": model.layers * decoder_layer(model),
        "output": vocabulary * model.dim,
    }


def repeats(model: NatConfig) -> dict[str, float]:
    """What works on slots is computed for each of them."""
    return {"decoder": model.upsample, "output": model.upsample}


FAMILY = Family(
    name="nat",
    title="Fully non-autoregressive",
    model=NatConfig,
    objective=NatObjectiveConfig,
    presets=Path(__file__).parents[3] / "config/models/nat.yaml",
    build="workflow_src.families.nat.model:NonAutoregressiveModel",
    loss="workflow_src.families.nat.objective:Ctc",
    validation="workflow_src.families.nat.validation:validate",
    searches=("ctc-greedy", "ctc-beam"),
    weights=weights,
    repeats=repeats,
    layers=lambda model: model.encoder_layers + round(model.upsample * model.layers),
    traits=frozenset({ALIGNED}),
    symbols=(BLANK,),
    look=Look("#009e73"),
    order=4,
)
