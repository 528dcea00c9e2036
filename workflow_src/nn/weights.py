"""Weights by name: what is saved of a model, and loading that refuses what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.atomic import load_tensors
from workflow_src.types import Symbols

# What to do with weights of other names or shapes.
OTHER = "give weights of this model and configuration"


@runtime_checkable
class Counted(Protocol):
    """A model whose weights are counts: their shapes follow from the text."""

    def reshape(self, weights: dict[str, Tensor]) -> None:
        """Give the parameters the shapes of `weights`."""


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by its first name (a shared embedding is saved once)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def set_weights(model: nn.Module, weights: dict[str, Tensor], where: str | Path) -> None:
    """Give `model` these weights.

    Raises ArtifactError naming the first that is missing, unknown, of another shape or not finite.
    """
    if isinstance(model, Counted):
        model.reshape(weights)
    own = dict(model.named_parameters())
    for name in own:
        if name not in weights:
            raise ArtifactError(where, f"has no {name}", OTHER)
    for name, tensor in weights.items():
        if name not in own:
            raise ArtifactError(where, f"has {name}, which the model lacks", OTHER)
        if own[name].shape != tensor.shape:
            raise ArtifactError(
                where, f"has {name} of shape {tuple(tensor.shape)}, the model needs {tuple(own[name].shape)}", OTHER
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ArtifactError(where, f"has values in {name} that are not finite", "make or copy it again")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def load_weights(model: nn.Module, path: str | Path) -> None:
    set_weights(model, load_tensors(path), path)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def copy_matching(module: nn.Module, weights: dict[str, Tensor], symbols: tuple[str, ...] | None = None) -> list[str]:
    """Copy the tensors whose name and shape agree with a parameter of `module`; returns their names.

    Rows of `module.symbols`, which follow the subwords in a vocabulary, stay as they are where the weights lack them or
    have rows of other `symbols`: the names of those that the weights were trained with. With None, a tensor of the same
    shape is taken to have the module's own symbols.
    """
    copied = []
    own = getattr(module, "symbols", Symbols())
    others = 0 if symbols is None or symbols == own.names else len(symbols)
    with torch.no_grad():
        for name, parameter in module.named_parameters(remove_duplicate=False):
            tensor = weights.get(name)
            if tensor is None:
                continue
            if others and _lacks_symbols(parameter, tensor, own, others):
                subwords = own.first if own.names else parameter.size(0)
                parameter[:subwords].copy_(tensor[:subwords])
            elif tensor.shape == parameter.shape:
                parameter.copy_(tensor)
            elif _lacks_symbols(parameter, tensor, own):
                parameter[: own.first].copy_(tensor)
            else:
                continue
            copied.append(name)
    return copied


def copy_places(
    module: nn.Module, weights: dict[str, Tensor], places: Callable[[str], list[str]] | None = None
) -> list[str]:
    """`copy_matching` of another model's weights; `places` maps a name there to the names of parameters here.

    Raises ConfigError where the embeddings of the target have another shape: then hardly anything would be copied.
    """
    other = weights.get("target_embedding.weight", weights.get("source_embedding.weight"))
    own = module.get_parameter("target_embedding.weight")
    if other is not None and other.shape != own.shape:
        raise ConfigError(
            "init_from",
            problem=f"its weights have an embedding of {tuple(other.shape)}, this model's is {tuple(own.shape)}; both "
            "need the same subwords and the same model.dim",
            hint="change it or the preset",
        )
    if places is None:
        return copy_matching(module, weights)
    return copy_matching(module, {own: weights[name] for name in weights for own in places(name)})


def _lacks_symbols(own: Tensor, other: Tensor, symbols: Symbols, others: int = 0) -> bool:
    """Whether `own` ends with rows of `symbols` where `other` has `others` rows of other symbols."""
    if not (symbols.names or others) or not own.dim() or own.shape[1:] != other.shape[1:]:
        return False
    subwords = symbols.first if symbols.names else own.size(0)
    return (own.size(0), other.size(0)) == (subwords + len(symbols.names), subwords + others)
