"""Stage merge_distilled: shards in order -> the distilled target text and a score a line, all verified."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workflow_src.config.experiment import DistillationConfig
from workflow_src.data.shards import by_number, distillation_files, read_shards
from workflow_src.jobs import JobInputs, start
from workflow_src.records.atomic import atomic
from workflow_src.records.provenance import write_record


class Inputs(JobInputs):
    settings: DistillationConfig = Field(description="settings of the search that all shards were made with")
    shards: tuple[Path, ...] = Field(min_length=1, description="outputs of distill, in order")
    model: Path = Field(description="weights of the teacher")
    subwords: Path = Field(description="folder of learn_subwords")
    source: Path = Field(description="training text, normalised")
    output_text: Path
    output_scores: Path


def run(inputs: Inputs) -> str:
    settings = inputs.settings.search_settings().model_dump(mode="json")
    files = distillation_files(inputs.model, inputs.subwords, inputs.source)
    record = inputs.output_text.with_suffix(".json")
    record.unlink(missing_ok=True)
    total = 0
    with atomic(inputs.output_text) as text, atomic(inputs.output_scores) as scores:
        for sentence in read_shards(list(inputs.shards), settings, files):
            text.write(sentence["text"] + "\n")
            scores.write(f"{sentence['score']:.6f}\n")
            total += 1
    files |= by_number(inputs.shards)
    write_record(record, settings, files, [inputs.output_text.name, inputs.output_scores.name])
    return f"{total} distilled sentences from {len(inputs.shards)} shards"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
