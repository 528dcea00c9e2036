"""The latent-variable model of Lee, Shu & Cho 2020: one Gaussian latent a target position."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from workflow_src.decoding.settings import lengths_refusal
from workflow_src.losses.settings import ElboConfig
from workflow_src.nn.settings import StackConfig
from workflow_src.spec import BOUND, LATENT, PARALLEL, TARGET_LATENT, Family, Look


class LvmConfig(StackConfig):
    encoder_layers: int = Field(gt=0)
    layers: int = Field(gt=0, description="layers of the prior, of the posterior and of the decoder, each")
    latent_dim: int = Field(8, gt=0, description="width Z of one latent")
    max_length_difference: int = Field(50, gt=0, description="the length head classifies |y|-|x| in [-this, this]")
    end_symbol: bool = Field(
        True,
        description="the target has an end symbol with a latent of its own; an end symbol in an output is dropped",
    )
    decoder_skip: bool = Field(
        False, description="x <- (x0 + layer(x)) / sqrt(2) after each decoder layer, as the authors' code has it"
    )
    length_pooling: Literal["mean", "attention"] = Field("mean", description="of source states in the length head")
    head_scale: float = Field(0.1, gt=0, description="scale of the mean and deviation heads at the start")


FAMILY = Family(
    name="lvm",
    title="Latent-variable model",
    model=LvmConfig,
    objective=ElboConfig,
    presets=Path(__file__).parents[3] / "config/models/lvm.yaml",
    build="workflow_src.families.lvm.model:LatentVariableModel",
    loss="workflow_src.families.lvm.objective:elbo_loss",
    validation="workflow_src.families.lvm.validation:validate",
    searches=("delta", "prior-mean", "latent-search"),
    layers=lambda model, _objective: model.encoder_layers + 3 * model.layers,
    traits=frozenset({LATENT, TARGET_LATENT, BOUND, PARALLEL}),
    start="workflow_src.families.lvm.model:start",
    rule="train_lvm",
    look=Look("#0072b2", dark="#56b4e9"),
    order=1,
    refuses=lambda model, _search, settings: lengths_refusal(model.max_length_difference, settings),
)
