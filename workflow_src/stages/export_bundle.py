"""Stage export_bundle: a folder that holds all a translation needs: weights, subwords, configuration, normalisation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from workflow_src.artifacts import provenance, sha256, write_json
from workflow_src.stages.command import parser, start
from workflow_src.training.systems import load_system
from workflow_src.translate import DESCRIPTION, FORMAT, describe


def run(given) -> str:
    folder: Path = given.output_folder
    models = {}
    description = {}
    (folder / DESCRIPTION).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for weights in filter(None, (given.base, given.model)):
        # Loading says now, not at the first translation, that weights and description fit each other.
        _, description = load_system(weights)
        family = description["family"]
        copied = folder / f"{family}.safetensors"
        shutil.copyfile(weights, copied)
        models[family] = {
            "family": family,
            "model": description["model"],
            "sizes": description["sizes"],
            "weights": copied.name,
            "sha256": sha256(copied),
        }
    shutil.rmtree(folder / "subwords", ignore_errors=True)
    shutil.copytree(given.subwords, folder / "subwords")
    inputs = {"model": given.model} | ({"base": given.base} if given.base else {})
    content = {
        "format": FORMAT,
        "system": description["system"],
        "seed": description["seed"],
        "languages": {"source": given.settings["source"], "target": given.settings["target"]},
        "normalisation": given.normalisation,
        "models": models,
        **describe(description["family"]),
        "provenance": provenance(given.settings, inputs),
    }
    write_json(folder / DESCRIPTION, content)
    return f"{description['system']} is in {folder}"


def arguments():
    made = parser(__doc__)
    made.add_argument("--model", type=Path, required=True)
    made.add_argument("--base", type=Path, help="weights of the latent-variable model beside a refiner's")
    made.add_argument("--subwords", type=Path, required=True)
    made.add_argument("--normalisation", type=json.loads, required=True)
    made.add_argument("--output-folder", type=Path, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
