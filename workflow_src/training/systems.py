"""A system on disk: weights with their configuration beside them, written and read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from workflow_src.config.base import parse
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.families.build import build
from workflow_src.jobs import named_paths
from workflow_src.nn.weights import load_weights, weights_of
from workflow_src.records.atomic import atomic, read_json, save_tensors, sha256, write_json
from workflow_src.records.provenance import digests
from workflow_src.registry import families
from workflow_src.spec import phrase


def read_description(weights: str | Path) -> dict[str, Any]:
    """`config.json` beside a weights file. Raises ArtifactError when it is missing or describes no system."""
    path = Path(weights).with_name("config.json")
    description = read_json(path)
    if not isinstance(description, dict):
        description = {}
    missing = [key for key in ("family", "model", "sizes") if key not in description]
    if missing or description["family"] not in families():
        raise ArtifactError(path, f"does not describe a system (missing or unknown: {', '.join(missing) or 'family'})")
    return description


def add_roles(made: argparse.ArgumentParser) -> None:
    """The option for weights of systems in roles beside the base: `--roles critic=FILE`."""
    made.add_argument(
        "--roles", nargs="+", default=[], metavar="ROLE=FILE", help="weights in other roles of the family"
    )


def named_files(words: list[str]) -> dict[str, Path]:
    """ROLE=FILE words as a mapping. Raises ValueError for a word of another form."""
    return named_paths("--roles", "ROLE=FILE", words)


def role_input(role: str) -> str:
    """What a record calls the weights in a role."""
    return f"role {role}"


def description_if_any(weights: str | Path) -> dict[str, Any] | None:
    """The description beside the weights; None where the user's own weights have none."""
    return read_description(weights) if Path(weights).with_name("config.json").exists() else None


def check_subwords(description: dict[str, Any], subwords: Subwords, weights: str | Path) -> None:
    """Raises ArtifactError when a system was trained with other subwords.

    A description of the user's own need not say which they were: sizes of vocabularies are compared then.
    """
    sizes = description["sizes"]
    wanted, there = (sizes["source"], sizes["target"]), (subwords.source_size, subwords.target_size)
    if wanted != there:
        raise ArtifactError(
            weights,
            f"was trained with {wanted[0]} source and {wanted[1]} target subwords, these subwords have "
            f"{there[0]} and {there[1]}",
            "use the subwords that the system was trained with",
        )
    if description.get("subwords", subwords.digest) != subwords.digest:
        raise ArtifactError(
            weights,
            f"was trained with other subwords of the same number, digest {description['subwords'][:12]}, these "
            f"have {subwords.digest[:12]}",
            "use the subwords that the system was trained with",
        )


def check_digest(description: dict[str, Any], weights: str | Path) -> None:
    """Raises ArtifactError when a description says a SHA-256 and the weights have another."""
    if "sha256" in description and description["sha256"] != sha256(weights):
        raise ArtifactError(
            weights,
            "does not match the checksum in the config.json beside it: it was damaged or replaced",
            "train or copy the system again",
        )


def lacking(description: dict[str, Any]) -> frozenset[str]:
    """Traits of its family that a described system has not, with the settings of its model."""
    family = families()[description["family"]]
    return family.lacks(parse(family.model, description["model"], f"{family.name}.model"))


def check_trait(description: dict[str, Any], weights: str | Path, trait: str) -> None:
    """Raises ArtifactError for a system that has not a trait, because of its family or of its model's settings."""
    family = families()[description["family"]]
    if trait not in family.traits:
        wanted = " or ".join(name for name, other in families().items() if trait in other.traits)
        raise ArtifactError(weights, f"is of family {family.name}", f"{wanted} is needed here")
    if trait in lacking(description):
        raise ArtifactError(
            weights,
            f"is of family {family.name}",
            f"a system that {phrase(trait)} is needed here, and with its model settings it is none",
        )


def load_system(weights: str | Path, trait: str | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """The model at `weights`, in evaluation mode, and its description; it must have `trait`, if given."""
    description = read_description(weights)
    if trait is not None:
        check_trait(description, weights, trait)
    model = build(description["family"], description["model"], description["sizes"])
    load_weights(model, weights)
    # Last, so that weights of another kind are told as such.
    check_digest(description, weights)
    return model.eval(), description


def write_system(
    folder: Path,
    model: nn.Module,
    description: dict[str, Any],
    history: list[dict[str, Any]],
    made: Callable[[dict[str, str]], dict[str, Any]],
) -> None:
    """Write model.safetensors, training.jsonl (its `history`) and config.json into a folder.

    The description comes last: it says which weights it describes, and a folder with a description is complete. `made`
    gives its provenance, from the digests of the files that it vouches for.
    """
    (folder / "config.json").unlink(missing_ok=True)
    # What jobs that were killed here have left: the state's lock says that no other is writing.
    for partial in folder.glob(".*.partial"):
        partial.unlink()
    with atomic(folder / "training.jsonl") as file:
        for entry in history:
            file.write(json.dumps(entry, sort_keys=True) + "\n")
    weights = folder / "model.safetensors"
    save_tensors(weights, weights_of(model))
    files = digests(folder, ["model.safetensors", "training.jsonl"])
    whole = description | {"sha256": files["model.safetensors"], "provenance": made(files)}
    write_json(folder / "config.json", whole)
