"""Stage export_bundle: a folder that holds all a translation needs: weights, subwords, configuration, normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.datasets import NormalisationConfig
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, start
from workflow_src.records.atomic import copy_file, sha256, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import carried, families
from workflow_src.serving.bundle import DESCRIPTION, FORMAT, copy_subwords, describe, names, remove_bundle
from workflow_src.spec import BASE, MODEL, NoSettings, phrase


class Inputs(JobInputs):
    settings: NoSettings = NoSettings()
    languages: tuple[str, str] = Field(description="codes of source and target")
    model: Path = Field(description="weights of the system")
    base: Path | None = Field(None, description="weights of the system that it is built on")
    roles: dict[str, Path] = Field(
        {}, description="weights in other roles of the family, and of systems that it carries"
    )
    subwords: Path = Field(description="folder of learn_subwords")
    normalisation: NormalisationConfig = Field(description="settings of the corpus's normalisation")
    output_folder: Path


def run(inputs: Inputs) -> str:
    from workflow_src.training.systems import read_description, role_input

    folder = inputs.output_folder
    check_base(inputs.model, inputs.base)
    check_roles(inputs.model, inputs.roles)
    subwords = Subwords.load(inputs.subwords)
    remove_bundle(folder)
    weights_by_role = {role: path for role, path in ((BASE, inputs.base), (MODEL, inputs.model)) if path} | inputs.roles
    descriptions = {role: read_description(path) for role, path in weights_by_role.items()}
    system = descriptions[MODEL]
    declared = {role: families()[description["family"]] for role, description in descriptions.items()}
    file_names = names({role: family.name for role, family in declared.items()})
    models = {
        file_names[role]: {"role": role, **copy_model(weights, folder / f"{file_names[role]}.safetensors", subwords)}
        for role, weights in weights_by_role.items()
    }
    copied_subwords = copy_subwords(inputs.subwords, folder)
    if Subwords.load(folder / "subwords").digest != subwords.digest:
        raise ArtifactError(folder / "subwords", f"differs from {inputs.subwords}", "export again")
    fields = describe(
        declared[MODEL],
        declared.get(BASE),
        [declared[role] for role in inputs.roles],
        [models[file_names[role]]["model"] for role in (MODEL, BASE) if role in file_names],
    )
    # Searches work with the systems that a bundle carries, by default.
    carries = carried(declared[MODEL])
    fields["defaults"] |= {
        carries[role].setting: descriptions[role]["system"] for role in inputs.roles if role in carries
    }
    files = {"model": inputs.model, "subwords": inputs.subwords / "subwords.json"}
    files |= {"base": inputs.base} if inputs.base else {}
    files |= {role_input(role): path for role, path in inputs.roles.items()}
    copies = [model["weights"] for model in models.values()] + copied_subwords
    normalisation = inputs.normalisation.model_dump(mode="json")
    languages = dict(zip(("source", "target"), inputs.languages, strict=True))
    content = {
        "format": FORMAT,
        "system": system["system"],
        "seed": system["seed"],
        "languages": languages,
        "normalisation": normalisation,
        "models": models,
        **fields,
        "provenance": provenance(
            {"languages": languages, "normalisation": normalisation}, files, digests(folder, copies)
        ),
    }
    write_json(folder / DESCRIPTION, content)
    return f"{system['system']} is in {folder}"


def copy_model(weights: Path, copy: Path, subwords: Subwords) -> dict[str, Any]:
    """Copy weights; returns the network's entry in bundle.json."""
    from workflow_src.training.systems import check_subwords, load_system

    # Loading shows now, before the first translation, whether weights and description fit each other.
    _, description = load_system(weights)
    check_subwords(description, subwords, weights)
    copy_file(weights, copy)
    # The digest that training recorded, so that damage of the file since then shows.
    digest = description.get("sha256") or sha256(weights)
    if sha256(copy) != digest:
        raise ArtifactError(copy, f"differs from {weights}", "look at the disk, and export again")
    return {
        **{name: description[name] for name in ("family", "model", "sizes", "longest_source") if name in description},
        "weights": copy.name,
        "sha256": digest,
    }


def check_base(model: Path, base: Path | None) -> None:
    """Raises ArtifactError where the base of a system is missing, not needed, or of a family that does not fit."""
    from workflow_src.training.systems import check_trait, read_description

    family = families()[read_description(model)["family"]]
    role = family.needs.get(BASE)
    if base is None:
        if role is None or role.optional:
            return
    elif role is not None:
        description = read_description(base)
        if role.trait is None or role.trait in families()[description["family"]].traits:
            if role.trait is not None:
                check_trait(description, base, role.trait)
            return
    bases = "nothing"
    if role is not None:
        bases = " or ".join(other.name for other in families().values() if role.trait in (None, *other.traits))
    actual = f"of family {read_description(base)['family']}" if base else "missing"
    raise ArtifactError(model, f"is of family {family.name}, which is built on {bases}", f"base is {actual}")


def check_roles(model: Path, files: dict[str, Path]) -> None:
    """Raises ArtifactError where roles beside the base are missing, unknown, or filled by unfit systems."""
    from workflow_src.training.systems import check_trait, read_description

    family = families()[read_description(model)["family"]]
    allowed = {name: role for name, role in family.needs.items() if name != BASE and not role.training}
    allowed |= {name: system.role for name, system in carried(family).items()}
    for name in sorted(set(files) - set(allowed)):
        raise ArtifactError(model, f"is of family {family.name}, which has no role {name}", "remove it from roles")
    for name, role in allowed.items():
        if name not in files:
            if not role.optional:
                raise ArtifactError(
                    model, f"is of family {family.name}, which needs the role {name}", "add it to roles"
                )
            continue
        description = read_description(files[name])
        actual = families()[description["family"]]
        if role.trait not in (None, *actual.traits):
            raise ArtifactError(
                files[name], f"is of family {actual.name}, and the {name} must be a system that {phrase(role.trait)}"
            )
        if role.trait is not None:
            check_trait(description, files[name], role.trait)


if __name__ == "__main__":
    start(run, Inputs, __doc__)
