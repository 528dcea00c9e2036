"""Stage export_ctranslate2: an autoregressive bundle -> a folder for CTranslate2, subwords included."""

from __future__ import annotations

import tempfile
from pathlib import Path

from workflow_src.engines import CTRANSLATE2
from workflow_src.engines.ctranslate2_spec import library, write_model
from workflow_src.jobs import parser, start
from workflow_src.records.atomic import ArtifactError, room_for, sha256, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import families, searches, searches_of
from workflow_src.serving import bundle as bundles
from workflow_src.serving.bundle import DESCRIPTION, copy_subwords
from workflow_src.serving.translator import Translator
from workflow_src.spec import Engine, Family


def run(given) -> str:
    version = library().__version__
    folder: Path = given.output_folder
    bundle = Translator.load(given.bundle, device="cpu", precision="float32", threads=1)
    name, family = bundles.networks(bundle.description)[0]
    if not serves(CTRANSLATE2, family):
        served = ", ".join(other.name for other in families().values() if serves(CTRANSLATE2, other))
        raise ArtifactError(
            f"{given.bundle} holds {bundle.description['system']}; {CTRANSLATE2.title} can hold systems of family "
            f"{served} only."
        )
    (folder / DESCRIPTION).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as building:
        with room_for(folder / "model.bin"):
            write_model(bundle.models[name], bundle.subwords.names(), building)
        for old in (*folder.glob("*vocabulary.json"), *folder.glob("*.bin")):
            old.unlink()
        names = sorted(path.name for path in Path(building).iterdir())
        for file in names:
            made = Path(building, file)
            made.chmod(0o644)
            made.replace(folder / file)
    names += copy_subwords(given.bundle / "subwords", folder)
    model = bundle.description["models"][name] | {
        "weights": "model.bin",
        "sha256": sha256(folder / "model.bin"),
    }
    inputs, files = {"bundle": given.bundle / DESCRIPTION}, digests(folder, names)
    made_by = provenance(given.settings, inputs, files, **{CTRANSLATE2.name: version})
    write_json(
        folder / DESCRIPTION,
        bundle.description | {"engine": CTRANSLATE2.name, "models": {name: model}, "provenance": made_by},
    )
    return f"{bundle.description['system']} is in {folder}, for {CTRANSLATE2.title} {version}"


def serves(engine: Engine, family: Family) -> bool:
    """Whether an engine serves some search of a family."""
    known = [searches()[name] for name in searches_of(family)]
    return any(engine.serves(family, search, search.settings()) is None for search in known)


def arguments():
    made = parser(__doc__)
    made.add_argument("--bundle", type=Path, required=True)
    made.add_argument("--output-folder", type=Path, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
