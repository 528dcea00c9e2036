"""What the stages of the analyses share: their command line, their bundles, the sentences they take."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workflow_src import jobs
from workflow_src.config.analyses import scoring_systems
from workflow_src.data.lines import read_aligned
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.analyses import contents
from workflow_src.evaluation.quality.details import read_details
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.serving.folders import bundle_files, bundles, load


def make_parser(description: str) -> argparse.ArgumentParser:
    made = jobs.parser(description)
    made.add_argument("--bundles", nargs="+", required=True, metavar="SYSTEM=FOLDER")
    made.add_argument("--source", type=Path, required=True, help="normalised text, one sentence a line")
    made.add_argument("--target", type=Path, required=True, help="its translation, normalised like it")
    made.add_argument("--reference", type=Path, required=True, help="the translation as scores want it")
    made.add_argument("--output", type=Path, required=True)
    jobs.add_runtime(made)
    return made


def open_bundles(arguments: argparse.Namespace) -> dict[str, Any]:
    """A translator for each system that the settings name. Raises ValueError where a bundle is not given."""
    folders, needed = bundles(arguments.bundles), _systems(arguments.settings)
    for system in sorted(needed - set(folders)):
        raise ValueError(f'--bundles has no folder for system "{system}"; add {system}=FOLDER.')
    return load(folders, needed, arguments)


def _systems(settings: dict[str, Any]) -> set[str]:
    """Systems that settings name: those of searches, and those that score."""
    return {entry["system"] for entry in settings.get("searches", ())} | set(scoring_systems(settings))


@dataclasses.dataclass(frozen=True)
class Sentences:
    """Sentences of a split: their lines' numbers, from 0; sources and targets normalised; references to score with.

    `lines` is the number of all lines of the split.
    """

    lines: int
    numbers: list[int]
    sources: list[str]
    targets: list[str]
    references: list[str]


def sentences(arguments: argparse.Namespace, count: int) -> Sentences:
    """The first `count` lines, but for those that are empty on a side. Raises ValueError where nothing is left."""
    columns = read_aligned(arguments.source, arguments.target, arguments.reference)
    rows = list(enumerate(zip(*columns, strict=True)))[:count]
    chosen = [(number, *texts) for number, texts in rows if all(text.strip() for text in texts)]
    if not chosen:
        raise ValueError(f"the first {len(rows)} lines of {arguments.source} or of its translation are empty.")
    return Sentences(len(columns[0]), *map(list, zip(*chosen, strict=True)))


def target_ids(subwords: Subwords) -> dict[str, int]:
    """The id of every target piece."""
    return {piece: number for number, piece in enumerate(subwords.names()["target"])}


def outputs(path: Path, ids: dict[str, int], count: int) -> list[list[int]]:
    """Subword ids of translations from their details; `ids` are those of `target_ids`.

    Raises ArtifactError where the file does not fit.
    """
    details = read_details(path)
    if len(details) != count:
        raise ArtifactError(path, f"has {len(details)} lines, the source has {count}", "decode it again")
    try:
        return [[ids[piece] for piece in line["subwords"]] for line in details]
    except KeyError as unknown:
        raise ArtifactError(
            path, f"has {unknown}, which the system's subwords lack: both must be of one recipe", "decode it again"
        ) from None


def write(
    arguments: argparse.Namespace, name: str, files: Mapping[str, Path] = MappingProxyType({}), **found: Any
) -> None:
    """The analysis `name` as JSON, with its provenance; `files` are inputs beside text and bundles.

    Raises ArtifactError, and writes nothing, where reports could not read it: for figures that are no numbers, as of
    systems that diverged.
    """
    content = {"format": contents.FORMAT, "analysis": name, "split": arguments.source.stem, **found}
    advice = f"train the systems that it follows again, or switch analyses.{name} off"
    contents.check(content, f"analysis {name}, which is not written", advice)
    inputs = {name: getattr(arguments, name) for name in ("source", "target", "reference")} | dict(files)
    needed = _systems(arguments.settings)
    made = provenance(arguments.settings, inputs | bundle_files(bundles(arguments.bundles), needed))
    write_json(arguments.output, content | {"provenance": made})
