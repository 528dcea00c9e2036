"""Settings of objectives that several families share. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen, changed


class Matches(Frozen):
    """Training by the expected matches of n-grams (`losses/matches.py`)."""

    ngrams: Literal[0, 1, 2] = Field(
        0,
        description="the expected matches of n-grams of this length are learned in place of the likelihood, by a "
        "system that starts from a trained one; 0: the likelihood",
    )


def loss_title(objective: Matches) -> str:
    """The title of a panel: matches are no likelihood in nats."""
    return "1 - F1 of n-grams" if objective.ngrams else "Training loss"


def continues(objective: Matches) -> str | None:
    """Outputs of an untrained system match nothing."""
    return f"objective.ngrams is {objective.ngrams}" if objective.ngrams else None


class CrossEntropyConfig(Frozen):
    label_smoothing: float = Field(0.1, ge=0, lt=1)


class OnePassConfig(CrossEntropyConfig):
    length_weight: float = Field(1.0, gt=0, description="times the loss of the length head is added")


Operator = Literal["SX", "STL", "SG", "ST", "GX"]


class RelaxedEnergyConfig(Frozen):
    """An autoregressive energy of relaxed outputs (Tu et al. 2020); the defaults are the paper's choice."""

    input_operator: Operator = Field("SX", description="from logits to what the energy's decoder reads (O1)")
    output_operator: Operator = Field("ST", description="from logits to what the energy's predictions score (O2)")
    length_weight: float = Field(1.0, gt=0, description="times the loss of the length head is added")


class Budget(Frozen):
    """Free nats: KL divergences below the budget cost nothing, so that latents learn to carry something first."""

    kl_budget: float = Field(1.0, ge=0, description="free nats a position in the first part of training")
    budget_hold: float = Field(0.1, ge=0, le=1, description="share of training with the full budget")
    budget_until: float = Field(0.4, ge=0, le=1, description="share of training at which it has fallen to its end")
    budget_end: float = Field(0.0, ge=0, description="budget from then on, kl_budget at most")

    @model_validator(mode="after")
    def _falls_after_it_was_held(self):
        if self.budget_until < self.budget_hold:
            raise ConfigError("budget_until", self.budget_until, allowed=f"{self.budget_hold:g} (budget_hold) or more")
        if self.budget_end > self.kl_budget:
            raise ConfigError("budget_end", self.budget_end, allowed=f"{self.kl_budget:g} (kl_budget) or less")
        for name in ("budget_hold", "budget_until"):
            if self.budget_end == self.kl_budget and changed(self, name):
                problem = f"kl_budget and budget_end are both {self.kl_budget:g}"
                raise ConfigError(name, getattr(self, name), problem=problem, hint="remove it, or change one of these")
        return self


class ElboConfig(Budget):
    """Settings of the ELBO of models with latents and a predicted length."""

    label_smoothing: float = Field(0.1, ge=0, lt=1)
    length_weight: float = Field(1.0, gt=0)
    length_smoothing: float = Field(
        0.0, ge=0, description="length labels are Gaussians of this deviation, in subwords, around the true difference"
    )


class ScoreMatchingConfig(Frozen):
    delta_steps: int = Field(4, gt=0, description="delta steps from z to its goal")
    noise_power: float = Field(3.0, gt=0, description="prior noise is scaled by u ** this, u uniform in [0, 1]")
    noise_scale: Literal["sentence", "batch"] = Field(
        "sentence", description="one u is drawn for each; the authors' code draws one for a batch, with noise_power 1"
    )
    pre_update_probability: float = Field(0.5, ge=0, le=1, description="chance of one own step before the goal")
    pre_update_after: float = Field(0.5, ge=0, lt=1, description="share of training before own steps begin")
    step_size: float = Field(1.0, gt=0)

    @model_validator(mode="after")
    def _own_steps_begin_where_there_are_some(self):
        if self.pre_update_probability == 0 and changed(self, "pre_update_after"):
            problem = "pre_update_probability is 0"
            raise ConfigError("pre_update_after", self.pre_update_after, problem=problem, hint="remove one of the two")
        return self
