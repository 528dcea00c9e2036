"""Provenance of artefacts: records of settings, inputs, versions and hardware, and the digests that they vouch for."""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json, sha256, write_json
from workflow_src.registry import engines, files_of, plugins

# The folder workflow_src.
PACKAGE = Path(__file__).resolve().parents[1]
# Format of the block that every record has.
FORMAT = 1
# Packages whose versions are recorded, besides those of engines.
PACKAGES = "torch numpy sentencepiece subword-nmt sacremoses sacrebleu snakemake safetensors numba".split()


def digests(folder: str | Path, names: Iterable[str | Path]) -> dict[str, str]:
    """SHA-256 of files in `folder` by their names, or paths below it, as a record there holds them."""
    return {Path(name).as_posix(): sha256(Path(folder, name)) for name in names}


def lost_files(record: str | Path) -> list[str]:
    """Names of the files that a record vouches for and that are not beside it; none where it cannot be read."""
    try:
        files = read_json(record)["provenance"]["files"]
        return [name for name in files if not Path(Path(record).parent, name).exists()]
    except (ArtifactError, OSError, KeyError, TypeError):
        return []


def lost_subwords(record: str | Path) -> str:
    """A warning where models of subwords are lost, so that jobs which read them would fail; else "".

    They are not learned again by themselves: all that follows would run again, which the user decides.
    """
    lost = [str(Path(record).with_name(name)) for name in lost_files(record)]
    if not lost:
        return ""
    return (
        f"{' and '.join(lost)} is missing: copy it back, or delete {record} to learn subwords again, after which all "
        "that follows runs again."
    )


def described_by(path: str | Path) -> Path | None:
    """The record of a file: itself, if it carries provenance, or the JSON file beside it that has its digest."""
    path = Path(path)
    for candidate in [path] if path.suffix == ".json" else sorted(path.parent.glob("*.json")):
        with contextlib.suppress(ArtifactError, OSError):
            content = read_json(candidate)
            block = content.get("provenance") if isinstance(content, dict) else None
            if isinstance(block, dict) and (candidate == path or path.name in block.get("files", {})):
                return candidate
    return None


@functools.cache
def installed_version(package: str) -> str | None:
    """The version of an installed package; None for one that is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def commit() -> str | None:
    """The commit of the code that runs, marked when files differ from it; None outside git.

    It is read once. A job reads it when it starts: a user may change the checkout while a long job runs the code that
    it imported. Git also starts faster while the process is small.
    """
    git = ["git", "-C", str(PACKAGE)]
    try:
        revision, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", str(PACKAGE)])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{revision}-modified" if changes else revision


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _accelerator() -> str | None:
    """The GPU that this process computes on, if it does."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return torch.cuda.get_device_name()


def _input(path: str | Path) -> dict[str, str]:
    record = described_by(path)
    return {"path": str(path), "sha256": sha256(path)} | ({"record": str(record)} if record else {})


def code_digest() -> str:
    """SHA-256 of the package's own source and of the plug-ins': the same wherever they lie, another after any edit."""
    digest = hashlib.sha256()
    for loaded in plugins():
        digest.update(json.dumps(loaded.record(), sort_keys=True).encode() + b"\0")
    for path in files_of(PACKAGE, "*.py"):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def provenance(
    settings: Any = None,
    inputs: Mapping[str, str | Path] | None = None,
    files: dict[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Provenance of an artefact: settings, inputs, versions, commit, hardware, time (UTC).

    `inputs` are name -> path; their digests are kept, and the records that describe them. `files` are the digests of
    the files that the record with this provenance vouches for (see `digests`). `continuum verify` follows both.
    """
    packages = dict.fromkeys([*PACKAGES, *(package for engine in engines().values() for package in engine.packages)])
    return {
        "format": FORMAT,
        "settings": settings,
        "inputs": {name: _input(path) for name, path in (inputs or {}).items()},
        "files": files or {},
        "versions": {"python": platform.python_version()} | {name: installed_version(name) for name in packages},
        "commit": commit(),
        **({"plugins": [loaded.record() for loaded in plugins()]} if plugins() else {}),
        "hardware": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "system": platform.system(),
            "accelerator": _accelerator(),
        },
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **fields,
    }


def numbered(name: str, paths: Sequence[Path]) -> dict[str, Path]:
    """Inputs of one kind by names: `name` for the first, then `name 2` and so on."""
    return {f"{name} {number}" if number > 1 else name: path for number, path in enumerate(paths, 1)}


def write_record(
    path: str | Path, settings: Any, inputs: Mapping[str, str | Path], names: Iterable[str], **fields: Any
) -> None:
    """A record for files that cannot carry provenance themselves: `names`, in the folder of `path`."""
    path = Path(path)
    write_json(path, {"provenance": provenance(settings, inputs, digests(path.parent, names), **fields)})
