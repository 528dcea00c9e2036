"""Shards, parts of a text that several jobs write: their lines, and reading them in order, all verified.

A shard is a JSON line for each sentence. The record beside it, written last, has its number and their count, its
digest, and the digests of its inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from workflow_src.data.lines import count_lines, read_lines
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.atomic import atomic, checksum, read_json, sha256
from workflow_src.records.provenance import write_record

# The key of a line's score.
SCORE = "score"
AGAIN = "delete it and run again: the others are kept"


def bounds(lines: int, shard: int, shards: int) -> tuple[int, int]:
    """First line of a shard and the one after its last; shards differ by one line at most.

    Raises ConfigError for a number of no shard.
    """
    if not 0 <= shard < shards:
        raise ConfigError("shard", shard, allowed=f"0 to {shards - 1}")
    return lines * shard // shards, lines * (shard + 1) // shards


def write_shard(
    path: Path,
    lines: Iterable[dict[str, Any]],
    settings: Any,
    inputs: dict[str, Path],
    shard: int,
    shards: int,
    device: str,
    precision: str,
) -> None:
    """Write the shard at `path`, and then its record."""
    record = path.with_suffix(".json")
    record.unlink(missing_ok=True)
    with atomic(path) as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_record(record, settings, inputs, [path.name], shard=[shard, shards], device=device, precision=precision)


def by_number(shards: Iterable[Path]) -> dict[str, Path]:
    """Shards by the names that records of the joined file give them, in order."""
    return {f"shard {number}": path for number, path in enumerate(shards)}


def read_shards(
    paths: list[Path], settings: Any, inputs: dict[str, Path], pairs: int | None = None
) -> Iterator[dict[str, Any]]:
    """The JSON lines of shards in the order given, which must be that of the shards.

    `settings` and `inputs` are those expected of every shard; `inputs` has the text, `source`. Shards that have scores
    alone are of so many `pairs`.

    Raises ArtifactError, before the first line, naming the shard that is out of place or was made with other settings
    or from other files; later, naming one that is missing or damaged, or has the wrong number of lines.
    """
    records = [_record(path) for path in paths]
    for number, (path, provenance) in enumerate(zip(paths, records, strict=True)):
        if provenance.get("shard") != [number, len(paths)]:
            raise ArtifactError(path, f"is not shard {number} of {len(paths)} by its record", AGAIN)
    digests = {name: sha256(path) for name, path in inputs.items()}
    differences = [_difference(provenance, settings, inputs, digests) for provenance in records]
    _refuse_different(paths, differences, " and run again")
    machines = [f"on {str(record.get('device')).split(':')[0]} in {record.get('precision')}" for record in records]
    others = [None if machine == machines[0] else f"{machine}, and {paths[0]} {machines[0]}" for machine in machines]
    _refuse_different(paths, others, ", or the others, and run again on one kind of machine")
    total = count_lines(inputs["source"]) if pairs is None else pairs
    for number, (path, provenance) in enumerate(zip(paths, records, strict=True)):
        if not path.is_file() or sha256(path) != provenance["files"].get(path.name):
            raise ArtifactError(path, "is missing or damaged: its record has another checksum", AGAIN)
        first, last = bounds(total, number, len(paths))
        count = 0
        for line in read_lines(path):
            count += 1
            yield _parsed(line, path, count, texts=pairs is None)
        if count != last - first:
            raise ArtifactError(path, f"has {count} lines, {last - first} were expected", AGAIN)


def _refuse_different(paths: list[Path], differences: list[str | None], fix: str) -> None:
    """Raises ArtifactError for the first shard with a difference; `fix` follows the names of all that have one."""
    different = [path for path, difference in zip(paths, differences, strict=True) if difference]
    if different:
        names = ", ".join(path.name for path in different)
        problem = f"was made {next(filter(None, differences))}"
        raise ArtifactError(different[0], problem, f"delete {names}{fix}")


def _difference(
    provenance: dict[str, Any], settings: Any, inputs: dict[str, Path], digests: dict[str, str]
) -> str | None:
    """The first setting or input of a shard that differs from the expected one, as the end of "it was made"."""
    shard = provenance["settings"]
    for name in sorted({*shard, *settings}):
        if shard.get(name) != settings.get(name):
            return f"with {name} {_json(shard, name)}, and not {_json(settings, name)}"
    for name in sorted({*provenance["inputs"], *digests}):
        if name not in digests:
            return f"with {provenance['inputs'][name]['path']} ({name}), which is not wanted"
        if name not in provenance["inputs"]:
            return f"without {inputs[name]} ({name})"
        if provenance["inputs"][name]["sha256"] != digests[name]:
            return f"from another {name} than {inputs[name]} holds now"
    return None


def _json(settings: dict[str, Any], name: str) -> str:
    return json.dumps(settings[name], ensure_ascii=False) if name in settings else "unset"


def _record(path: Path) -> dict[str, Any]:
    record = path.with_suffix(".json")
    if not record.is_file():
        raise ArtifactError(path, f"has no record {record.name} beside it: it is not whole", AGAIN)
    content = read_json(record)
    provenance = content.get("provenance") if isinstance(content, dict) else None
    if not isinstance(provenance, dict) or provenance.get("checksum") != checksum(content):
        raise ArtifactError(record, "is damaged", f"delete it and {path.name} and run again: others are kept")
    return provenance


def _parsed(line: str, path: Path, number: int, texts: bool) -> dict[str, Any]:
    try:
        record = json.loads(line)
        f"{record[SCORE]:f}" + (record["text"] if texts else "")
    except (KeyError, TypeError, ValueError) as failure:
        raise ArtifactError(path, f"is damaged ({failure})", AGAIN, line=number) from None
    return record


def distillation_files(model: Path, subwords: Path, source: Path) -> dict[str, Path]:
    """Files that distilled text is made from, by the names that records give them; `subwords` is a folder."""
    return {"model": model, "subwords": subwords / "subwords.json", "source": source}


def scoring_files(model: Path, subwords: Path, pairs: Path) -> dict[str, Path]:
    """Files that scores of encoded pairs are made from, as `distillation_files`; `pairs` is their prefix."""
    return {"model": model, "subwords": subwords / "subwords.json", "pairs": pairs.with_name(f"{pairs.name}.json")}
