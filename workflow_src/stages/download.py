"""Stage: fetch files and write the raw text in them: a file of each language for train, dev and each test set, with
further references beside them, or one of text in one language. Nothing is split or normalised here.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

from pydantic import Field

from workflow_src.config.datasets import RawText, raw_names
from workflow_src.config.parts import Languages
from workflow_src.config.texts import MONOLINGUAL, TRAINING_SPLITS
from workflow_src.data.cleaning import SCORES_FILE
from workflow_src.data.corpus import RawCorpus
from workflow_src.data.download import DOWNLOADS, MIRRORS_VARIABLE, Files, Patience, mirror_folders, without_passwords
from workflow_src.data.drops import left_out, units
from workflow_src.data.raw import Places
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic, write_json
from workflow_src.records.provenance import digests, provenance


class Inputs(JobInputs):
    settings: RawText = Field(description="files and parts of the text")
    languages: Languages
    folder: str | None = Field(None, description="the user's folder, of a dataset of kind folder")
    scores: bool = Field(False, description="write the scores of the training pairs too")
    mirrors: tuple[str, ...] = Field((), description=f"folders; those of {MIRRORS_VARIABLE} come first")
    allow_unpinned: bool = Field(False, description="take files that the dataset has no checksum of")
    patience: Patience = Patience()
    downloads: Path = Field(DOWNLOADS, description="where downloaded files are kept")
    summary: Path = Field(description="JSON with counts, written last; texts are written beside it")


def write_parts(
    corpus: RawCorpus, names: dict[str, list[str]], folder: Path, scores: bool
) -> tuple[dict[str, int], dict[str, Places], dict[str, int]]:
    """Write the texts of every split, whose `names` are those of source, target, if any, and further references.

    All are written or none; with `scores` also train.scores: a number for each pair of train, or an empty line where it
    has none. Returns the number of pairs of each split, the places that pairs of dev and test come from, and the lines
    of each text in one language.
    """
    counts = dict.fromkeys(names, 0)
    lines_of_texts: Counter[str] = Counter()
    places = {split: Places() for split in names if split not in TRAINING_SPLITS}
    with contextlib.ExitStack() as stack:
        files = {
            split: [stack.enter_context(atomic(folder / text)) for text in texts] for split, texts in names.items()
        }
        scored = stack.enter_context(atomic(folder / SCORES_FILE)) if scores else None
        for split, pairs in corpus.parts():
            for pair in pairs:
                if scored is not None and split == "train":
                    scored.write(("" if pair.score is None else repr(pair.score)) + "\n")
                # Both sides of a pair of text in one language are its line, which has one file.
                lines = (pair.first, pair.second, *pair.more)[: len(files[split])]
                for file, line in zip(files[split], lines, strict=True):
                    file.write(line + "\n")
                if split in places:
                    places[split].add(pair.names, pair.number)
                elif split == MONOLINGUAL:
                    lines_of_texts[pair.names[0]] += 1
                counts[split] += 1
            if not counts[split]:
                raise ArtifactError(split, f"of dataset {corpus.dataset.name} is empty", "check its parts")
    return counts, places, dict(lines_of_texts)


def run(inputs: Inputs) -> str:
    dataset, languages, folder = inputs.settings, inputs.languages, inputs.summary.parent
    mirrors = mirror_folders(inputs.mirrors)
    files = Files(dataset.files, inputs.downloads, mirrors, inputs.allow_unpinned, inputs.patience)
    references = {split: dataset.references(split, languages[-1]) for split in dataset.raw_splits}
    names = {split: raw_names(split, languages, count) for split, count in references.items()}
    inputs.summary.unlink(missing_ok=True)
    with RawCorpus(dataset, languages, files.locate, inputs.folder) as corpus:
        counts, places, lines_of_texts = write_parts(corpus, names, folder, inputs.scores)
        dropped = {split: dict(corpus.dropped[split]) for split in names}
        inline = dict(corpus.inline_elements)
    if not inputs.scores and "train" in names:
        (folder / SCORES_FILE).unlink(missing_ok=True)
    texts = [text for names_of_split in names.values() for text in names_of_split] + [SCORES_FILE] * inputs.scores
    sums = digests(folder, texts)
    own_files = {name: Path(name) for name in dataset.own_files(languages, inputs.folder)}
    record = provenance(without_passwords(recorded(dataset)), own_files, sums)
    record["inputs"] |= files.provenance_inputs()
    several = {split: count for split, count in references.items() if count > 1}
    write_json(
        inputs.summary,
        {
            "dataset": dataset.name,
            "languages": list(languages),
            "pairs": counts,
            "dropped": dropped,
            **({"inline_elements": inline} if inline else {}),
            "places": {split: origins.runs for split, origins in places.items()},
            "sha256": sums,
            "downloads": files.fetched,
            **({"references": several} if several else {}),
            **({"texts": lines_of_texts} if lines_of_texts else {}),
            "provenance": record,
        },
    )
    counted = ", ".join(
        f"{split} {count:,}{left_out(dropped[split], inline.get(split, 0))}" for split, count in counts.items()
    )
    of_texts = "".join(f"; {text} {lines:,}" for text, lines in lines_of_texts.items())
    return f"{dataset.name} {'-'.join(languages)}: {counted} {units(languages)}{of_texts}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
