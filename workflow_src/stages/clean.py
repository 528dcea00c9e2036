"""Stage: pass the pairs of raw train through the filters of the recipe, and count and show what each of them does."""

from __future__ import annotations

import argparse
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from workflow_src import jobs
from workflow_src.config.base import ConfigError, parse
from workflow_src.data.cleaning import SCORES_FILE, Step, clean, steps_of
from workflow_src.data.drops import left_out
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.records.atomic import ArtifactError, atomic, read_json, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import filters
from workflow_src.spec import SCORES, Pair


def read_pairs(source: Path, target: Path, scores: Path | None) -> Iterator[Pair]:
    """Pairs of two line-aligned texts, with their scores where there is a file of them."""
    sides = read_lines(source), read_lines(target)
    if scores is None:
        return (Pair(*pair) for pair in zip(*sides, strict=True))
    numbers = (float(line) if line else None for line in read_lines(scores))
    return (Pair(*pair) for pair in zip(*sides, numbers, strict=True))


def report(step: Step) -> None:
    """Log what a filter did."""
    parts = [f"{step.dropped.total():,} of {step.read:,} pairs left out"]
    parts += [f"{step.repaired:,} repaired"] if step.repaired else []
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.most_common())
    jobs.log.info("%s: %s%s", step.filter.name, ", ".join(parts), f" ({reasons})" if reasons else "")


def run(arguments: argparse.Namespace) -> str:
    settings = arguments.settings
    cleaning = {}
    for name, section in settings["filters"]:
        if name not in filters():
            raise ConfigError(f'unknown filter "{name}" in --settings; allowed: {", ".join(filters())}.')
        cleaning[name] = parse(filters()[name].settings, section, f"recipe.clean.{name}")
    codes = (settings["source"], settings["target"])
    steps = steps_of(cleaning, codes)
    raw_folder, folder = arguments.raw_folder, arguments.output_folder
    raw = read_json(raw_folder / "raw.json")
    summary = folder / "raw.json"
    summary.unlink(missing_ok=True)
    texts = {name: [f"{name}.{code}" for code in codes] for name in raw["pairs"]}
    source, target = (raw_folder / name for name in texts["train"])
    scores = raw_folder / SCORES_FILE if any(SCORES in filters()[name].needs for name in cleaning) else None
    lines = check_parallel(source, target)
    kept = 0
    with contextlib.ExitStack() as stack:
        left, right = (stack.enter_context(atomic(folder / name)) for name in texts["train"])
        for _, pair in clean(read_pairs(source, target, scores), steps):
            left.write(pair.source + "\n")
            right.write(pair.target + "\n")
            kept += 1
        if not kept:
            worst = max(steps, key=lambda step: step.dropped.total())
            raise ArtifactError(
                f"no pair of {source} and {target} is left after cleaning, of which recipe.clean.{worst.filter.name} "
                f"leaves out {worst.dropped.total():,} of {worst.read:,}; change its settings, or remove it."
            )
    for name in (name for split, names in texts.items() if split != "train" for name in names):
        shutil.copyfile(raw_folder / name, folder / name)
    for step in steps:
        report(step)
    inputs = {name: raw_folder / name for names in texts.values() for name in names}
    inputs |= {SCORES_FILE: scores} if scores else {}
    sums = digests(folder, [name for names in texts.values() for name in names])
    dropped = raw["dropped"] | {"train": raw["dropped"]["train"] | {"cleaning": lines - kept}}
    write_json(
        summary,
        {key: raw[key] for key in ("dataset", "languages", "places")}
        | {
            "pairs": raw["pairs"] | {"train": kept},
            "dropped": dropped,
            "cleaning": [step.as_json() for step in steps],
            "sha256": sums,
            "provenance": provenance(settings, inputs, sums),
        },
    )
    return f"{lines:,} pairs read, {kept:,} kept{left_out({'cleaning': lines - kept})}"


def main(words: list[str] | None = None) -> None:
    made = jobs.parser(__doc__)
    made.add_argument("--raw-folder", type=Path, required=True)
    made.add_argument("--output-folder", type=Path, required=True)
    jobs.start(run, made, words)


if __name__ == "__main__":
    main()
