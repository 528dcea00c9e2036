"""The networks of a bundle, ready to translate."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from workflow_src.errors import ArtifactError
from workflow_src.families.build import build
from workflow_src.nn.layers import narrow_stacks
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.nn.weights import set_weights
from workflow_src.records.atomic import load_tensors
from workflow_src.runtime import device_memory
from workflow_src.runtime.device import Runtime
from workflow_src.serving import bundle
from workflow_src.serving.bundle import AGAIN, DESCRIPTION, Description


def load_models(folder: Path, description: Description, runtime: Runtime) -> dict[str, nn.Module]:
    """The models of a bundle by name, on their device and ready to translate.

    Raises ArtifactError when weights are missing, damaged or of another model.
    """
    bundle.check_weights(folder, description)
    models = {}
    for name, network in description.models.items():
        path = folder / network.weights
        weights = load_tensors(path)
        # First without memory for weights, whose number the settings say.
        for device in ("meta", "cpu"):
            try:
                with torch.device(device):
                    model = build(network.family, network.model, network.sizes.model_dump(exclude_unset=True))
            except (RuntimeError, MemoryError, OverflowError) as failure:
                problem = f"models.{name} cannot be built ({' '.join(str(failure).split())[:200]})"
                raise ArtifactError(f"{folder / DESCRIPTION}:", problem, AGAIN) from None
            set_weights(model, weights, path)
            needed = sum(buffer.nbytes for buffer in model.buffers())
            if needed > device_memory.available(torch.device("cpu")):
                problem = f"models.{name} needs {needed / 1e9:,.1f} GB beside its weights"
                raise ArtifactError(f"{folder / DESCRIPTION}:", problem, AGAIN)
        models[name] = _placed(model, runtime).eval()
    return models


def _placed(model: nn.Module, runtime: Runtime) -> nn.Module:
    """The model on its device, in its precision."""
    if runtime.dtype == torch.float32:
        return model.to(runtime.device)
    if isinstance(model, AutoregressiveModel):
        # Its decoding step keeps everything in one type.
        return model.to(runtime.device, runtime.dtype)
    return narrow_stacks(model.to(runtime.device), runtime.dtype)
