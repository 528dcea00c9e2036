"""Stage merge_distilled: shards in order -> the distilled target text and a score a line, all verified."""

from __future__ import annotations

from pathlib import Path

from workflow_src.data.shards import distillation_inputs, read_shards
from workflow_src.jobs import parser, start
from workflow_src.records.atomic import atomic
from workflow_src.records.provenance import write_record


def run(given) -> str:
    record = given.output_text.with_suffix(".json")
    record.unlink(missing_ok=True)
    total = 0
    with atomic(given.output_text) as text, atomic(given.output_scores) as scores:
        for found in read_shards(given.shards, given.settings, distillation_inputs(given)):
            text.write(found["text"] + "\n")
            scores.write(f"{found['score']:.6f}\n")
            total += 1
    inputs = distillation_inputs(given) | {f"shard {number}": shard for number, shard in enumerate(given.shards)}
    write_record(record, given.settings, inputs, [given.output_text.name, given.output_scores.name])
    return f"{total} distilled sentences from {len(given.shards)} shards"


def arguments():
    made = parser(__doc__)
    made.add_argument("--shards", type=Path, nargs="+", required=True, help="in order")
    made.add_argument("--model", type=Path, required=True, help="weights of the teacher")
    made.add_argument("--subwords", type=Path, required=True)
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--output-text", type=Path, required=True)
    made.add_argument("--output-scores", type=Path, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
