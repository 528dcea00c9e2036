"""Signs that a file has changed: digests of the user's texts, and dates of files, which may be of another clock."""

from __future__ import annotations

import datetime
import functools
import os
import shlex
import time
from collections.abc import Iterable
from pathlib import Path

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json, sha256

# Clocks of machines that share a disk differ by less.
TOLERANCE = 60.0


def contents(paths: Iterable[str], record: str | Path | None = None) -> dict[str, str | None]:
    """SHA-256 of files by their path; None for one that does not exist or cannot be read.

    A missing file has the digest that `record` has of it as an input: what was made from it stays as it is.
    """
    digests = {path: _content(path, _status(path)) for path in paths}
    missing = [path for path in digests if not os.path.exists(path)]
    if record and missing:
        digests |= {path: digest for path, digest in _recorded_inputs(record).items() if path in missing}
    return digests


def _recorded_inputs(record: str | Path) -> dict[str, str]:
    """SHA-256 of the inputs of a record by their path; none where it cannot be read."""
    try:
        inputs = read_json(record)["provenance"]["inputs"].values()
        return {entry["path"]: entry["sha256"] for entry in inputs}
    except (ArtifactError, OSError, LookupError, TypeError, AttributeError):
        return {}


def _status(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


@functools.cache
def _content(path: str, status: tuple[int, int] | None) -> str | None:
    """SHA-256 of a file, computed once for each change: Snakemake calls for it several times."""
    try:
        return sha256(path) if status else None
    except OSError:
        return None


def check_dates(paths: Iterable[str | Path]) -> None:
    """Raises ArtifactError for files, also those in folders, whose last change lies ahead.

    Snakemake fails after a job whose inputs are newer than its outputs, and deletes these.
    """
    latest = time.time() + TOLERANCE
    ahead = sorted({path for path in _files(paths) if _date(path) > latest})
    if ahead:
        date = datetime.datetime.fromtimestamp(_date(ahead[0])).isoformat(" ", "seconds")
        more_files, cure = "", f"touch {shlex.quote(ahead[0])}"
        if len(ahead) > 1:
            more_files = f", and so {'is 1 more file' if len(ahead) == 2 else f'are {len(ahead) - 1} more files'}"
            # One date for all: an input must not become newer than its outputs.
            now = datetime.datetime.now().isoformat("T", "seconds")
            folders = sorted({os.path.dirname(path) or "." for path in ahead})
            cure = f"find {shlex.join(folders)} -maxdepth 1 -type f -newermt now -exec touch -d {now} {{}} +"
        raise ArtifactError(
            ahead[0], f"is dated in the future ({date}){more_files}: jobs that read it would fail", f"run `{cure}`"
        )


def _date(path: str) -> float:
    """When a file was last changed; 0 for one that another run has just removed."""
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _files(paths: Iterable[str | Path]) -> Iterable[str]:
    for path in map(str, paths):
        if os.path.isfile(path):
            yield path
        for folder, _, names in os.walk(path):
            yield from (os.path.join(folder, name) for name in names)
