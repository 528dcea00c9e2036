"""Stage learn_subwords: two training texts -> subword models and subwords.json in a folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workflow_src.config.datasets import PlaceholderKind, SubwordsConfig
from workflow_src.data import subwords
from workflow_src.jobs import JobInputs, start


class SubwordSettings(SubwordsConfig):
    placeholders: tuple[PlaceholderKind, ...] = Field((), description="kinds of spans that models have symbols for")


class Inputs(JobInputs):
    settings: SubwordSettings = Field(description="method and size, recipe.subwords of the configuration")
    source: Path = Field(description="training text")
    target: Path = Field(description="its translation, line by line")
    output_folder: Path
    threads: int = 1


def run(inputs: Inputs) -> str:
    kinds = inputs.settings.placeholders
    settings = SubwordsConfig.model_validate(inputs.settings.model_dump(exclude={"placeholders"}))
    learned = subwords.learn(settings, inputs.source, inputs.target, inputs.output_folder, inputs.threads, kinds)
    if learned.joint:
        return f"learned {learned.source_size:,} subwords for both languages"
    return f"learned {learned.source_size:,} subwords for the source, {learned.target_size:,} for the target"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
