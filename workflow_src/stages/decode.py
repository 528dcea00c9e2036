"""Stage decode: translations, one a line; beside them a JSON line each with score, length, steps, subwords, and the
text without repeated subwords.

Either translates a whole text, or joins the shards that decode_shard made of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workflow_src.data.lines import read_lines
from workflow_src.data.shards import read_shards
from workflow_src.jobs import parser, start
from workflow_src.records.atomic import atomic
from workflow_src.records.provenance import write_record
from workflow_src.serving.decode import add_arguments, inputs_of, translate


def _write(given: argparse.Namespace, records: Iterable[dict[str, Any]]) -> int:
    """Text and details get their names together, after the last line; their record is written last."""
    count = 0
    given.output.with_suffix(".json").unlink(missing_ok=True)
    with atomic(given.output) as file, atomic(given.output.with_suffix(".jsonl")) as details:
        for record in records:
            file.write(record.pop("text") + "\n")
            details.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    inputs = inputs_of(given) | {f"shard {number}": shard for number, shard in enumerate(given.shards)}
    names = [given.output.name, given.output.with_suffix(".jsonl").name]
    # Joining shards computes nothing; the records of the shards say on which machines they were made.
    machine = {} if given.shards else {"device": given.device, "precision": given.precision}
    write_record(given.output.with_suffix(".json"), given.settings, inputs, names, **machine)
    return count


def run(given) -> str:
    if given.shards:
        count = _write(given, read_shards(given.shards, given.settings, inputs_of(given)))
        return f"{count} translated sentences from {len(given.shards)} shards"
    lines = list(read_lines(given.source))
    count = _write(given, translate(given, lines))
    return f"{count} sentences translated with {given.settings['search']}"


def arguments():
    made = parser(__doc__)
    add_arguments(made)
    made.add_argument("--shards", type=Path, nargs="*", default=[], help="of decode_shard, in order: only join them")
    return made


if __name__ == "__main__":
    start(run, arguments())
