"""Training state that survives a killed job.

A folder, which has the name of a fingerprint (of settings, digests of inputs, and format), holds the last two states,
each a safetensors file and a JSON file. The JSON file is written last, with the SHA-256 of the first and a digest of
its own content: a state without a matching JSON file does not count. When the system is written, the digest of the code
becomes part of the folder's name, so that other code trains a system of its own. A lock lets one process at a time use
all states of a training.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import logging
import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import fingerprint, load_tensors, read_json, save_tensors, sha256, write_json
from workflow_src.records.provenance import code_digest

FORMAT = 4
FINISHED = "finished.json"
# Hexadecimal digits of a fingerprint in the name of a folder.
DIGITS = 16
FOLDER = re.compile(rf"[0-9a-f]{{{DIGITS}}}(-[0-9a-f]{{{DIGITS}}})?")
KEEP = 2
log = logging.getLogger("continuum")


# Seconds that a training waits for an earlier one to end: a job whose workflow was killed saves first, and a file
# server takes a minute or two to notice that a machine is gone.
WAIT = 180.0
# Files of the locks that this process holds, open. Closing one would give its lock up.
_lock_files: dict[Path, int] = {}


@dataclasses.dataclass
class Progress:
    """The state of a training beside tensors."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    snapshots: int = 0
    # The place in `history` of the weights that are kept: the last, unless `keep` is best.
    chosen: int = -1
    # The update that the last validation followed.
    validated: int = 0
    skipped: int = 0
    skipped_in_row: int = 0


class StateFolder:
    """The folder of one training's states, for this process alone until it ends.

    `parent` is the folder of all states of a system and seed. Of folders of other settings, inputs or code, to which a
    user may go back, the one that was used last is kept; older ones are removed, and the log counts them.

    Raises ArtifactError when another process has the states, or their lock is another user's.
    """

    def __init__(self, parent: str | Path, identity: Any):
        self.parent = Path(parent)
        # Read now, because the package may be edited while this training runs.
        code = code_digest()
        name = fingerprint([FORMAT, identity])[:DIGITS]
        self._finished = self.parent / f"{name}-{code[:DIGITS]}"
        self.parent.mkdir(parents=True, exist_ok=True)
        _lock(self.parent)
        self.folder = self._finished if self._finished.exists() else self.parent / name
        self.folder.mkdir(exist_ok=True)
        # The time of the last use.
        os.utime(self.folder)
        self._remove_old_folders()

    def _remove_old_folders(self) -> None:
        others = [path for path in self.parent.iterdir() if FOLDER.fullmatch(path.name) and path != self.folder]
        old = sorted(others, key=lambda path: path.stat().st_mtime_ns)[:-1]
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)
        if old:
            log.info("%s: removed %d folders with states of older settings, inputs or code", self.parent, len(old))
        if len(others) > len(old) and not self._states():
            log.info(
                "settings, inputs or code have changed: training starts afresh; the old state stays in %s, in case you "
                "change them back",
                self.parent,
            )

    def finish(self, machine: dict[str, Any] | None = None) -> None:
        """Record that the system has been written, and the machine that it was trained on.

        A job whose output was lost writes it again from the last state; other code begins a training of its own.
        """
        self.folder = self.folder.rename(self._finished)
        write_json(self.folder / FINISHED, {"machine": machine or {}})

    def finished_on(self) -> dict[str, Any] | None:
        """The machine that `finish` recorded; None where no training with these settings, inputs and code finished."""
        try:
            return read_json(self.folder / FINISHED)["machine"]
        except (ArtifactError, OSError, KeyError, TypeError):
            return None

    def save(self, step: int, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Write a state: tensors and JSON-like values; older ones beyond the last two are removed."""
        path = self.folder / f"step-{step:09d}.safetensors"
        save_tensors(path, tensors)
        record = {"sha256": sha256(path), "step": step, "values": values}
        write_json(path.with_suffix(".json"), record | {"digest": fingerprint(record)})
        for old in self._states()[:-KEEP]:
            old.unlink(missing_ok=True)
            old.with_suffix(".safetensors").unlink(missing_ok=True)
        for orphan in self.folder.glob("step-*.safetensors"):
            if not orphan.with_suffix(".json").exists():
                orphan.unlink(missing_ok=True)
        # Left by a job that was killed while it wrote.
        for partial in self.folder.glob(".*.partial"):
            partial.unlink(missing_ok=True)

    def _states(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.json"))

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest intact state, or None. A damaged one is passed over with a warning, and its JSON file removed, so
        that it cannot replace states that are saved after it."""
        for marker in reversed(self._states()):
            path = marker.with_suffix(".safetensors")
            try:
                record = read_json(marker)
                if record.pop("digest") != fingerprint(record):
                    raise ArtifactError(marker.name, "does not match its own checksum")
                if not path.exists() or sha256(path) != record["sha256"]:
                    raise ArtifactError(path.name, f"does not match the checksum in {marker.name}")
                return load_tensors(path), record["values"]
            except (ArtifactError, KeyError, TypeError, AttributeError) as failure:
                log.warning("warning: training state %s cannot be used (%s); trying an older one", path, failure)
                marker.unlink(missing_ok=True)
                # The updates after it are computed again, perhaps on another machine.
                (self.folder / FINISHED).unlink(missing_ok=True)
        return None


def _lock(folder: Path) -> None:
    """Take the lock of a folder of states until this process ends, however it ends.

    The lock file has the name of the process that holds it, for messages. On disks without locks this only warns. The
    package filelock can do neither.
    """
    path = folder.resolve().with_name(folder.name + ".lock")
    if path in _lock_files:
        return
    try:
        is_new = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if is_new:
            # Users that share the folder may go on with this training, whatever the umask is.
            os.fchmod(file, 0o666)
    except PermissionError:
        raise ArtifactError(
            path,
            "is the lock of a training's state, and cannot be opened: it is another user's",
            f"ask for write access to it and to {folder}, or delete it when that user's training has ended",
        ) from None
    began, reported = time.monotonic(), False
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as failure:
            if failure.errno not in (errno.EACCES, errno.EAGAIN):
                log.warning("warning: %s cannot be locked (%s); let no other training use %s", path, failure, folder)
                break
        holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
        if time.monotonic() - began > WAIT:
            os.close(file)
            raise ArtifactError(
                folder,
                f"is a training state that {holder} uses, and two trainings of one system would destroy each other's",
                f"wait until that one has ended, or end it; if its machine is gone, delete {path}",
            )
        if not reported:
            log.info("waiting for %s, which has the training state %s", holder, folder)
            reported = True
        time.sleep(0.5)
    _lock_files[path] = file
    os.ftruncate(file, 0)
    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def pack_optimiser(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Tensors of the optimiser's state, named INDEX.KEY."""
    state = optimiser.state_dict()["state"]
    return {f"optimiser.{index}.{key}": value for index, entry in state.items() for key, value in entry.items()}


def unpack_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Undo `pack_optimiser` for an optimiser over the same parameters."""
    content = optimiser.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = tensor
    content["state"] = state
    optimiser.load_state_dict(content)
