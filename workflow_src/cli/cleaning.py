"""A preview of cleaning: the filters of a recipe on the first pairs of its training text, without the workflow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from workflow_src.config.resolved import Loaded
from workflow_src.data.cleaning import Step, clean, steps_of
from workflow_src.data.corpus import RawCorpus
from workflow_src.data.download import DOWNLOADS, mirror_folders, present
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.spec import Pair


def preview(loaded: Loaded, count: int, examples: int) -> tuple[list[Step], bool]:
    """Results of each filter on the first `count` pairs, with examples, and whether the text has more.

    Raises ConfigError where the recipe has no filters, and ArtifactError where a file is not on this machine.
    """
    if not loaded.cleaning:
        raise ConfigError("recipe.clean", problem="missing", hint="name filters, such as clean: {length: {}}")
    recipe = loaded.config.recipe
    steps = steps_of(loaded.cleaning, (recipe.source, recipe.target), examples)
    pairs = _pairs(loaded)
    for _ in clean(itertools.islice(pairs, count), steps):
        pass
    return steps, next(pairs, None) is not None


def _pairs(loaded: Loaded) -> Iterator[Pair]:
    """The raw training pairs, of files on this machine: the user's, those of mirrors, and downloads."""
    recipe, dataset = loaded.config.recipe, loaded.dataset
    mirrors = mirror_folders(list(loaded.config.mirrors))

    def locate(name: str) -> Path:
        path = present(dataset.files[name], DOWNLOADS, mirrors)
        if path is None:
            raise ArtifactError(
                f"file {name} of dataset {dataset.name}",
                f"is neither in {DOWNLOADS} nor in a mirror",
                "fetch it by the target download of snakemake",
            )
        return path

    with RawCorpus(dataset, (recipe.source, recipe.target), locate, recipe.folder) as corpus:
        for split, pairs in corpus.parts():
            if split == "train":
                yield from (Pair(pair.first, pair.second, pair.score) for pair in pairs)
                return


def as_table(steps: list[Step]) -> Table:
    table = Table("filter", *("pairs", "left out", "repaired"), "by setting")
    for column in table.columns[1:4]:
        column.justify = "right"
    for step in steps:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.most_common())
        numbers = (step.read, step.dropped.total(), step.repaired)
        table.add_row(step.filter.name, *(f"{number:,}" for number in numbers), escape(reasons))
    return table


def example_lines(steps: list[Step]) -> Iterator[str]:
    """The examples of every filter, a line each for source and target, and for their repaired form."""
    for step in steps:
        for example in step.as_json()["examples"]:
            yield f"{step.filter.name}, {example['reason']}, line {example['line']}"
            yield f"    {example['source']}"
            yield f"    {example['target']}"
            for side in example["repaired"] or ():
                yield f"  → {side}"
