"""The fully non-autoregressive model of Gu & Kong 2021: one pass, and four switches on how it learns."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from workflow_src.decoding.settings import lengths_refusal
from workflow_src.errors import ConfigError
from workflow_src.losses.settings import Budget, Matches, continues, loss_title
from workflow_src.nn.settings import StackConfig
from workflow_src.spec import (
    ALIGNED,
    LATENT,
    LENGTHS,
    MODEL,
    PARALLEL,
    REPETITIONS,
    SCORER,
    SOURCE_LATENT,
    Family,
    Look,
    Search,
    SearchSettings,
    changed,
)

BLANK = "blank"
# The default width of latents is the paper's.
LATENT_DIM = 8


class NatConfig(StackConfig):
    """`max_positions` counts source subwords and slots alike."""

    encoder_layers: int = Field(gt=0)
    layers: int = Field(gt=0, description="non-causal decoder layers")
    loss: Literal["ctc", "axe", "ce"] = Field(
        "ctc",
        description="loss of the output: ctc sums over all alignments with the slots; axe takes the cheapest with as "
        "many positions as the target has subwords; ce: each position learns its own subword",
    )
    upsample: float = Field(2.0, ge=1, le=8, description="ctc: slots for each source subword, the end symbol counted")
    copy_source: Literal["soft", "uniform"] = Field(
        "soft", description="a slot begins with a mean of the source states around its place, or (uniform) with one"
    )
    latent: Literal["none", "vae"] = Field(
        "none", description="vae: a Gaussian latent of each source position is added to its state"
    )
    latent_dim: int = Field(0, ge=0, description="width Z of one latent; default 8 where latent is vae")
    posterior_layers: int = Field(
        3, gt=0, description="vae: layers of the posterior's encoder and of its decoder, each"
    )
    head_scale: float = Field(0.1, gt=0, description="vae: scale of the mean and deviation heads at the start")
    max_length_difference: int = Field(
        50, gt=0, description="axe and ce: the length head classifies |y|-|x| in [-this, this]"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_wide_as_the_papers(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and raw.get("latent") == "vae" and "latent_dim" not in raw:
            return {**raw, "latent_dim": LATENT_DIM}
        return raw

    @model_validator(mode="after")
    def _latents_have_a_width(self):
        if (self.latent == "vae") != (self.latent_dim > 0):
            hint = "say latent: vae with a width above 0, or neither"
            raise ConfigError("latent_dim", self.latent_dim, problem=f"latent is {self.latent}", hint=hint)
        return self


class NatObjectiveConfig(Budget, Matches):
    """Settings of training; the choice of the loss is a setting of the model."""

    label_smoothing: float = Field(0.0, ge=0, lt=1, description="of the labels; the paper has 0.01")
    length_weight: float = Field(1.0, gt=0, description="axe and ce: times the loss of the length head is added")
    skip_penalty: float = Field(
        2.0,
        gt=0,
        allow_inf_nan=False,
        description="axe: times the cost of a subword that shares its position; with 1, outputs lose words",
    )
    glance: Literal["none", "random", "glat"] = Field(
        "none",
        description="symbols of the reference shown at the decoder's input in training: none, any number of them, or "
        "(glat) a share of those that the model's own output gets wrong",
    )
    glance_count: Literal["poisson", "share"] = Field(
        "poisson", description="glat: the number is drawn from a Poisson distribution, or is the share itself"
    )
    glance_share: float = Field(0.5, ge=0, le=1, description="glat: share of the wrong symbols, when training begins")
    glance_end: float = Field(0.3, ge=0, le=1, description="glat: the share when training ends; linear between the two")


# The switch of the model that a setting belongs to, and the values of the switch with which it has an effect.
MODEL_SETTINGS = {
    "posterior_layers": ("latent", ("vae",)),
    "head_scale": ("latent", ("vae",)),
    "max_length_difference": ("loss", ("axe", "ce")),
}
OBJECTIVE_SETTINGS = {
    "skip_penalty": ("loss", ("axe",)),
    "length_weight": ("loss", ("axe", "ce")),
    **dict.fromkeys(Budget.model_fields, ("latent", ("vae",))),
}


def conflict(model: NatConfig, objective: NatObjectiveConfig) -> str | None:
    """Why a setting that was changed has no effect with the switches of this model; None where all have one."""
    for section, config, needs in (("model", model, MODEL_SETTINGS), ("objective", objective, OBJECTIVE_SETTINGS)):
        for name, (switch, values) in needs.items():
            if changed(config, name) and getattr(model, switch) not in values:
                return (
                    f"{section}.{name} is for model.{switch}: {' or '.join(values)}, and that is "
                    f"{getattr(model, switch)}; remove one of the two"
                )
    if objective.ngrams:
        if model.loss != "ctc" or model.latent != "none":
            return (
                f"objective.ngrams is for model.loss: ctc and model.latent: none, and these are {model.loss} and "
                f"{model.latent}; remove it"
            )
        for name in ("label_smoothing", "glance"):
            if changed(objective, name):
                return (
                    f"objective.{name} is of the likelihood, and objective.ngrams replaces that; remove one of the two"
                )
    for name in ("glance_count", "glance_share", "glance_end"):
        if changed(objective, name) and objective.glance != "glat":
            return (
                f"objective.{name} is for objective.glance: glat, and that is {objective.glance}; remove one of the two"
            )
    return None


def lacks(model: NatConfig) -> frozenset[str]:
    """CTC has alignments, which score outputs of any length; other losses have a length head; `latent` adds a prior."""
    absent = {LENGTHS} if model.loss == "ctc" else {ALIGNED, REPETITIONS, SCORER}
    return frozenset(absent if model.latent == "vae" else absent | {LATENT, SOURCE_LATENT})


def refuses(model: NatConfig, search: Search, settings: SearchSettings) -> str | None:
    """Searches of alignments need CTC, those of lengths a length head, those of latents a prior."""
    trait = search.needs[MODEL].trait
    if trait == ALIGNED and model.loss != "ctc":
        return f"needs model.loss: ctc, and that is {model.loss}; use search argmax"
    if trait == LENGTHS and model.loss == "ctc":
        return "needs model.loss: axe or ce, and that is ctc; use search ctc-greedy"
    if model.latent == "none" and (trait in (LATENT, SOURCE_LATENT) or getattr(settings, "draws", 0) > 0):
        condition = "" if trait in (LATENT, SOURCE_LATENT) else "with draws "
        return f"{condition}needs model.latent: vae, and that is none; train with latents, or use a search without"
    if trait == LATENT:
        if "lengths" in type(settings).model_fields:
            return "tries several lengths, and its latents are those of source positions; use search npd"
        for name in settings.named("length"):
            if getattr(settings, name) != settings.default(name):
                return f"takes no {name}: its latents are those of source positions; remove {name}"
    return None if model.loss == "ctc" else lengths_refusal(model.max_length_difference, settings)


def layers(model: NatConfig, _objective: NatObjectiveConfig | None) -> int:
    return model.encoder_layers + model.layers + 2 * model.posterior_layers * (model.latent == "vae")


FAMILY = Family(
    name="nat",
    title="Fully non-autoregressive",
    model=NatConfig,
    objective=NatObjectiveConfig,
    presets=Path(__file__).parents[3] / "config/models/nat.yaml",
    build="workflow_src.families.nat.model:NonAutoregressiveModel",
    loss="workflow_src.families.nat.objective:nat_loss",
    validation="workflow_src.families.nat.validation:validate",
    searches=("ctc-greedy", "ctc-beam", "argmax", "npd", "prior-mean", "delta"),
    layers=layers,
    positions=lambda model: model.upsample if model.loss == "ctc" else 1.0,
    traits=frozenset({ALIGNED, REPETITIONS, LENGTHS, LATENT, SOURCE_LATENT, SCORER, PARALLEL}),
    conflict=conflict,
    lacks=lacks,
    refuses=refuses,
    continues=continues,
    loss_title=loss_title,
    symbols=(BLANK,),
    look=Look("#6a3d9a", dark="#b79ae0"),
    order=4,
)
