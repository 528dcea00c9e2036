"""Stage export_bundle: a folder that holds all a translation needs: weights, subwords, configuration, normalisation."""

from __future__ import annotations

import json
from pathlib import Path

from workflow_src.data.subwords import Subwords
from workflow_src.jobs import parser, start
from workflow_src.records.atomic import ArtifactError, copy_file, sha256, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import families
from workflow_src.serving.bundle import DESCRIPTION, FORMAT, copy_subwords, describe, names
from workflow_src.spec import BASE, MODEL
from workflow_src.training.systems import check_subwords, load_system, read_description


def run(given) -> str:
    folder: Path = given.output_folder
    models = {}
    _check_base(given)
    subwords = Subwords.load(given.subwords)
    (folder / DESCRIPTION).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {role: path for role, path in ((BASE, given.base), (MODEL, given.model)) if path}
    kinds = {role: read_description(path)["family"] for role, path in parts.items()}
    called = names(kinds)
    for role, weights in parts.items():
        # Loading says now, not at the first translation, that weights and description fit each other.
        _, description = load_system(weights)
        check_subwords(description, subwords, weights)
        copied = folder / f"{called[role]}.safetensors"
        copy_file(weights, copied)
        # A bundle vouches for what was trained, not for what a disk made of it.
        trained = description.get("sha256") or sha256(weights)
        if sha256(copied) != trained:
            raise ArtifactError(f"the copy {copied} differs from {weights}: look at the disk, and export again.")
        models[called[role]] = {
            "role": role,
            "family": kinds[role],
            "model": description["model"],
            "sizes": description["sizes"],
            "weights": copied.name,
            "sha256": trained,
        }
    copied_subwords = copy_subwords(given.subwords, folder)
    if Subwords.load(folder / "subwords").digest != subwords.digest:
        raise ArtifactError(f"the copy {folder}/subwords differs from {given.subwords}: export again.")
    inputs = {"model": given.model, "subwords": given.subwords / "subwords.json"}
    inputs |= {"base": given.base} if given.base else {}
    settings = given.settings | {"normalisation": given.normalisation}
    copies = [part["weights"] for part in models.values()] + copied_subwords
    content = {
        "format": FORMAT,
        "system": description["system"],
        "seed": description["seed"],
        "languages": {"source": given.settings["source"], "target": given.settings["target"]},
        "normalisation": given.normalisation,
        "models": models,
        **describe(families()[kinds[MODEL]], families()[kinds[BASE]] if BASE in kinds else None),
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
        return
    wanted = "nothing"
    if role is not None:
        wanted = " or ".join(one.name for one in families().values() if role.trait in (None, *one.traits))
    raise ArtifactError(
        f"{given.model} is of family {family.name}, which is built on {wanted}; --base is "
        f"{f'of family {there.name}' if there else 'missing'}."
    )


def arguments():
    made = parser(__doc__)
    made.add_argument("--model", type=Path, required=True)
    made.add_argument("--base", type=Path, help="weights of the system that it is built on")
    made.add_argument("--subwords", type=Path, required=True)
    made.add_argument("--normalisation", type=json.loads, required=True)
    made.add_argument("--output-folder", type=Path, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
