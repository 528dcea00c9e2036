"""Stage decode_shard: translations of a part of a text, a JSON line a sentence, which decode joins with the others."""

from __future__ import annotations

import json

from workflow_src.data.lines import count_lines, read_lines
from workflow_src.data.shards import bounds, check_number, write_shard_record
from workflow_src.jobs import parser, start
from workflow_src.records.atomic import atomic
from workflow_src.serving import decode


def run(given) -> str:
    check_number(given.shard, given.shards)
    first, last = bounds(count_lines(given.source), given.shard, given.shards)
    lines = [line for number, line in enumerate(read_lines(given.source)) if first <= number < last]
    given.output.with_suffix(".json").unlink(missing_ok=True)
    with atomic(given.output) as file:
        for record in decode.translate(given, lines, first + 1):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    machine = {"device": given.device, "precision": given.precision}
    write_shard_record(given.output, given.settings, decode.inputs_of(given), given.shard, given.shards, **machine)
    return f"shard {given.shard} of {given.shards}: {len(lines)} sentences"


def arguments():
    made = parser(__doc__)
    decode.add_arguments(made)
    made.add_argument("--shard", type=int, required=True, help="number, from 0")
    made.add_argument("--shards", type=int, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
