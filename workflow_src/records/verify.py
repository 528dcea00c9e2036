"""Verification of finished results: digests of all files against their records, and of records against their inputs.

Every artefact has a record, a JSON file with a block `provenance`: the artefact itself where it is JSON, else a file
beside it. The block holds the digests of the record's own content, of the files that it vouches for, and of its inputs,
each with the record that describes it. Following inputs from the last records back gives the whole chain.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from pathlib import Path
from typing import Any

from workflow_src.errors import ArtifactError, short_repr
from workflow_src.records.atomic import canonical, checksum, read_json, sha256
from workflow_src.records.provenance import FORMAT

RESULTS = "results"
# The record that an experiment ends with.
LAST = "report/results.json"


@dataclasses.dataclass(frozen=True)
class Record:
    """A record: its block `provenance` (None: unreadable) and the first fault of the record, if any."""

    path: str
    block: dict[str, Any] | None
    failure: ArtifactError | None = None

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Inputs by their path, without repeats."""
        entries = (self.block or {}).get("inputs", {}).values()
        return sorted({entry["path"]: entry for entry in entries}.values(), key=lambda entry: entry["path"])

    @property
    def files(self) -> dict[str, str]:
        """Digests of the files that the record vouches for, by path."""
        folder = Path(self.path).parent
        return {(folder / name).as_posix(): digest for name, digest in (self.block or {}).get("files", {}).items()}

    @property
    def built_on(self) -> list[str]:
        """Records of the inputs, without this record itself."""
        return [entry["record"] for entry in self.inputs if entry.get("record", self.path) != self.path]


AGAIN = "run the workflow again"
REMAKE = f"delete it and {AGAIN}, with --forcerun if it says that nothing is to be done"


class Chain:
    """The records below `folder` and those of all their inputs. Paths are relative to the workflow's folder."""

    def __init__(self, folder: str | Path):
        if Path(folder).is_file():
            raise ArtifactError(folder, "is a file", "name the folder results/EXPERIMENT of a finished run")
        if not Path(folder).is_dir():
            raise ArtifactError(folder, "does not exist", "name results/EXPERIMENT of a finished run")
        self.folder, self.base = _place(Path(folder))
        self.records: dict[str, Record] = {}
        self._digests: dict[str, str | None] = {}
        waiting = [_relative(path, self.base) for path in _records_below(self.folder)]
        if not waiting:
            raise ArtifactError(folder, "holds no record of what made its files", "run the experiment first")
        while waiting:
            path = waiting.pop()
            if path not in self.records:
                record = self.records[path] = self._read(path)
                # A changed record may name inputs that never were.
                waiting += [name for name in record.built_on if not record.failure or os.path.isfile(self.base / name)]
        # JSON files that are no records, but that a record vouches for, such as another library's.
        described = {path for record in self.records.values() for path in record.files}
        self.records = {p: r for p, r in self.records.items() if r.block is not None or p not in described}
        inputs = {entry["path"] for record in self.records.values() for entry in record.inputs}
        self.undescribed = sorted(_files_below(self.folder, self.base) - described - inputs - set(self.records))

    def _read(self, path: str) -> Record:
        def refused(block: dict[str, Any] | None, problem: str, fix: str = REMAKE) -> Record:
            return Record(path, block, ArtifactError(path, problem, fix))

        try:
            content = read_json(self.base / path)
            text = (self.base / path).read_text(encoding="utf-8")
            block = _provenance(content)
            if block is None or "checksum" not in block:
                return refused(block, "carries no checksum of itself: it was changed")
            if block["checksum"] != checksum(content) or text != canonical(content):
                # Its inputs still give its place in the order.
                return refused(block, "was changed after it was made: its own checksum differs")
            if block.get("format") != FORMAT:
                return refused(
                    block, f"has provenance of format {short_repr(block.get('format'))}, and not of {FORMAT}"
                )
            return Record(path, block)
        except IsADirectoryError:
            return refused(None, "is a folder, not a record", f"remove it and {AGAIN}")
        except RecursionError:
            return refused(None, "was changed after it was made: it is nested too deeply")
        except (OSError, ValueError) as failure:
            # ValueError: an ArtifactError, or a path that no file can have.
            if not os.path.lexists(self.base / path):
                return refused(None, "is missing", AGAIN)
            return refused(None, f"was changed after it was made: {failure}")

    def _digest(self, path: str) -> str | None:
        """SHA-256 of a file, read once; None where it is missing."""
        if path not in self._digests:
            file = self.base / path
            self._digests[path] = sha256(file) if os.path.isfile(file) else None
        return self._digests[path]

    def in_order(self) -> list[Record]:
        """Records in the order of the flow: each after those of its inputs; ties by path."""
        depths: dict[str, float] = {}

        def depth(path: str) -> float:
            if path not in depths:
                depths[path] = 0  # ends a circle, which only forged records could make
                depths[path] = 1 + max(map(depth, filter(self._is_readable, self.records[path].built_on)), default=0)
            return depths[path]

        for path in self.records:
            depth(path)
        # An unreadable record has unknown inputs: its place is before the records that are made from it.
        for path, record in self.records.items():
            if record.block is None:
                users = [depths[user.path] for user in self.records.values() if path in user.built_on]
                depths[path] = min(users, default=math.inf) - 0.5
        return sorted(self.records.values(), key=lambda record: (depths[record.path], record.path))

    def _is_readable(self, path: str) -> bool:
        return path in self.records and self.records[path].block is not None

    def check(self) -> tuple[int, int, int]:
        """Compare everything; returns how many files are described, how many are originals, and downloads removed.

        Raises ArtifactError with one sentence for the first file that does not match.
        """
        described: set[str] = set()
        originals: set[str] = set()
        removed: set[str] = set()
        for record in self.in_order():
            if record.failure:
                raise record.failure
            for entry in record.inputs:
                path, digest = entry["path"], self._digest(entry["path"])
                if "url" in entry and digest is None:
                    # Downloads may be removed once the raw text is written.
                    removed.add(path)
                    continue
                if not entry.get("record"):
                    originals.add(path)
                if digest != entry["sha256"]:
                    raise _another_input(record.path, entry, digest)
            for path, expected in sorted(record.files.items()):
                described.add(path)
                if (digest := self._digest(path)) != expected:
                    raise _another_file(record.path, path, expected, digest)
        return len(described), len(originals), len(removed)


def _another_file(record: str, path: str, expected: str, digest: str | None) -> ArtifactError:
    if digest is None:
        return ArtifactError(path, f"is missing, which {record} describes", f"delete {record} and {AGAIN}")
    changed = f"was changed after it was made: its SHA-256 is {digest}, {record} says {expected}"
    return ArtifactError(path, changed, f"delete both and {AGAIN}")


def _another_input(record: str, entry: dict[str, Any], digest: str | None) -> ArtifactError:
    path, expected = entry["path"], entry["sha256"]
    if not entry.get("record"):
        problem = "is missing" if digest is None else f"was changed (SHA-256 {expected}, now {digest})"
        return ArtifactError(path, f"{problem} after {record} was made from it", f"bring it back, or {AGAIN}")
    if digest is None:
        return ArtifactError(path, f"is missing, which {record} was made from", AGAIN)
    another = f"was made from another {path} than lies there now (SHA-256 {expected}, now {digest})"
    return ArtifactError(record, another, f"delete it and what lies beside it, and {AGAIN}")


def _provenance(content: Any) -> dict[str, Any] | None:
    """The provenance in a record's content; None where its inputs or files have another form."""
    block = content.get("provenance") if isinstance(content, dict) else None
    if not isinstance(block, dict):
        return None
    inputs, files = block.get("inputs", {}), block.get("files", {})
    if not isinstance(inputs, dict) or not isinstance(files, dict):
        return None
    if not all(isinstance(entry, dict) and {"path", "sha256"} <= set(entry) for entry in inputs.values()):
        return None
    words = [entry[key] for entry in inputs.values() for key in ("path", "sha256", "record") if key in entry]
    return block if all(isinstance(value, str) for value in (*words, *files.values())) else None


def _place(folder: Path) -> tuple[Path, Path]:
    """`folder` as a path below the workflow's folder, and the workflow's folder, which paths in records start from."""
    places = []
    # Its path as given, then with links followed: it, a folder above it or its `results` may be a link.
    for path in dict.fromkeys((Path(os.path.abspath(folder)), folder.resolve())):
        places += [(path, parent.parent) for parent in (path, *path.parents) if parent.name == RESULTS]
    if not places:
        return folder, Path.cwd()
    # With several folders of that name, the right one has an input that the records name.
    inputs = _inputs_below(folder) if len(places) > 1 else set()
    fitting = (place for place in places if any(os.path.isfile(place[1] / name) for name in inputs))
    return next(fitting, places[0])


def _inputs_below(folder: Path) -> set[str]:
    """Inputs of the records below `folder`, and their records, where they are paths below the workflow's folder."""
    names: set[str] = set()
    for path in _records_below(folder):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            inputs = (_provenance(read_json(path)) or {}).get("inputs", {})
            names |= {entry[key] for entry in inputs.values() for key in ("path", "record") if key in entry}
    return {name for name in names if not os.path.isabs(name)}


def _records_below(folder: Path) -> list[Path]:
    # A folder may have such a name too, after a system.
    return sorted(path for path in folder.rglob("*.json") if not path.is_dir())


def _files_below(folder: Path, base: Path) -> set[str]:
    """Files without hidden ones, which are partial: being written, or left by a killed process."""
    return {_relative(path, base) for path in folder.rglob("*") if path.name[0] != "." and path.is_file()}


def _relative(path: Path, base: Path) -> str:
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(base)) if absolute.is_relative_to(base) else str(absolute)


def verify(folder: str | Path) -> str:
    """Check the results in `folder` and all their inputs; returns a summary of one line.

    Raises ArtifactError with one sentence that names the first file, in the order of the flow, that was changed, is
    missing, or was made from an input that has changed since.
    """
    chain = Chain(folder)
    described, originals, removed = chain.check()
    extra = chain.undescribed
    notes = [
        f"{originals} original {'file' if originals == 1 else 'files'}" if originals else "",
        f"{removed} {'download is' if removed == 1 else 'downloads are'} no longer there" if removed else "",
        f"{len(extra)} {'file is' if len(extra) == 1 else 'files are'} described by none ({extra[0]})" if extra else "",
    ]
    note_text = "".join(f", {note}" for note in notes if note)
    return f"{folder}: {len(chain.records)} records match, with {described} files that they describe{note_text}"


def check_finished(folder: str | Path) -> None:
    """Raises ArtifactError where no finished run has the results in `folder`, or results made from them."""
    chain = Chain(folder)
    if (chain.folder / LAST).is_file():
        return
    # The data and systems of a recipe have no report of their own.
    own_records = {path for path in chain.records if (chain.base / path).is_relative_to(chain.folder)}
    ends = (chain.base / RESULTS).glob(f"*/{LAST}")
    if all(own_records.isdisjoint(Chain(end.parents[1]).records) for end in ends):
        raise ArtifactError(
            folder,
            f"is not finished: there is no {LAST}, which a run writes at its end, and no finished experiment "
            "beside it was made from what is there",
            "run the experiment to its end",
        )
