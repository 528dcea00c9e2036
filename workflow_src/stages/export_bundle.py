"""Stage export_bundle: a folder that holds all a translation needs: weights, subwords, configuration, normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.roles import carried
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, start
from workflow_src.records.atomic import copy_file, sha256, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import families
from workflow_src.serving.bundle import DESCRIPTION, FORMAT, copy_subwords, describe, names, remove_bundle
from workflow_src.spec import BASE, MODEL, NoSettings


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
    filled = ({BASE: inputs.base} if inputs.base else {}) | inputs.roles
    # The base comes before the system, and other roles behind both.
    weights = ({BASE: inputs.base} if inputs.base else {}) | {MODEL: inputs.model} | inputs.roles
    descriptions = {role: read_description(path) for role, path in weights.items()}
    system = descriptions[MODEL]
    declared = {role: families()[description["family"]] for role, description in descriptions.items()}
    subwords = Subwords.load(inputs.subwords)
    remove_bundle(folder)
    file_names = names({role: family.name for role, family in declared.items()})
    models = {
        file_names[role]: {"role": role, **copy_model(path, folder / f"{file_names[role]}.safetensors", subwords)}
        for role, path in weights.items()
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
    files |= {role if role == BASE else role_input(role): path for role, path in filled.items()}
    copies = [model["weights"] for model in models.values()] + copied_subwords
    settings = {
        "languages": dict(zip(("source", "target"), inputs.languages, strict=True)),
        "normalisation": inputs.normalisation.model_dump(mode="json"),
    }
    content = {
        "format": FORMAT,
        "system": system["system"],
        "seed": system["seed"],
        **settings,
        "models": models,
        **fields,
        "provenance": provenance(settings, files, digests(folder, copies)),
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


if __name__ == "__main__":
    start(run, Inputs, __doc__)
