"""Stage learn_subwords: two training texts -> subword models and subwords.json in a folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workflow_src.config.datasets import SubwordsConfig
from workflow_src.data import subwords
from workflow_src.jobs import JobInputs, start


class Inputs(JobInputs):
    settings: SubwordsConfig = Field(description="method and size, recipe.subwords of the configuration")
    source: Path = Field(description="training text")
    target: Path = Field(description="its translation, line by line")
    output_folder: Path
    threads: int = 1


def run(inputs: Inputs) -> str:
    learned = subwords.learn(inputs.settings, inputs.source, inputs.target, inputs.output_folder, inputs.threads)
    if learned.joint:
        return f"learned {learned.source_size:,} subwords for both languages"
    return f"learned {learned.source_size:,} subwords for the source, {learned.target_size:,} for the target"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
