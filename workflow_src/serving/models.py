"""The networks of a bundle with their weights, on a device."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from workflow_src import registry
from workflow_src.errors import ArtifactError
from workflow_src.families.build import build
from workflow_src.nn.layers import narrow_stacks
from workflow_src.nn.weights import load_weights
from workflow_src.records.atomic import sha256
from workflow_src.records.checked import checked
from workflow_src.runtime.device import Runtime
from workflow_src.serving.bundle import AGAIN, DESCRIPTION, Description


def load_models(folder: Path, description: Description, runtime: Runtime) -> dict[str, nn.Module]:
    """The models of a bundle by name, on their device and ready to translate.

    Raises ArtifactError when weights are missing, damaged or of another model.
    """
    models = {}
    for name, network in description.models.items():
        path = folder / network.weights
        if not path.is_file():
            raise ArtifactError(folder, f"lacks {network.weights}", AGAIN)
        if sha256(path) != network.sha256:
            raise ArtifactError(path, f"does not match the checksum in {DESCRIPTION}", "copy the bundle again")
        declared = registry.families()[network.family].model
        checked(declared, network.model, f"{folder / DESCRIPTION}: models.{name}.model", AGAIN)
        model = build(network.family, network.model, network.sizes.model_dump(exclude_unset=True))
        load_weights(model, path)
        models[name] = _placed(model, runtime).eval()
    return models


def _placed(model: nn.Module, runtime: Runtime) -> nn.Module:
    """The model on its device, in its precision."""
    if runtime.dtype == torch.float32:
        return model.to(runtime.device)
    if hasattr(model, "start"):
        # Its decoding step keeps everything in one type.
        return model.to(runtime.device, runtime.dtype)
    return narrow_stacks(model.to(runtime.device), runtime.dtype)
