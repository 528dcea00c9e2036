"""Sizes that Transformer stacks have, and weights of their layers and of LSTMs. No torch here."""

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


def encoder_layer(model: StackConfig) -> int:
    """Weights of one encoder layer: query, key, value and output of attention; two linear layers."""
    return 4 * model.dim * model.dim + 2 * model.dim * model.feed_forward


def decoder_layer(model: StackConfig) -> int:
    """Weights of one decoder layer: those of an encoder layer, and attention to the source."""
    return encoder_layer(model) + 4 * model.dim * model.dim


def refiner_weights(model: RefinerConfig, outputs: int) -> dict[str, int]:
    """Weights of a network from latents to `outputs` values a position."""
    return {"network": model.layers * decoder_layer(model) + model.latent_dim * model.dim + outputs * model.dim}


def lstm_weights(inputs: int, dim: int) -> int:
    """Weights of the matrix products of one LSTM layer in one direction."""
    return 4 * dim * (inputs + dim)


def bidirectional_weights(inputs: int, dim: int, layers: int) -> int:
    """Weights of the matrix products of `layers` bidirectional layers."""
    return 2 * (lstm_weights(inputs, dim) + (layers - 1) * lstm_weights(2 * dim, dim))
