"""Stage finish_bundle: an exported folder for users, whose default search is the one that was best on dev."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.experiment import Removal
from workflow_src.config.resolved import Decode
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.choosing import dev_figure, read_choice
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import link_file, read_json, sha256, write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import members
from workflow_src.serving.bundle import DESCRIPTION, Description, choice_words, read_bundle, remove_bundle
from workflow_src.spec import Frozen, SearchSettings


class DevRow(Frozen):
    """A decode that was measured on dev, and one or both of the files with its BLEU."""

    decode: Decode
    removal: Removal
    quality: Path | None = None
    chosen: Path | None = None

    @property
    def files(self) -> dict[str, Path]:
        files = {"quality": self.quality, "chosen": self.chosen}
        return {f"{name} {self.decode.name}": path for name, path in files.items() if path}

    @property
    def figure(self) -> float:
        """Its BLEU on dev."""
        return dev_figure(self.removal, self.quality, self.chosen)

    @property
    def values(self) -> SearchSettings:
        """The settings of its search, with those that dev chose."""
        return self.decode.with_values(read_choice(self.chosen).chosen if self.chosen else {}).values


class FinishSettings(Frozen):
    experiment: str
    rows: tuple[DevRow, ...] = Field(description="decodes of the system that were measured on dev")
    search_defaults: dict[str, dict[str, Any]] = Field(description="settings by search that the experiment configures")
    remove_repetitions: Removal | None


class Inputs(JobInputs):
    settings: FinishSettings = Field(description="rows measured on dev, and defaults that the experiment configures")
    bundle: Path = Field(description="exported folder")
    output_folder: Path


def defaults_of(description: Description, settings: FinishSettings) -> dict[str, Any]:
    """Fields of a finished bundle's description about its searches: `defaults`, `search_defaults`, `default_from`, and
    `remove_repetitions` where the experiment does; nothing where it has no search."""
    if not description.searches:
        return {}
    # For each search its row with the highest BLEU on dev, the best one first; the first listed of equal ones.
    best: dict[str, DevRow] = {}
    for row in sorted(settings.rows, key=lambda row: -row.figure):
        if row.decode.search in description.searches:
            best.setdefault(row.decode.search, row)
    carried = {name: value for name, value in description.defaults.items() if name != "search"}
    fields = {search: default_fields(row.values, carried) for search, row in best.items()}
    fields |= settings.search_defaults
    search = next(iter(best), description.defaults["search"])
    chosen: dict[str, Any] = {"experiment": settings.experiment, "rows": len(settings.rows)}
    if search in settings.search_defaults:
        chosen["settings"] = "search_defaults"
    if search in best:
        row = best[search]
        chosen |= {"row": row.decode.name, "engine": row.decode.engine_word, "dev_bleu": row.figure}
    return {
        "defaults": description.defaults | {"search": search},
        "search_defaults": {name: values for name, values in fields.items() if values},
        "default_from": chosen,
        **({"remove_repetitions": settings.remove_repetitions} if settings.remove_repetitions else {}),
    }


def _plugged_default(content: dict[str, Any]) -> dict[str, Any]:
    """Entries of a bundle whose default search is a plug-in's: it lists the search, and needs the plug-in."""
    search, searches = content["defaults"].get("search"), content["searches"]
    owner = members().owners.get(("search", search))
    if owner is None or search in searches:
        return {}
    needed = content.get("plugins", [])
    needed = needed if owner.record() in needed else [*needed, owner.record()]
    return {"searches": [*searches, search], "plugins": needed}


def run(inputs: Inputs) -> str:
    export, folder, settings = inputs.bundle, inputs.output_folder, inputs.settings
    description = read_bundle(export)
    fields = defaults_of(description, settings)
    content = read_json(export / DESCRIPTION) | fields
    content |= _plugged_default(content)
    files = content["provenance"]["files"]
    remove_bundle(folder)
    for name, digest in files.items():
        link_file(export / name, folder / name)
        if sha256(folder / name) != digest:
            raise ArtifactError(export / name, f"differs from what {export / DESCRIPTION} says", "export it again")
    sources = {"bundle": export / DESCRIPTION}
    for row in settings.rows:
        sources |= row.files
    record = provenance(recorded(settings), sources, files)
    write_json(folder / DESCRIPTION, content | {"provenance": record})
    finished = read_bundle(folder)
    return f"{finished.system} is in {folder}" + (f": {choice_words(finished)}" if finished.searches else "")


def default_fields(settings: SearchSettings, carried: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a search that differ from the defaults of a bundle that carries systems.

    `carried` are names of carried systems by the setting that names one. The setting is None where the search works
    without that system.
    """
    kind = type(settings)
    defaults = {name: carried.get(name) if name in carried else _default(kind, name) for name in kind.model_fields}
    return {name: value for name, value in settings.model_dump(mode="json").items() if value != defaults[name]}


def _default(kind: type[SearchSettings], name: str) -> Any:
    """The default of a setting; None for a required one."""
    return None if kind.option(name).required else kind.default(name)


if __name__ == "__main__":
    start(run, Inputs, __doc__)
