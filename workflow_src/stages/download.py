"""Stage: fetch a dataset's files and write its raw text: a file of each language for train, dev and each test set;
further references beside them. Nothing is split or normalised here.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import IO

from pydantic import Field

from workflow_src.config.datasets import DatasetFiles, raw_names
from workflow_src.data.cleaning import SCORES_FILE
from workflow_src.data.corpus import RawCorpus
from workflow_src.data.download import DOWNLOADS, MIRRORS_VARIABLE, Files, Patience, mirror_folders, without_passwords
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


def texts_of(dataset: DatasetFiles, split: str, languages: tuple[str, str]) -> list[str]:
    """Names of the raw texts of a split: source, target, further references."""
    return raw_names(split, languages, dataset.references(split, languages[1]))


def write_parts(corpus: RawCorpus, folder: Path, scores: bool = False) -> tuple[dict[str, int], dict[str, Places]]:
    """Write {split}.{language} for every split of the dataset, all files or none; further references beside them.

    With `scores` also train.scores: a number for each pair of train, or an empty line where it has none. Returns
    the number of pairs of each split, and the places that pairs of dev and test come from.
    """
    counts = dict.fromkeys(corpus.dataset.raw_splits, 0)
    places = {name: Places() for name in counts if name != "train"}
    with contextlib.ExitStack() as stack:
        files: dict[str, list[IO[str]]] = {
            name: [
                stack.enter_context(atomic(folder / text)) for text in texts_of(corpus.dataset, name, corpus.languages)
            ]
            for name in counts
        }
        scored = stack.enter_context(atomic(folder / SCORES_FILE)) if scores else None
        for name, pairs in corpus.parts():
            for pair in pairs:
                if scored is not None and name == "train":
                    scored.write(("" if pair.score is None else repr(pair.score)) + "\n")
                for file, line in zip(files[name], (pair.first, pair.second, *pair.more), strict=True):
                    file.write(line + "\n")
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
        raise ConfigError("languages", list(languages), allowed="two languages that differ")
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
    texts = [text for name in counts for text in texts_of(dataset, name, languages)] + [SCORES_FILE] * dataset.scores
    references = {name: count for name in counts if (count := dataset.references(name, languages[1])) > 1}
    sums = digests(folder, texts)
    own_files = {name: Path(name) for name in dataset.own_files(languages, dataset.folder)}
    record = provenance(without_passwords(recorded(dataset)), own_files, sums)
    record["inputs"] |= files.provenance_inputs()
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
            **({"references": references} if references else {}),
            "provenance": record,
        },
    )
    counted = ", ".join(f"{name} {count:,}{left_out(dropped[name])}" for name, count in counts.items())
    return f"{dataset.name} {'-'.join(languages)}: {counted} pairs"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
