"""Stage export_bundle: a folder that holds all a translation needs: weights, subwords, configuration, normalisation."""

from __future__ import annotations

import json
from pathlib import Path

from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import parser, start
from workflow_src.records.atomic import copy_file, sha256, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import carried, families
from workflow_src.serving.bundle import DESCRIPTION, FORMAT, copy_subwords, describe, names
from workflow_src.spec import BASE, MODEL, phrase
from workflow_src.training.systems import (
    add_roles,
    check_subwords,
    check_trait,
    load_system,
    named_files,
    read_description,
    role_input,
)


def run(given) -> str:
    folder: Path = given.output_folder
    models = {}
    _check_base(given)
    _check_roles(given)
    subwords = Subwords.load(given.subwords)
    (folder / DESCRIPTION).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    others = named_files(given.roles)
    parts = {role: path for role, path in ((BASE, given.base), (MODEL, given.model), *others.items()) if path}
    kinds = {role: read_description(path)["family"] for role, path in parts.items()}
    called = names(kinds)
    for role, weights in parts.items():
        # Loading says now, not at the first translation, that weights and description fit each other.
        _, part = load_system(weights)
        check_subwords(part, subwords, weights)
        copied = folder / f"{called[role]}.safetensors"
        copy_file(weights, copied)
        # A bundle vouches for what was trained, not for what a disk made of it.
        trained = part.get("sha256") or sha256(weights)
        if sha256(copied) != trained:
            raise ArtifactError(copied, f"differs from {weights}", "look at the disk, and export again")
        models[called[role]] = {
            "role": role,
            "family": kinds[role],
            "model": part["model"],
            "sizes": part["sizes"],
            "weights": copied.name,
            "sha256": trained,
        }
    copied_subwords = copy_subwords(given.subwords, folder)
    if Subwords.load(folder / "subwords").digest != subwords.digest:
        raise ArtifactError(folder / "subwords", f"differs from {given.subwords}", "export again")
    inputs = {"model": given.model, "subwords": given.subwords / "subwords.json"}
    inputs |= {"base": given.base} if given.base else {}
    inputs |= {role_input(role): path for role, path in others.items()}
    settings = given.settings | {"normalisation": given.normalisation}
    copies = [part["weights"] for part in models.values()] + copied_subwords
    about = describe(
        families()[kinds[MODEL]],
        families()[kinds[BASE]] if BASE in kinds else None,
        [families()[kinds[role]] for role in others],
        [models[called[role]]["model"] for role in (MODEL, BASE) if role in called],
    )
    # Searches work with what is carried unless they are told otherwise.
    carries = carried(families()[kinds[MODEL]])
    own = {carries[role].setting: read_description(path)["system"] for role, path in others.items() if role in carries}
    about["defaults"] = about["defaults"] | own
    description = read_description(given.model)
    content = {
        "format": FORMAT,
        "system": description["system"],
        "seed": description["seed"],
        "languages": {"source": given.settings["source"], "target": given.settings["target"]},
        "normalisation": given.normalisation,
        "models": models,
        **about,
        "provenance": provenance(settings, inputs, digests(folder, copies)),
    }
    write_json(folder / DESCRIPTION, content)
    return f"{description['system']} is in {folder}"


def _check_base(given) -> None:
    family = families()[read_description(given.model)["family"]]
    there = families()[read_description(given.base)["family"]] if given.base else None
    role = family.needs.get(BASE)
    fits = there is None if role is None else there is not None and role.trait in (None, *there.traits)
    if fits or (role is not None and role.optional and there is None):
        if role is not None and role.trait is not None and there is not None:
            check_trait(read_description(given.base), given.base, role.trait)
        return
    wanted = "nothing"
    if role is not None:
        wanted = " or ".join(one.name for one in families().values() if role.trait in (None, *one.traits))
    raise ArtifactError(
        given.model,
        f"is of family {family.name}, which is built on {wanted}",
        f"--base is {f'of family {there.name}' if there else 'missing'}",
    )


def _check_roles(given) -> None:
    """Raises ArtifactError where roles beside the base are missing, unknown, or filled by what does not fit."""
    family, files = families()[read_description(given.model)["family"]], named_files(given.roles)
    needed = {name: role for name, role in family.needs.items() if name != BASE and not role.training}
    needed |= {name: one.role for name, one in carried(family).items()}
    missing = [name for name, role in needed.items() if name not in files and not role.optional]
    if missing or set(files) - set(needed):
        name = (missing or sorted(set(files) - set(needed)))[0]
        raise ArtifactError(
            given.model,
            f"is of family {family.name}, which {'needs' if missing else 'has'} {'the' if missing else 'no'} "
            f"role {name}",
            f"{'add it to' if missing else 'remove it from'} --roles",
        )
    for name, path in files.items():
        description = read_description(path)
        there, trait = families()[description["family"]], needed[name].trait
        if trait not in (None, *there.traits):
            raise ArtifactError(
                path, f"is of family {there.name}, and the {name} must be a system that {phrase(trait)}"
            )
        if trait is not None:
            check_trait(description, path, trait)


def arguments():
    made = parser(__doc__)
    made.add_argument("--model", type=Path, required=True)
    made.add_argument("--base", type=Path, help="weights of the system that it is built on")
    add_roles(made)
    made.add_argument("--subwords", type=Path, required=True)
    made.add_argument("--normalisation", type=json.loads, required=True)
    made.add_argument("--output-folder", type=Path, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
