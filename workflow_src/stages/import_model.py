"""Stage import_model: a model that was made elsewhere -> the bundle of a system: its files, the subwords and the
normalisation of the recipe."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.resolved import System
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ConfigError
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import copy_file, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import families
from workflow_src.serving.bundle import DESCRIPTION, FORMAT, Description, copy_subwords, describe, remove_bundle
from workflow_src.spec import MODEL


class Inputs(JobInputs):
    settings: System = Field(description="the system: its family and model")
    languages: tuple[str, str] = Field(description="codes of source and target")
    seed: int = Field(description="the model is the same for every one")
    files: dict[str, Path] = Field(description="files of the model by their names in the bundle")
    subwords: Path = Field(description="folder of learn_subwords")
    normalisation: NormalisationConfig = Field(description="settings of the corpus's normalisation")
    output_folder: Path


def run(inputs: Inputs) -> str:
    from workflow_src.families.build import sizes_of

    settings, folder = inputs.settings, inputs.output_folder
    family, languages = settings.family, dict(zip(("source", "target"), inputs.languages, strict=True))
    if not family.imported or family.engine is None:
        allowed = [name for name, candidate in families().items() if candidate.imported]
        raise ConfigError("settings.family", family.name, problem="its models are not made elsewhere", allowed=allowed)
    model = settings.model.model_dump(mode="json")
    subwords = Subwords.load(inputs.subwords)
    remove_bundle(folder)
    for name, path in inputs.files.items():
        copy_file(path, folder / name)
    files = digests(folder, [*inputs.files, *copy_subwords(inputs.subwords, folder)])
    weights = next(iter(inputs.files))
    network = {
        "role": MODEL,
        "family": family.name,
        "model": model,
        "sizes": sizes_of(family.name, subwords),
        "weights": weights,
        "sha256": files[weights],
    }
    normalisation = inputs.normalisation.model_dump(mode="json")
    sources = {f"file {name}": path for name, path in inputs.files.items()}
    sources["subwords"] = inputs.subwords / "subwords.json"
    content = {
        "format": FORMAT,
        "system": settings.name,
        "seed": inputs.seed,
        "languages": languages,
        "normalisation": normalisation,
        "models": {family.name: network},
        **describe(family, models=[model]),
        "engine": family.engine,
    }
    # A model that cannot be opened is better refused now than when it translates. int8 takes the least room.
    from workflow_src.serving.opened import open_engine_folder

    open_engine_folder(folder, Description.model_validate(content), "cpu", "int8", 1)
    record = provenance(recorded(settings) | {"normalisation": normalisation}, sources, files)
    write_json(folder / DESCRIPTION, content | {"provenance": record})
    return f"{settings.name} is in {folder}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
