"""The latent-variable model of Shu et al. 2020: one Gaussian latent a source position, and lengths from the latents."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from workflow_src.decoding.settings import lengths_refusal
from workflow_src.losses.settings import ElboConfig
from workflow_src.nn.settings import StackConfig
from workflow_src.spec import BOUND, LATENT, LATENT_LENGTHS, PARALLEL, SOURCE_LATENT, Family, Look


class LanmtConfig(StackConfig):
    encoder_layers: int = Field(gt=0, description="layers of the source's encoder, whose states give the prior")
    layers: int = Field(gt=0, description="layers of the decoder")
    posterior_layers: int = Field(gt=0, description="layers of the posterior's encoder and of its decoder, each")
    latent_dim: int = Field(8, gt=0, description="width Z of one latent")
    max_length_difference: int = Field(50, gt=0, description="the length head classifies |y|-|x| in [-this, this]")
    head_scale: float = Field(0.1, gt=0, description="scale of the mean and deviation heads at the start")
    length_reads: Literal["latents", "states"] = Field(
        "latents",
        description="input of the length head: the mean latent, as in the paper, or (states) the prior's states "
        "with latents added, projected as for the decoder, as in the authors' released code",
    )
    decoder_input: Literal["sum", "scaled"] = Field(
        "sum",
        description="latents + positions, or (scaled) latents / sqrt(2) + positions / 2 + an embedding of the "
        "length / 2, as in the authors' released code",
    )
    decoder_skip: bool = Field(
        False, description="add the decoder's input after each of its layers, as in the authors' released code"
    )
    first_position: Literal[0, 1] = Field(
        1,
        description="number of the first position where latents are transformed to the target's length: 1, as in the "
        "paper, or 0, as in the authors' released code",
    )


FAMILY = Family(
    name="lanmt",
    title="Latents of the source's length",
    model=LanmtConfig,
    objective=ElboConfig,
    presets=Path(__file__).parents[3] / "config/models/lanmt.yaml",
    build="workflow_src.families.lanmt.model:SourceLatentVariableModel",
    loss="workflow_src.families.lanmt.objective:elbo_loss",
    validation="workflow_src.families.lanmt.validation:validate",
    searches=("delta", "prior-mean", "npd", "latent-search"),
    layers=lambda model, _objective: model.encoder_layers + model.layers + 2 * model.posterior_layers,
    traits=frozenset({LATENT, SOURCE_LATENT, LATENT_LENGTHS, BOUND, PARALLEL}),
    start="workflow_src.families.lvm.model:start",
    rule="train_lvm",
    look=Look("#3d6b1f", dark="#9ccc65"),
    order=5,
    refuses=lambda model, _search, settings: lengths_refusal(model.max_length_difference, settings),
)
