"""Files that are made in parts by several jobs: which lines a part has, and reading parts in order, all verified.

A shard is a JSON line for each sentence. The record beside it, written last, tells which shard of how many it is, its
digest, and the digests of what it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workflow_src.artifacts import ArtifactError, checksum, read_json, sha256, write_record
from workflow_src.data.lines import count_lines, read_lines

AGAIN = "delete it and run again: the others are kept."


def bounds(lines: int, shard: int, shards: int) -> tuple[int, int]:
    """First line of a shard and the one after its last; shards differ by one line at most."""
    return lines * shard // shards, lines * (shard + 1) // shards


def check_number(shard: int, shards: int) -> None:
    if not 0 <= shard < shards:
        raise ValueError(f"--shard is {shard}; it must be from 0 to {shards - 1}.")


def write_shard_record(
    path: Path, settings: Any, inputs: dict[str, Path], shard: int, shards: int, **more: Any
) -> None:
    """The record of the shard at `path`."""
    write_record(path.with_suffix(".json"), settings, inputs, [path.name], shard=[shard, shards], **more)


def read_shards(paths: list[Path], source: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of shards in the order given, which must be that of the shards.

    Raises ArtifactError naming the shard that is missing, damaged, another one than its place says, made from another
    source or from something else than the first shard, or that has another number of lines than it should.
    """
    total, digest = count_lines(source), sha256(source)
    made_from = None
    for number, path in enumerate(paths):
        made = _record(path)
        if made.get("shard") != [number, len(paths)]:
            raise ArtifactError(f"{path} is not shard {number} of {len(paths)} by its record; {AGAIN}")
        inputs = {name: entry["sha256"] for name, entry in made["inputs"].items()}
        made_from = made_from or (inputs, made["settings"])
        if inputs.get("source") != digest or (inputs, made["settings"]) != made_from:
            other = source if inputs.get("source") != digest else paths[0]
            raise ArtifactError(f"{path} was not made from the same files and settings as {other}; {AGAIN}")
        if not path.is_file() or sha256(path) != made["files"].get(path.name):
            raise ArtifactError(f"{path} is missing or damaged: its record tells another checksum; {AGAIN}")
        first, last = bounds(total, number, len(paths))
        count = 0
        for line in read_lines(path):
            count += 1
            yield _parsed(line, path, count)
        if count != last - first:
            raise ArtifactError(f"{path} has {count} lines, {last - first} were expected; {AGAIN}")


def _record(path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".json")
    if not beside.is_file():
        raise ArtifactError(f"{path} has no record {beside.name} beside it: it is not whole; {AGAIN}")
    content = read_json(beside)
    made = content.get("provenance") if isinstance(content, dict) else None
    if not isinstance(made, dict) or made.get("checksum") != checksum(content):
        raise ArtifactError(f"record {beside} is damaged; delete it and {path.name} and run again: others are kept.")
    return made


def _parsed(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
        f"{record['score']:f}" + record["text"]  # noqa: B018
    except (KeyError, TypeError, ValueError) as failure:
        raise ArtifactError(f"{path}, line {number}, is damaged ({failure}); {AGAIN}") from None
    return record
