"""Stage: pass the pairs of raw train through the filters of the recipe, and count and show what each of them does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.cleaning import filter_settings
from workflow_src.config.datasets import raw_names
from workflow_src.data.cleaning import SCORES_FILE, clean, report, steps_of
from workflow_src.data.drops import left_out
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic, copy_file, read_json, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import filters
from workflow_src.spec import SCORES, Frozen, Pair


class CleanSettings(Frozen):
    source: str = Field(description="code of the source language")
    target: str = Field(description="code of the target language")
    clean: tuple[tuple[str, dict[str, Any]], ...] = Field(description="names with settings, in their order")


class Inputs(JobInputs):
    settings: CleanSettings = Field(description="languages and filters")
    raw_folder: Path = Field(description="output folder of download")
    output_folder: Path
    threads: int = 1


def read_pairs(source: Path, target: Path, scores: Path | None) -> Iterator[Pair]:
    """Pairs of two line-aligned texts, with their scores where there is a file of them."""
    texts = read_lines(source), read_lines(target)
    if scores is None:
        return (Pair(*pair) for pair in zip(*texts, strict=True))
    numbers = (float(line) if line else None for line in read_lines(scores))
    return (Pair(*pair) for pair in zip(*texts, numbers, strict=True))


def run(inputs: Inputs) -> str:
    settings = inputs.settings
    codes = (settings.source, settings.target)
    cleaning = filter_settings(settings.clean, codes)
    steps = steps_of(cleaning, codes)
    raw_folder, folder = inputs.raw_folder, inputs.output_folder
    raw = read_json(raw_folder / "raw.json")
    summary = folder / "raw.json"
    summary.unlink(missing_ok=True)
    references = raw.get("references", {})
    texts = {name: raw_names(name, codes, references.get(name, 1)) for name in raw["pairs"]}
    source, target = (raw_folder / name for name in texts["train"])
    scores = raw_folder / SCORES_FILE if any(SCORES in filters()[name].needs for name in cleaning) else None
    lines = check_parallel(source, target)
    kept_count = 0
    with contextlib.ExitStack() as stack:
        source_file, target_file = (stack.enter_context(atomic(folder / name)) for name in texts["train"])
        for _, pair in clean(read_pairs(source, target, scores), steps, inputs.threads, lines):
            source_file.write(pair.source + "\n")
            target_file.write(pair.target + "\n")
            kept_count += 1
        if not kept_count:
            worst = max(steps, key=lambda step: step.dropped.total())
            raise ArtifactError(
                f"{source} and {target}",
                f"have no pair left: recipe.clean.{worst.filter.name} leaves out {worst.dropped.total():,} of "
                f"{worst.read:,}",
                "change its settings, or remove it",
            )
    for name in (name for split, names in texts.items() if split != "train" for name in names):
        copy_file(raw_folder / name, folder / name)
    for step in steps:
        report(step)
    files = {name: raw_folder / name for names in texts.values() for name in names}
    files |= {SCORES_FILE: scores} if scores else {}
    sums = digests(folder, [name for names in texts.values() for name in names])
    dropped = raw["dropped"] | {"train": raw["dropped"]["train"] | {"cleaning": lines - kept_count}}
    write_json(
        summary,
        {key: raw[key] for key in ("dataset", "languages", "places", "downloads", "references") if key in raw}
        | {
            "pairs": raw["pairs"] | {"train": kept_count},
            "dropped": dropped,
            "cleaning": [step.as_json() for step in steps],
            "sha256": sums,
            "provenance": provenance(recorded(settings), files, sums),
        },
    )
    return f"{lines:,} pairs read, {kept_count:,} kept{left_out({'cleaning': lines - kept_count})}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
