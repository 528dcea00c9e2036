"""A system on disk: weights with their configuration beside them, written and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from workflow_src.artifacts import ArtifactError, read_json
from workflow_src.models.weights import load_weights
from workflow_src.registry import BUILDERS, build


def read_description(weights: str | Path) -> dict[str, Any]:
    """`config.json` beside a weights file. Raises ArtifactError when it is missing or describes no system."""
    path = Path(weights).with_name("config.json")
    description = read_json(path)
    missing = [key for key in ("family", "model", "sizes") if key not in description]
    if missing or description["family"] not in BUILDERS:
        raise ArtifactError(
            f"{path} does not describe a system (missing or unknown: {', '.join(missing) or 'family'})."
        )
    return description


def load_system(weights: str | Path, family: str | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """The model at `weights`, in evaluation mode, and its description; `family` is what it must be, if given."""
    description = read_description(weights)
    if family is not None and description["family"] != family:
        raise ArtifactError(f"weights {weights} are of family {description['family']}; {family} is needed here.")
    model = build(description["family"], description["model"], description["sizes"])
    load_weights(model, weights)
    return model.eval(), description
