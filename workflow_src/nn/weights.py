"""Weights of a model by name: saving them, and loading that refuses weights of another model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.atomic import load_tensors
from workflow_src.registry import families
from workflow_src.types import Symbols

# Advice for weights of other names or shapes.
ADVICE = "give weights of this model and configuration"


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by its first name (a shared embedding is saved once)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def set_weights(model: nn.Module, weights: dict[str, Tensor], where: str | Path) -> None:
    """Give `model` these weights.

    Raises ArtifactError naming the first that is missing, unknown, of another shape or not finite.
    """
    # Shapes of weights that are counts follow from the text.
    if reshape := getattr(model, "reshape", None):
        reshape(weights)
    parameters = dict(model.named_parameters())
    for name in parameters:
        if name not in weights:
            raise ArtifactError(where, f"has no {name}", ADVICE)
    for name, tensor in weights.items():
        if name not in parameters:
            raise ArtifactError(where, f"has {name}, which the model lacks", ADVICE)
        if parameters[name].shape != tensor.shape:
            raise ArtifactError(
                where,
                f"has {name} of shape {tuple(tensor.shape)}, the model needs {tuple(parameters[name].shape)}",
                ADVICE,
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ArtifactError(where, f"has values in {name} that are not finite", "make or copy it again")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def load_weights(model: nn.Module, path: str | Path) -> None:
    set_weights(model, load_tensors(path), path)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def copy_matching(module: nn.Module, weights: dict[str, Tensor], symbols: tuple[str, ...] | None = None) -> list[str]:
    """Copy the tensors whose name and shape agree with a parameter of `module`; returns their names.

    Rows of `module.symbols`, which follow the subwords in a vocabulary, stay as they are where the weights lack them or
    were trained with other `symbols` (their names). With None, a tensor of the same shape counts as one with the
    module's own symbols.
    """
    copied = []
    with torch.no_grad():
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if name in weights and (parts := _agreeing(module, parameter, weights[name], symbols)):
                own_part, part = parts
                own_part.copy_(part)
                copied.append(name)
    return copied


def symbols_of(family: str | None) -> tuple[str, ...] | None:
    """The symbols that a family adds to the vocabulary; None where it is not known."""
    declared = families().get(family or "")
    return declared.symbols if declared else None


def renamed(weights: dict[str, Tensor], places: Mapping[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """Weights by their names in another network: `places` has, for the beginnings of names, all that replace them.

    Names that begin with none of them stay.
    """
    tensors = {}
    for name, tensor in weights.items():
        start = next((start for start in places if name.startswith(start)), "")
        for own_start in places.get(start, ("",)):
            tensors[own_start + name.removeprefix(start)] = tensor
    return tensors


def copy_places(
    module: nn.Module,
    weights: dict[str, Tensor],
    places: Mapping[str, tuple[str, ...]],
    symbols: tuple[str, ...] | None = None,
) -> list[str]:
    """`copy_matching` of weights that are `renamed`.

    Raises ConfigError where the embeddings of the target have other subwords or another width: then hardly anything
    would be copied.
    """
    embedding = weights.get("target_embedding.weight", weights.get("source_embedding.weight"))
    own_embedding = module.get_parameter("target_embedding.weight")
    if embedding is not None and _agreeing(module, own_embedding, embedding, symbols) is None:
        raise ConfigError(
            "init_from",
            problem=f"its weights have an embedding of {tuple(embedding.shape)}, this model's is "
            f"{tuple(own_embedding.shape)}; both need the same subwords and the same model.dim",
            hint="change it or the preset",
        )
    return copy_matching(module, renamed(weights, places), symbols)


def _agreeing(
    module: nn.Module, parameter: Tensor, tensor: Tensor, symbols: tuple[str, ...] | None
) -> tuple[Tensor, Tensor] | None:
    """The parts of a parameter of `module` and of a tensor that `copy_matching` copies; None where their shapes do not
    agree."""
    own_symbols = getattr(module, "symbols", Symbols())
    foreign = 0 if symbols is None or symbols == own_symbols.names else len(symbols)
    if foreign and _lacks_symbols(parameter, tensor, own_symbols, foreign):
        subwords = own_symbols.first if own_symbols.names else parameter.size(0)
        return parameter[:subwords], tensor[:subwords]
    if tensor.shape == parameter.shape:
        return parameter, tensor
    if _lacks_symbols(parameter, tensor, own_symbols):
        return parameter[: own_symbols.first], tensor
    return None


def _lacks_symbols(parameter: Tensor, tensor: Tensor, symbols: Symbols, foreign: int = 0) -> bool:
    """Whether `parameter` ends with rows of `symbols` where `tensor` has `foreign` rows of other symbols."""
    if not (symbols.names or foreign) or not parameter.dim() or parameter.shape[1:] != tensor.shape[1:]:
        return False
    subwords = symbols.first if symbols.names else parameter.size(0)
    return (parameter.size(0), tensor.size(0)) == (subwords + len(symbols.names), subwords + foreign)
