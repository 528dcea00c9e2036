"""Stage learn_subwords: two training texts, or subwords from elsewhere -> subword models and subwords.json."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.config.recipe import PlaceholderKind
from workflow_src.data import subwords
from workflow_src.jobs import JobInputs, start


class Inputs(JobInputs):
    settings: SubwordsConfig = Field(description="method and size, recipe.subwords of the configuration")
    placeholders: tuple[PlaceholderKind, ...] = Field((), description="kinds of spans that models have symbols for")
    source: Path = Field(description="training text")
    target: Path = Field(description="its translation, line by line")
    subwords_from: Path | None = Field(None, description="subwords.json of models to copy in place of learning")
    output_folder: Path
    threads: int = Field(1, gt=0, description="CPU threads")


def run(inputs: Inputs) -> str:
    settings, kinds = inputs.settings, inputs.placeholders
    if inputs.subwords_from:
        copied = subwords.copy(settings, kinds, inputs.subwords_from, inputs.output_folder)
        return f"copied {copied.source_size:,} source and {copied.target_size:,} target subwords"
    learned = subwords.learn(settings, inputs.source, inputs.target, inputs.output_folder, inputs.threads, kinds)
    if learned.joint:
        return f"learned {learned.source_size:,} subwords for both languages"
    return f"learned {learned.source_size:,} subwords for the source, {learned.target_size:,} for the target"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
