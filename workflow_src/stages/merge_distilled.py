"""Stage merge_distilled: shards in order -> the distilled target text and a score a line, checked for completeness."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from workflow_src.artifacts import ArtifactError, atomic
from workflow_src.data.lines import count_lines, read_lines
from workflow_src.stages.command import parser, start
from workflow_src.stages.distill import bounds


def run(given) -> str:
    total = count_lines(given.source)
    with contextlib.ExitStack() as stack:
        text = stack.enter_context(atomic(given.output_text))
        scores = stack.enter_context(atomic(given.output_scores))
        for number, shard in enumerate(given.shards):
            first, last = bounds(total, number, len(given.shards))
            count = 0
            for line in read_lines(shard):
                try:
                    record = json.loads(line)
                    text.write(record["text"] + "\n")
                    scores.write(f"{record['score']:.6f}\n")
                except (KeyError, TypeError, ValueError) as failure:
                    raise ArtifactError(
                        f"{shard}, line {count + 1}, is damaged ({failure}); delete it and run again."
                    ) from None
                count += 1
            if count != last - first:
                raise ArtifactError(
                    f"{shard} has {count} lines, {last - first} were expected; delete it and run again."
                )
    return f"{total} distilled sentences from {len(given.shards)} shards"


def arguments():
    made = parser(__doc__)
    made.add_argument("--shards", type=Path, nargs="+", required=True, help="in order")
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--output-text", type=Path, required=True)
    made.add_argument("--output-scores", type=Path, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
