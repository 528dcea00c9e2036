"""Model families as the configuration sees them: their settings, their rule, their searches. No torch here."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pydantic import Field, model_validator

from workflow_src.config.base import Frozen

# Searches of autoregressive systems; those that move a latent step by step; and the one that ranks candidates.
AUTOREGRESSIVE_SEARCHES = ("greedy", "beam")
REFINEMENTS = ("delta", "score", "energy")
LATENT_SEARCH = "latent-search"
# Settings of a search that belong to some searches only.
SEARCHES_OF_SETTING = {
    "length_penalty": ("beam",),
    "max_length_ratio": AUTOREGRESSIVE_SEARCHES,
    "step_size": (*REFINEMENTS, LATENT_SEARCH),
    "length_quantile": ("prior-mean", *REFINEMENTS),
    "lengthening": ("prior-mean", *REFINEMENTS, LATENT_SEARCH),
    "stop_threshold": REFINEMENTS,
    "lengths": (LATENT_SEARCH,),
    "samples": (LATENT_SEARCH,),
    "mean_first": (LATENT_SEARCH,),
    "search_seed": (LATENT_SEARCH,),
    "rescorer": (LATENT_SEARCH,),
}


class StackConfig(Frozen):
    """Sizes that every Transformer stack has."""

    dim: int = Field(gt=0, description="model width D")
    feed_forward: int = Field(gt=0, description="width of the feed-forward layers")
    heads: int = Field(gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)
    norm: Literal["pre", "post"] = "pre"
    max_positions: int = Field(512, gt=0, description="longest sequence in subwords, end symbol counted")

    @model_validator(mode="after")
    def _heads_divide(self):
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} must be a multiple of heads {self.heads}")
        if self.dim % 2:
            raise ValueError(f"dim {self.dim} must be even, because sinusoidal positions come in pairs")
        return self


class TransformerConfig(StackConfig):
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)


class LvmConfig(StackConfig):
    encoder_layers: int = Field(gt=0)
    layers: int = Field(gt=0, description="layers of the prior, of the posterior and of the decoder, each")
    latent_dim: int = Field(8, gt=0, description="width Z of one latent")
    max_length_difference: int = Field(50, gt=0, description="the length head classifies |y|-|x| in [-this, this]")
    # The defaults of what came later are what bundles without them were trained with; presets say what is used now.
    end_symbol: bool = Field(
        False,
        description="the target has an end symbol with a latent of its own; an end symbol in an output is dropped",
    )
    decoder_skip: bool = Field(
        False, description="x <- (x0 + layer(x)) / sqrt(2) after each decoder layer, as the authors' code has it"
    )
    length_pooling: Literal["mean", "attention"] = Field("mean", description="of source states in the length head")
    head_scale: float = Field(0.1, gt=0, description="scale of the mean and deviation heads at the start")


class RefinerConfig(StackConfig):
    layers: int = Field(gt=0)
    latent_dim: int = Field(8, gt=0)
    energy_pooling: Literal["mean", "sum"] = Field("mean", description="how an energy network pools positions")
    positions: bool = Field(True, description="position codes are added to the latents; the authors' code has none")
    start: Literal["decoder", "random"] = Field(
        "decoder", description="first weights: the decoder's of the base, or random ones as in the authors' code"
    )


class CrossEntropyConfig(Frozen):
    label_smoothing: float = Field(0.1, ge=0, lt=1)


class ElboConfig(Frozen):
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    kl_budget: float = Field(1.0, ge=0, description="free nats a target position in the first part of training")
    budget_hold: float = Field(0.1, ge=0, le=1, description="share of training with the full budget")
    budget_until: float = Field(0.4, ge=0, le=1, description="share of training at which it has fallen to its end")
    budget_end: float = Field(0.0, ge=0, description="budget from then on")
    length_weight: float = Field(1.0, ge=0)
    length_smoothing: float = Field(
        0.0, ge=0, description="length labels are Gaussians of this deviation, in subwords, around the true difference"
    )
    dev_samples: int = Field(4, gt=0, description="samples of z in the dev ELBO")

    @model_validator(mode="after")
    def _falls_after_it_was_held(self):
        if self.budget_until < self.budget_hold:
            raise ValueError(
                f"budget_until {self.budget_until:g} is before budget_hold {self.budget_hold:g}; raise budget_until to "
                "at least budget_hold"
            )
        return self


class ScoreMatchingConfig(Frozen):
    delta_steps: int = Field(4, gt=0, description="delta steps from z to its goal")
    noise_power: float = Field(3.0, gt=0, description="prior noise is scaled by u ** this, u uniform in [0, 1]")
    noise_scale: Literal["sentence", "batch"] = Field(
        "sentence", description="what shares one u; the authors' code draws one for a batch, with noise_power 1"
    )
    pre_update_probability: float = Field(0.5, ge=0, le=1, description="chance of one own step before the goal")
    pre_update_after: float = Field(0.5, ge=0, le=1, description="share of training before own steps begin")
    step_size: float = Field(1.0, gt=0)


@dataclasses.dataclass(frozen=True)
class Family:
    """A model family: `built_on` is the family its `base` must have, `searches` what can decode it."""

    model: type[Frozen]
    objective: type[Frozen]
    rule: str
    searches: tuple[str, ...]
    built_on: str | None = None
    # What latent search refines its candidates with.
    refinement: str | None = None

    @property
    def autoregressive(self) -> bool:
        return self.searches == AUTOREGRESSIVE_SEARCHES


FAMILIES: dict[str, Family] = {
    "transformer": Family(TransformerConfig, CrossEntropyConfig, "train_teacher", AUTOREGRESSIVE_SEARCHES),
    "lvm": Family(LvmConfig, ElboConfig, "train_lvm", ("prior-mean", "delta", LATENT_SEARCH), refinement="delta"),
    "score": Family(
        RefinerConfig,
        ScoreMatchingConfig,
        "train_refiner",
        ("score", LATENT_SEARCH),
        built_on="lvm",
        refinement="score",
    ),
    "energy": Family(
        RefinerConfig,
        ScoreMatchingConfig,
        "train_refiner",
        ("energy", LATENT_SEARCH),
        built_on="lvm",
        refinement="energy",
    ),
}
