"""Stage: pass a raw training text through the filters of the recipe, and count and show what each of them does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.datasets import raw_names
from workflow_src.config.declared import filter_settings
from workflow_src.config.parts import Languages
from workflow_src.data.cleaning import SCORES_FILE, clean, report, steps_of
from workflow_src.data.drops import left_out, units
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.data.raw import RawSummary
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic, copy_file, write_json
from workflow_src.records.checked import read_file
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import filters
from workflow_src.spec import SCORES, Frozen, Pair


class CleanSettings(Frozen):
    languages: Languages
    clean: tuple[tuple[str, dict[str, Any]], ...] = Field(description="names with settings, in their order")


class Inputs(JobInputs):
    settings: CleanSettings = Field(description="languages and filters")
    raw: Path = Field(description="summary of download, beside the texts")
    summary: Path = Field(description="the same with the counts of filters, written last; texts are written beside it")
    threads: int = Field(1, gt=0, description="processes that work side by side")


def read_pairs(source: Path, target: Path, scores: Path | None) -> Iterator[Pair]:
    """Pairs of two line-aligned texts, with their scores where there is a file of them."""
    texts = read_lines(source), read_lines(target)
    if scores is None:
        return (Pair(*pair) for pair in zip(*texts, strict=True))
    numbers = (float(line) if line else None for line in read_lines(scores))
    return (Pair(*pair) for pair in zip(*texts, numbers, strict=True))


def run(inputs: Inputs) -> str:
    codes, raw_folder, folder = inputs.settings.languages, inputs.raw.parent, inputs.summary.parent
    # A line of a text in one language is both sides of the pair that filters judge.
    sides = codes[0], codes[-1]
    cleaning = filter_settings(inputs.settings.clean, sides)
    steps = steps_of(cleaning, sides)
    raw = read_file(RawSummary, inputs.raw)
    inputs.summary.unlink(missing_ok=True)
    texts = {split: raw_names(split, codes, raw.references.get(split, 1)) for split in raw.pairs}
    training = raw.training
    source, target = raw_folder / texts[training][0], raw_folder / texts[training][-1]
    scores = raw_folder / SCORES_FILE if any(SCORES in filters()[name].needs for name in cleaning) else None
    lines = check_parallel(source, target)
    kept_count = 0
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(atomic(folder / name)) for name in texts[training]]
        for _, pair in clean(read_pairs(source, target, scores), steps, inputs.threads, lines):
            for file, line in zip(files, (pair.source, pair.target)[: len(files)], strict=True):
                file.write(line + "\n")
            kept_count += 1
        if not kept_count:
            worst = max(steps, key=lambda step: step.dropped.total())
            raise ArtifactError(
                " and ".join(str(raw_folder / name) for name in texts[training]),
                f"have nothing left: recipe.clean.{worst.filter.name} leaves out {worst.dropped.total():,} of "
                f"{worst.read:,}",
                "change its settings, or remove it",
            )
    for name in (name for split, names in texts.items() if split != training for name in names):
        copy_file(raw_folder / name, folder / name)
    for step in steps:
        report(step, units(codes))
    names = [name for names_of_split in texts.values() for name in names_of_split]
    files_read = {name: raw_folder / name for name in names} | ({SCORES_FILE: scores} if scores else {})
    sums = digests(folder, names)
    dropped_here = {"cleaning": lines - kept_count}
    write_json(
        inputs.summary,
        raw.model_dump(mode="json", exclude_unset=True)
        | {
            "pairs": raw.pairs | {training: kept_count},
            "dropped": raw.dropped | {training: raw.dropped[training] | dropped_here},
            "cleaning": [step.as_json() for step in steps],
            "sha256": sums,
            "provenance": provenance(recorded(inputs.settings), files_read, sums),
        },
    )
    return f"{lines:,} {units(codes)} read, {kept_count:,} kept{left_out(dropped_here)}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
