"""Verification of finished results: digests of all files against their records, and of records against their inputs.

Every artefact has a record, a JSON file with a block `provenance`: the artefact itself where it is JSON, else a file
beside it. The block holds the digests of the record's own content, of the files that it vouches for, and of its inputs,
each with the record that describes it. Following inputs from the last records back gives the whole chain.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pydantic

from workflow_src.errors import MISSING, ArtifactError, short_repr
from workflow_src.records.atomic import canonical, checksum, read_json, sha256
from workflow_src.records.checked import Lenient
from workflow_src.records.provenance import FORMAT

RESULTS = "results"
# The record that an experiment ends with.
LAST = "report/provenance.json"
AGAIN = "run the workflow again"


def _make(path: str) -> str:
    """The advice to make a file by its name: a run of the whole workflow makes a missing one only for another job."""
    return f"run `snakemake {path} …`, and then the workflow"


class Input(Lenient):
    """An input of an artefact: `record` describes it, or it is an original; a download has a `url`."""

    path: str
    sha256: str
    record: str = ""
    url: str = ""


class Provenance(Lenient):
    """What is followed of a record; `files` are names below its folder. It is empty for a file that is no record."""

    checksum: str
    format: Any = None
    inputs: dict[str, Input] = {}
    files: dict[str, str] = {}


NO_RECORD = Provenance(checksum="")


@dataclasses.dataclass(frozen=True)
class Chain:
    """The records in `folder` and those of all their inputs, by path, each after those of its inputs.

    Paths are relative to `base`, the folder of the workflow. `faults` say what is wrong with records themselves.
    """

    folder: Path
    base: Path
    records: dict[str, Provenance]
    faults: dict[str, ArtifactError]

    @classmethod
    def read(cls, folder: str | Path) -> Chain:
        """Raises ArtifactError for a folder without records."""
        if Path(folder).is_file():
            raise ArtifactError(folder, "is a file", "name the folder results/EXPERIMENT of a finished run")
        if not Path(folder).is_dir():
            raise ArtifactError(folder, MISSING, "name results/EXPERIMENT of a finished run")
        if not _json_files(Path(folder)):
            raise ArtifactError(folder, "holds no record of what made its files", "run the experiment first")
        chain = cls(*_place(Path(folder)), {}, {})
        chain._follow(chain._relative(_json_files(chain.folder)), set())
        return chain

    def _follow(self, paths: Iterable[str], seen: set[str]) -> None:
        for path in paths:
            if path in seen:
                continue
            seen.add(path)
            record, fault = _read(self.base, path)
            names = sorted({entry.record for entry in record.inputs.values() if entry.record})
            # A changed record may name inputs that never were.
            self._follow([name for name in names if not fault or os.path.isfile(self.base / name)], seen)
            self.records[path] = record
            if fault:
                self.faults[path] = fault

    def files(self, path: str) -> dict[str, str]:
        """Digests of the files that a record vouches for, by path."""
        return {(Path(path).parent / name).as_posix(): digest for name, digest in self.records[path].files.items()}

    def visible_files(self) -> set[str]:
        """Files of the folder without hidden ones, which are partial: being written, or left by a killed process."""
        paths = self.folder.rglob("*")
        return set(self._relative(path for path in paths if path.name[0] != "." and path.is_file()))

    def _relative(self, paths: Iterable[Path]) -> list[str]:
        absolute = [Path(os.path.abspath(path)) for path in paths]
        return [str(path.relative_to(self.base) if path.is_relative_to(self.base) else path) for path in absolute]


def _read(base: Path, path: str) -> tuple[Provenance, ArtifactError | None]:
    """What the record in a file says, and what is wrong with the file itself."""
    problem, fix, record = "", f"delete it, {_make(path)}", NO_RECORD
    try:
        content = read_json(base / path)
        text = canonical(content)
        record = Provenance.model_validate(content["provenance"])
        if record.checksum != checksum(content) or text != (base / path).read_text(encoding="utf-8"):
            problem = "was changed after it was made: its own checksum differs"
        elif record.format != FORMAT:
            problem = f"has provenance of format {short_repr(record.format)}, and not of {FORMAT}"
    except (pydantic.ValidationError, KeyError, TypeError):
        problem = "carries no checksum of itself: it was changed"
    except (OSError, ValueError, RecursionError) as failure:
        # ValueError: an ArtifactError, or a path that no file can have.
        reason = f"it {failure.problem}" if isinstance(failure, ArtifactError) else failure
        problem = f"was changed after it was made: {reason}"
        if not os.path.lexists(base / path):
            problem, fix = "is missing", _make(path)
        elif os.path.isdir(base / path):
            problem, fix = "is a folder, not a record", f"remove it, {_make(path)}"
    return record, ArtifactError(path, problem, fix) if problem else None


def _place(folder: Path) -> tuple[Path, Path]:
    """`folder` as a path below the workflow's folder, and the workflow's folder, which paths in records start from."""
    # It, a folder above it or its `results` may be a link.
    places = [
        (path, parent.parent)
        for path in (Path(os.path.abspath(folder)), folder.resolve())
        for parent in (path, *path.parents)
        if parent.name == RESULTS
    ]
    # With several folders of that name, the right one has an input that the records name.
    records = [_read(Path(), str(path))[0] for path in _json_files(folder)] if len(places) > 1 else []
    names = {name for record in records for entry in record.inputs.values() for name in (entry.path, entry.record)}
    relative = [name for name in names if not os.path.isabs(name)]
    fitting = [place for place in places if any(os.path.isfile(place[1] / name) for name in relative)]
    return [*fitting, *places, (folder, Path.cwd())][0]


def _json_files(folder: Path) -> list[Path]:
    # A folder may have such a name too, after a system.
    return sorted(path for path in folder.rglob("*.json") if not path.is_dir())


def verify(folder: str | Path) -> str:
    """Check the results in `folder` and all their inputs; returns a summary of one line.

    Raises ArtifactError with one sentence that names the first file, in the order of the flow, that was changed, is
    missing, or was made from an input that has changed since.
    """
    chain = Chain.read(folder)
    described = {file for path in chain.records for file in chain.files(path)}
    inputs: set[str] = set()
    originals: set[str] = set()
    removed: set[str] = set()

    @functools.cache
    def digest(path: str) -> str | None:
        return sha256(chain.base / path) if os.path.isfile(chain.base / path) else None

    # Without JSON files that are no records, but that a record vouches for, such as another library's.
    records = [path for path, record in chain.records.items() if record is not NO_RECORD or path not in described]
    # Where a record is missing, what it vouched for is one of these: the missing one is named first.
    named = {entry.record for record in chain.records.values() for entry in record.inputs.values()}
    records.sort(key=lambda path: chain.records[path] is NO_RECORD and path not in named)
    for path in records:
        if path in chain.faults:
            raise chain.faults[path]
        for entry in sorted(chain.records[path].inputs.values(), key=lambda entry: entry.path):
            inputs.add(entry.path)
            if entry.url and digest(entry.path) is None:
                # Downloads may be removed once the raw text is written.
                removed.add(entry.path)
            elif digest(entry.path) != entry.sha256:
                raise _another_input(path, entry, digest(entry.path))
            elif not entry.record:
                originals.add(entry.path)
        for file, expected in sorted(chain.files(path).items()):
            if digest(file) != expected:
                raise _another_file(path, file, expected, digest(file))
    extra = sorted(chain.visible_files() - described - inputs - set(records))
    return ", ".join(
        [
            f"{folder}: {len(records)} records match",
            f"with {len(described)} files that they describe",
            *([f"{len(originals)} original {'file' if len(originals) == 1 else 'files'}"] if originals else []),
            *([f"{len(removed)} {_are('download', removed)} no longer there"] if removed else []),
            *([f"{len(extra)} {_are('file', extra)} described by none ({extra[0]})"] if extra else []),
        ]
    )


def _are(noun: str, things: set[str] | list[str]) -> str:
    return f"{noun} is" if len(things) == 1 else f"{noun}s are"


def _another_file(record: str, path: str, expected: str, digest: str | None) -> ArtifactError:
    if digest is None:
        return ArtifactError(path, f"is missing, which {record} describes", f"delete {record}, {_make(record)}")
    changed = f"was changed after it was made: its SHA-256 is {digest}, {record} says {expected}"
    return ArtifactError(path, changed, f"delete both, {_make(record)}")


def _another_input(record: str, entry: Input, digest: str | None) -> ArtifactError:
    if not entry.record:
        problem = "is missing" if digest is None else f"was changed (SHA-256 {entry.sha256}, now {digest})"
        return ArtifactError(entry.path, f"{problem} after {record} was made from it", f"bring it back, or {AGAIN}")
    if digest is None:
        return ArtifactError(entry.path, f"is missing, which {record} was made from", _make(entry.path))
    another = f"was made from another {entry.path} than lies there now (SHA-256 {entry.sha256}, now {digest})"
    return ArtifactError(record, another, f"delete it and what lies beside it, {_make(record)}")


def check_finished(folder: str | Path) -> None:
    """Raises ArtifactError where no finished run has the results in `folder`, or results made from them."""
    chain = Chain.read(folder)
    if (chain.folder / LAST).is_file():
        return
    # The data and systems of a recipe have no report of their own.
    own = {path for path in chain.records if (chain.base / path).is_relative_to(chain.folder)}
    ends = (chain.base / RESULTS).glob(f"*/{LAST}")
    if all(own.isdisjoint(Chain.read(end.parents[1]).records) for end in ends):
        raise ArtifactError(
            folder,
            f"is not finished: there is no {LAST}, which a run writes at its end, and no finished experiment "
            "beside it was made from what is there",
            "run the experiment to its end",
        )
