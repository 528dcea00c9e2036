"""A system on disk: weights with their configuration beside them, written and read, and the start of a training."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.families.build import build
from workflow_src.jobs import log
from workflow_src.nn.weights import copy_matching, load_weights, symbols_of, weights_of
from workflow_src.records.atomic import atomic, load_tensors, read_json, save_tensors, sha256, write_json
from workflow_src.records.provenance import digests
from workflow_src.registry import families, import_object
from workflow_src.spec import BASE, Family, parse, phrase


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


def role_input(role: str) -> str:
    """Name of the weights in a role, in records."""
    return f"role {role}"


def check_subwords(description: dict[str, Any], subwords: Subwords, weights: str | Path) -> None:
    """Raises ArtifactError when a system was trained with other subwords.

    A description that the user wrote may not name them: sizes of vocabularies are compared then.
    """
    sizes = description["sizes"]
    trained, actual = (sizes["source"], sizes["target"]), (subwords.source_size, subwords.target_size)
    if trained != actual:
        raise ArtifactError(
            weights,
            f"was trained with {trained[0]} source and {trained[1]} target subwords, these subwords have "
            f"{actual[0]} and {actual[1]}",
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
    """Raises ArtifactError when weights have another SHA-256 than their description."""
    if "sha256" in description and description["sha256"] != sha256(weights):
        raise ArtifactError(
            weights,
            "does not match the checksum in the config.json beside it: it was damaged or replaced",
            "train or copy the system again",
        )


def check_trait(description: dict[str, Any], weights: str | Path, trait: str) -> None:
    """Raises ArtifactError for a system that has not a trait, because of its family or of its model's settings."""
    family = families()[description["family"]]
    if trait not in family.traits:
        fits = (name for name, other in families().items() if trait in other.traits and not other.imported)
        names = " or ".join(fits)
        raise ArtifactError(weights, f"is of family {family.name}", f"{names} is needed here")
    if trait in family.lacks(parse(family.model, description["model"], f"{family.name}.model")):
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
    # Last, so that weights of another kind are reported as such.
    check_digest(description, weights)
    return model.eval(), description


def write_system(
    folder: Path,
    model: nn.Module,
    description: dict[str, Any],
    history: list[dict[str, Any]],
    record: Callable[[dict[str, str]], dict[str, Any]],
) -> None:
    """Write model.safetensors, training.jsonl (its `history`) and config.json into a folder.

    The description comes last: a folder with a description is complete. `record` makes its provenance from the digests
    of the other files.
    """
    (folder / "config.json").unlink(missing_ok=True)
    # Left by jobs that were killed here: the state's lock keeps others from writing now.
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)
    with atomic(folder / "training.jsonl") as file:
        for entry in history:
            file.write(json.dumps(entry, sort_keys=True) + "\n")
    weights = folder / "model.safetensors"
    save_tensors(weights, weights_of(model))
    files = digests(folder, ["model.safetensors", "training.jsonl"])
    content = description | {"sha256": files["model.safetensors"], "provenance": record(files)}
    write_json(folder / "config.json", content)


def load_base(family: Family, weights: Path | None) -> nn.Module | None:
    """The frozen system that a family is built on. Raises ConfigError where it is missing or not needed."""
    role = family.needs.get(BASE)
    if role is None:
        if weights is not None:
            problem = f"a system of family {family.name} is built on no other"
            raise ConfigError("base", str(weights), problem=problem, hint="remove it")
        return None
    if weights is None:
        if role.optional:
            return None
        problem = f"a system of family {family.name} is built on another"
        raise ConfigError("base", problem=problem, hint=f"add the weights of one that is {role.trait}")
    return load_system(weights, role.trait)[0]


def load_roles(family: Family, files: Mapping[str, Path], subwords: Subwords) -> dict[str, nn.Module]:
    """The frozen systems in the roles that a family needs beside its base, from weights by role.

    Raises ConfigError where one is missing or not needed, ArtifactError for other subwords in a role that must agree.
    """
    needed = {name: role for name, role in family.needs.items() if name != BASE}
    if unknown := sorted(set(files) - set(needed)):
        problem = f"no role of family {family.name}"
        raise ConfigError("roles", unknown[0], problem=problem, allowed=needed, hint="remove it")
    for name, role in needed.items():
        if name not in files and not role.optional:
            problem = f"a system of family {family.name} needs {name}"
            raise ConfigError("roles", problem=problem, hint=f"add {name} and the weights of a system")
    loaded = {name: load_system(path, needed[name].trait) for name, path in files.items()}
    for name, (_, description) in loaded.items():
        if "subwords" in needed[name].agree:
            check_subwords(description, subwords, files[name])
    return {name: model for name, (model, _) in loaded.items()}


def start_from(
    family: Family,
    model: nn.Module,
    subwords: Subwords,
    base: nn.Module | None,
    initial: Path | None,
    objective: Any,
    untrained: bool,
) -> None:
    """Start from the weights `initial`, from those of the base, or at random, as the family declares.

    Weights that are used `untrained`, or that the family continues with this `objective`, must be all of the model's,
    and of a model with the same settings. Raises ArtifactError where they are not, or where they were trained with
    other subwords; ConfigError where a family needs some and there are none.
    """
    tensors = load_tensors(initial) if initial else None
    # The user's own weights may have no description.
    description = None
    if initial and initial.with_name("config.json").exists():
        description = read_description(initial)
        check_digest(description, initial)
    initial_name = description["family"] if description else None
    if family.start is not None:
        copied = import_object(family.start)(model, tensors, initial_name, base)
    elif tensors is not None:
        copied = copy_matching(model, tensors, symbols_of(initial_name))
    else:
        copied = None
    continues = family.continues(objective) is not None
    if copied is None:
        if continues:
            problem = f"a system of family {family.name} continues one that is trained"
            raise ConfigError("initial", problem=problem, hint="add the weights of that one")
        return
    if initial:
        _check_copied(model, copied, initial, untrained or continues)
        if description:
            check_subwords(description, subwords, initial)
        if description and continues:
            _check_same_network(family, families()[description["family"]], initial)
            _check_same_settings(description, model, initial)
    total = sum(1 for _ in model.parameters())
    log.info("starts from %s: %d of %d tensors", initial or "the base", len(copied), total)


def _check_same_network(family: Family, initial_family: Family, weights: Path) -> None:
    """Raises ArtifactError for weights of another network, whose tensors may have the same names and shapes."""
    if initial_family.build != family.build:
        fits = " or ".join(name for name, other in families().items() if other.build == family.build)
        raise ArtifactError(weights, f"is of family {initial_family.name}", f"a system of family {fits} is needed here")


def _check_same_settings(description: dict[str, Any], model: nn.Module, weights: Path) -> None:
    """Raises ArtifactError for weights of a model with other settings, but for dropout.

    Even settings that shape no tensor change the outputs of weights.
    """
    trained, settings = description["model"], operator.attrgetter("config")(model).model_dump(mode="json")
    for name in settings:
        if name != "dropout" and name in trained and trained[name] != settings[name]:
            raise ArtifactError(
                weights, f"has model.{name} {trained[name]}, this model has {settings[name]}", "they must agree"
            )


def _check_copied(model: nn.Module, copied: list[str], weights: Path, need_all: bool) -> None:
    """Raises ArtifactError when weights fit nothing of the model, or not all where `need_all`."""
    shapes = {name: tensor.shape for name, tensor in model.named_parameters()}
    names = list(shapes)
    # Weights of another kind of network may fit in vectors alone, such as a bias.
    fits = any(len(shapes[name]) > 1 for name in copied if name in shapes) or set(names) == set(copied)
    if not fits or (need_all and set(names) - set(copied)):
        raise ArtifactError(
            weights,
            f"has {len(copied)} of this model's {len(names)} tensors in their shapes",
            "give weights of this family and size",
        )
