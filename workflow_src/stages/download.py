"""Stage: fetch a dataset's files and write its raw text: one file for its parts under train, dev and test each, and
language of a direction. Nothing is split or normalised here.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import IO

from pydantic import Field

from workflow_src.config.datasets import DatasetFiles
from workflow_src.data.cleaning import SCORES_FILE
from workflow_src.data.corpus import RawCorpus
from workflow_src.data.download import DOWNLOADS, MIRRORS_VARIABLE, Files, Patience, mirror_folders
from workflow_src.data.drops import left_out
from workflow_src.data.places import Places
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic, write_json
from workflow_src.records.provenance import digests, provenance


class DownloadSettings(DatasetFiles):
    folder: str | None = Field(None, description="the user's folder, of a dataset of kind folder")
    scores: bool = Field(False, description="write the scores of the training pairs too")


class Inputs(JobInputs):
    settings: DownloadSettings = Field(description="files and parts of the dataset")
    languages: tuple[str, str] = Field(description="codes of source and target")
    mirrors: tuple[str, ...] = Field((), description=f"folders; those of {MIRRORS_VARIABLE} come first")
    allow_unpinned: bool = Field(False, description="take files that the dataset has no checksum of")
    patience: Patience = Patience()
    downloads: Path = Field(DOWNLOADS, description="where downloaded files are kept")
    output_folder: Path


def write_parts(corpus: RawCorpus, folder: Path, scores: bool = False) -> tuple[dict[str, int], dict[str, Places]]:
    """Write {train,dev,test}.{language} for what the dataset has parts of, all files or none.

    With `scores` also train.scores: a number for each pair of train, or an empty line where it has none. Gives the
    number of pairs of each, and where those of dev and test come from.
    """
    counts = dict.fromkeys(corpus.dataset.raw_splits, 0)
    places = {name: Places() for name in counts if name != "train"}
    with contextlib.ExitStack() as stack:
        files: dict[str, list[IO[str]]] = {
            name: [stack.enter_context(atomic(folder / f"{name}.{code}")) for code in corpus.languages]
            for name in counts
        }
        scored = stack.enter_context(atomic(folder / SCORES_FILE)) if scores else None
        for name, pairs in corpus.parts():
            left, right = files[name]
            for pair in pairs:
                if scored is not None and name == "train":
                    scored.write(("" if pair.score is None else repr(pair.score)) + "\n")
                left.write(pair.first + "\n")
                right.write(pair.second + "\n")
                if name in places:
                    places[name].add(pair.names, pair.number)
                counts[name] += 1
        for name, count in counts.items():
            if not count:
                raise ArtifactError(name, f"of dataset {corpus.dataset.name} is empty", "check its parts")
    return counts, places


def run(inputs: Inputs) -> str:
    dataset, languages = inputs.settings, inputs.languages
    if languages[0] == languages[1]:
        raise ConfigError("--languages", list(languages), allowed="two languages that differ")
    mirrors = mirror_folders(inputs.mirrors)
    files = Files(dataset.files, inputs.downloads, mirrors, inputs.allow_unpinned, inputs.patience)
    folder = inputs.output_folder
    summary = folder / "raw.json"
    summary.unlink(missing_ok=True)
    with RawCorpus(dataset, languages, files.locate, dataset.folder) as corpus:
        counts, places = write_parts(corpus, folder, dataset.scores)
        dropped = {name: dict(corpus.dropped[name]) for name in counts}
    if not dataset.scores:
        (folder / SCORES_FILE).unlink(missing_ok=True)
    texts = [f"{name}.{code}" for name in counts for code in languages] + [SCORES_FILE] * dataset.scores
    sums = digests(folder, texts)
    own = {name: Path(name) for name in dataset.own_files(languages, dataset.folder)}
    record = provenance(recorded(dataset), own, sums)
    record["inputs"] |= {
        name: {key: file[key] for key in ("path", "sha256", "url")} for name, file in files.fetched.items()
    }
    write_json(
        summary,
        {
            "dataset": dataset.name,
            "languages": list(languages),
            "pairs": counts,
            "dropped": dropped,
            "places": {name: origins.runs for name, origins in places.items()},
            "sha256": sums,
            "downloads": files.fetched,
            "provenance": record,
        },
    )
    parts = ", ".join(f"{name} {count:,}{left_out(dropped[name])}" for name, count in counts.items())
    return f"{dataset.name} {'-'.join(languages)}: {parts} pairs"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
