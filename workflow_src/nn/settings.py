"""Sizes that Transformer stacks have. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen


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
            raise ConfigError("dim", self.dim, allowed=f"a multiple of {self.heads} (heads)")
        if self.dim % 2:
            raise ConfigError("dim", self.dim, problem="sinusoidal positions come in pairs", allowed="an even number")
        return self


class RefinerConfig(StackConfig):
    """A network over latents: decoder layers that read the source states of a base."""

    layers: int = Field(gt=0)
    latent_dim: int = Field(8, gt=0)
    positions: bool = Field(True, description="position codes are added to the latents; the authors' code has none")
    start: Literal["decoder", "random"] = Field(
        "decoder", description="first weights: the decoder's of the base, or random ones as in the authors' code"
    )
