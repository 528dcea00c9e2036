"""Iterative refinement with two decoders (Lee, Mansimov & Cho 2018): a first guess, and passes that refine a guess."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from workflow_src.config.base import distinct
from workflow_src.decoding.settings import lengths_refusal
from workflow_src.nn.settings import StackConfig
from workflow_src.spec import ITERATIVE, LENGTHS, PARALLEL, Family, Frozen, Look, changed

Corruption = Literal["swap", "replace", "repeat"]
CORRUPTIONS: tuple[Corruption, ...] = ("swap", "replace", "repeat")


class InatConfig(StackConfig):
    encoder_layers: int = Field(gt=0)
    layers: int = Field(gt=0, description="non-causal layers of each of the two decoders")
    carry_states: bool = Field(
        True,
        description="a pass reads the last states of the decoder before it beside the guess; without, a guess that "
        "repeats can change no more",
    )
    max_length_difference: int = Field(50, gt=0, description="the length head classifies |y|-|x| in [-this, this]")


class InatObjectiveConfig(Frozen):
    """Sum over passes of J = (1 - dae_mix) J_LVM + dae_mix J_DAE, and the loss of the length head."""

    passes: int = Field(4, ge=2, description="K of an update: the first decoder once, the second K - 1 times")
    guess: Literal["argmax", "sample"] = Field(
        "argmax", description="what the next pass reads: the most probable words, or words drawn from the last pass"
    )
    dae_mix: float = Field(
        0.5,
        ge=0,
        le=1,
        description="chance that a pass reads the corrupted target in place of the last guess, drawn for every "
        "sentence and pass: J = (1 - this) J_LVM + this J_DAE",
    )
    corruption_share: float = Field(0.2, gt=0, le=1, description="chance of a target word to be corrupted")
    corruptions: Annotated[tuple[Corruption, ...], AfterValidator(distinct)] = Field(
        CORRUPTIONS, min_length=1, description="changes of a corrupted word, each as likely"
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    length_weight: float = Field(1.0, gt=0, description="times the loss of the length head is added")


def conflict(_model: InatConfig, objective: InatObjectiveConfig) -> str | None:
    """Why a setting of corruption or of guesses has no effect; None where all have one."""
    for name in ("corruption_share", "corruptions"):
        if objective.dae_mix == 0 and changed(objective, name):
            return f"objective.{name} is for objective.dae_mix above 0, and that is 0; remove one of the two"
    if objective.dae_mix == 1 and objective.guess != "argmax":
        return (
            f"objective.guess is {objective.guess}, and with objective.dae_mix 1 no pass reads a guess; remove one of "
            "the two"
        )
    return None


def layers(model: InatConfig, objective: InatObjectiveConfig | None) -> int:
    """Every pass goes through one of the two decoders."""
    return model.encoder_layers + (objective.passes if objective else 2) * model.layers


FAMILY = Family(
    name="inat",
    title="Iterative refinement, two decoders",
    model=InatConfig,
    objective=InatObjectiveConfig,
    presets=Path(__file__).parents[3] / "config/models/inat.yaml",
    build="workflow_src.families.inat.model:IterativeRefinementModel",
    loss="workflow_src.families.inat.objective:refinement_loss",
    validation="workflow_src.families.inat.validation:validate",
    searches=("iterative-refinement", "argmax"),
    layers=layers,
    traits=frozenset({ITERATIVE, LENGTHS, PARALLEL}),
    conflict=conflict,
    start="workflow_src.families.inat.model:start",
    look=Look("#b15928", dark="#d98e5f"),
    order=5,
    refuses=lambda model, _search, settings: lengths_refusal(model.max_length_difference, settings),
)
