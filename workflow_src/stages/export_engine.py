"""Stage export_engine: a bundle -> the folder of an engine that reads files of its own. The rule is export_NAME.

The folder has the subwords too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic import Field

from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.jobs import JobInputs, start
from workflow_src.records.atomic import read_json, room_for, sha256, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import engines, families, import_object, searches, searches_of
from workflow_src.serving import bundle as bundles
from workflow_src.serving.bundle import DESCRIPTION, copy_subwords
from workflow_src.spec import Engine, Export, Family, NoSettings


class Inputs(JobInputs):
    settings: NoSettings = NoSettings()
    engine: str = Field(description="name of the engine")
    bundle: Path = Field(description="exported folder")
    output_folder: Path


def export(engine: Engine, source: Path, folder: Path) -> str:
    """Write the bundle of the folder `source` to `folder` for `engine`. Returns a summary.

    Raises ArtifactError for a system that the engine does not serve, InputError where its library is missing.
    """
    from workflow_src.serving.translator import Translator

    bundle = Translator.load(source, device="cpu", precision="float32", threads=1)
    name, family = bundles.networks(bundle.description)[0]
    if not served(engine, family):
        trained_families = [candidate for candidate in families().values() if not candidate.imported]
        names_of_served = ", ".join(candidate.name for candidate in trained_families if served(engine, candidate))
        fix = f"{engine.title} can hold systems of family {names_of_served} only"
        raise ArtifactError(source, f"holds {bundle.description.system}", fix)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as building:
        with room_for(folder):
            assert engine.export is not None, "rules export for engines that declare `export`"
            exported: Export = import_object(engine.export)(bundle.models[name], bundle.subwords, Path(building))
        names = _moved(Path(building), folder)
    names += copy_subwords(source / "subwords", folder)
    weights = {"weights": exported.weights, "sha256": sha256(folder / exported.weights)}
    inputs, files = {"bundle": source / DESCRIPTION}, digests(folder, names)
    record = provenance({}, inputs, files, **exported.versions)
    description = read_json(source / DESCRIPTION)
    models = {name: description["models"][name] | weights}
    # The bundle may have searches that this engine does not compute.
    served_searches = [search for search in description["searches"] if search in served(engine, family)]
    changed = {"engine": engine.name, "searches": served_searches, "models": models, "provenance": record}
    # Systems that the bundle carries are not in the folder.
    changed["defaults"] = {name: value for name, value in description["defaults"].items() if name == "search"}
    write_json(folder / DESCRIPTION, description | changed)
    version = "".join(f" {version}" for version in exported.versions.values())
    return f"{bundle.description.system} is in {folder}, for {engine.title}{version}"


def _moved(building: Path, folder: Path) -> list[str]:
    """Move the files of `building` to `folder`, in place of an older bundle there; returns their names."""
    bundles.remove_bundle(folder)
    names = sorted(path.name for path in building.iterdir())
    for name in names:
        (building / name).chmod(0o644)
        (building / name).replace(folder / name)
    return names


def served(engine: Engine, family: Family) -> list[str]:
    """Names of the searches of a family that an engine serves."""
    searches_of_family = [searches()[name] for name in searches_of(family)]
    return [search.name for search in searches_of_family if engine.serves(family, search, search.settings()) is None]


def run(inputs: Inputs) -> str:
    exporting = {engine.name: engine for engine in engines().values() if engine.export}
    if inputs.engine not in exporting:
        raise ConfigError("engine", inputs.engine, problem="it exports nothing", allowed=exporting)
    return export(exporting[inputs.engine], inputs.bundle, inputs.output_folder)


if __name__ == "__main__":
    start(run, Inputs, __doc__)
