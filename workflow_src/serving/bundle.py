"""Bundles: folders that hold all a translation needs. Their description, reading, and what exports write alike."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src.config.families import FAMILIES
from workflow_src.families.build import build
from workflow_src.nn.layers import narrow_stacks
from workflow_src.nn.weights import load_weights
from workflow_src.records.atomic import ArtifactError, copy_file, read_json, sha256
from workflow_src.runtime.device import Runtime

FORMAT = 1
DESCRIPTION = "bundle.json"
KEYS = ("models", "searches", "defaults", "languages", "normalisation")


def read_bundle(folder: Path) -> dict[str, Any]:
    """The description of a bundle. Raises ArtifactError when the folder is no bundle or one of another format."""
    if not (folder / DESCRIPTION).is_file():
        raise ArtifactError(f"{folder} is no bundle: it has no {DESCRIPTION}; export a trained system first.")
    description = read_json(folder / DESCRIPTION)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ArtifactError(f"{folder / DESCRIPTION} is not of bundle format {FORMAT}; export the system again.")
    missing = [key for key in KEYS if key not in description]
    if missing:
        raise ArtifactError(f"{folder / DESCRIPTION} lacks {missing[0]}; export the system again.")
    return description


def load_models(folder: Path, description: dict[str, Any], runtime: Runtime) -> dict[str, nn.Module]:
    """The models of a bundle by family, on their device and ready to translate.

    Raises ArtifactError when weights are missing, damaged or of another model.
    """
    models = {}
    for name, part in description["models"].items():
        path = folder / part["weights"]
        if not path.is_file():
            raise ArtifactError(f"bundle {folder} lacks {part['weights']}; export the system again.")
        if sha256(path) != part["sha256"]:
            raise ArtifactError(f"weights {path} do not match the checksum in {DESCRIPTION}; copy the bundle again.")
        model = build(part["family"], part["model"], part["sizes"])
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


def copy_subwords(source: Path, folder: Path) -> list[str]:
    """Copy the subword models into a bundle, instead of what is there; returns the names of the files in it."""
    shutil.rmtree(folder / "subwords", ignore_errors=True)
    for path in sorted(source.iterdir()):
        copy_file(path, folder / "subwords" / path.name)
    return [f"subwords/{path.name}" for path in sorted((folder / "subwords").iterdir())]


def describe(family: str) -> dict[str, Any]:
    """What a bundle of a system of this family can do: `searches` and `defaults`."""
    searches = list(FAMILIES[family].searches)
    if FAMILIES[family].built_on:
        searches = list(dict.fromkeys([*FAMILIES[FAMILIES[family].built_on].searches, *searches]))
    search = {"transformer": "beam", "lvm": "delta"}.get(family, family)
    refinement = FAMILIES[family].refinement
    defaults = {"search": search, "steps": 4, "beam": 4} | ({"refinement": refinement} if refinement else {})
    return {"searches": searches, "defaults": defaults}
