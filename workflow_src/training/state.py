"""Training state that survives a killed job.

A folder holds the last two states, each a safetensors file and a JSON file. The JSON file is written last, with the
SHA-256 of the first and a digest of its own content: a state without a matching JSON file does not count. The folder
belongs to one fingerprint (settings, digests of inputs, format); state of another one is moved aside, never loaded. A
lock beside the folder lets one process at a time use it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import fingerprint, load_tensors, read_json, save_tensors, sha256, write_json
from workflow_src.records.checked import check_format
from workflow_src.records.provenance import code_digest

FORMAT = 2
FINISHED = "finished.json"
KEEP = 2
log = logging.getLogger("continuum")


# Seconds that a training waits for an earlier one to end: a job whose workflow was killed saves first, and a file
# server takes a minute or two to notice that a machine is gone.
WAIT = 180.0
# Files of the locks that this process holds, open. Closing one would give its lock up.
_lock_files: dict[Path, int] = {}


def _check_format(marker: Path) -> None:
    """Raises ArtifactError for states of another format. A file that is not a marker passes: its states are moved aside
    later."""
    try:
        content = read_json(marker)
    except (ArtifactError, OSError):
        return
    if isinstance(content, dict):
        check_format(content, FORMAT, str(marker.parent), f"delete {marker.parent} to train anew")


class StateFolder:
    """The folder of one training's states, for this process alone until it ends.

    Raises ArtifactError when another process has it, its lock is another user's, or its states have another format.
    """

    def __init__(self, folder: str | Path, fingerprint: str):
        self.folder = Path(folder)
        self.fingerprint = fingerprint
        # Read now, because the package may be edited while this training runs.
        self._code = code_digest()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        _lock(self.folder)
        self._finish_exchange()
        self.folder.mkdir(exist_ok=True)
        marker = self.folder / "fingerprint.json"
        _check_format(marker)
        # States without a marker may be of any settings.
        if (marker.exists() or self._states()) and not self._matches(self.folder):
            if self._matches(self._superseded) and not self._finished_by_other_code(self._superseded):
                self._exchange()
            else:
                self._move_aside("settings or inputs changed")
        if self._finished_by_other_code(self.folder):
            # The training had finished; after a change of the code the job is to train a new system.
            self._move_aside("this training had finished, by other code")
        write_json(marker, {"fingerprint": fingerprint, "format": FORMAT})

    def _matches(self, folder: Path) -> bool:
        try:
            return read_json(folder / "fingerprint.json") == {"fingerprint": self.fingerprint, "format": FORMAT}
        except (ArtifactError, OSError):
            return False

    @property
    def _superseded(self) -> Path:
        return self.folder.with_name(self.folder.name + ".superseded")

    @property
    def _exchanged(self) -> Path:
        return self.folder.with_name(self.folder.name + ".exchanged")

    def _finished_by_other_code(self, folder: Path) -> bool:
        """Whether the folder is of a training that finished with other code than this."""
        if not (folder / FINISHED).exists():
            return False
        try:
            return read_json(folder / FINISHED).get("code") != self._code
        except (ArtifactError, AttributeError):
            return True

    def finish(self, machine: dict[str, Any] | None = None) -> None:
        """Record that the system has been written, and the machine that it was trained on.

        A job whose output was lost writes it again from the last state; with other code, training starts afresh.
        """
        write_json(self.folder / FINISHED, {"finished": True, "code": self._code, "machine": machine or {}})

    def finished_on(self) -> dict[str, Any] | None:
        """The machine that `finish` recorded; None where no training with these settings, inputs and code finished."""
        try:
            return read_json(self.folder / FINISHED)["machine"]
        except (ArtifactError, OSError, KeyError, TypeError):
            return None

    def _move_aside(self, reason: str) -> None:
        shutil.rmtree(self._superseded, ignore_errors=True)
        self.folder.rename(self._superseded)
        self.folder.mkdir()
        log.info("%s: training starts afresh, the old state is in %s", reason, self._superseded)

    def _exchange(self) -> None:
        """Go back to the states that were moved aside last, which are of these settings and inputs."""
        self._superseded.rename(self._exchanged)
        self.folder.rename(self._superseded)
        self._exchanged.rename(self.folder)
        log.info("settings or inputs are again those of an older state; the other one is in %s", self._superseded)

    def _finish_exchange(self) -> None:
        """Complete an `_exchange` that was interrupted."""
        if self._exchanged.exists():
            self._exchanged.rename(self._superseded if self.folder.exists() else self.folder)

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


def pack_random(generator: torch.Generator) -> dict[str, Tensor]:
    """States of all random-number generators that training uses (uint8 tensors)."""
    states = {"random.cpu": torch.get_rng_state(), "random.objective": generator.get_state()}
    if generator.device.type == "cuda":
        states["random.cuda"] = torch.cuda.get_rng_state(generator.device)
    return states


def unpack_random(generator: torch.Generator, tensors: dict[str, Tensor]) -> None:
    """Undo `pack_random`. A state from another kind of device goes on with the generator's own seed."""
    torch.set_rng_state(tensors["random.cpu"])
    if tensors["random.objective"].shape == generator.get_state().shape:
        generator.set_state(tensors["random.objective"])
    else:
        log.warning("warning: the state is from another kind of device; random draws differ from there on")
    if "random.cuda" in tensors and generator.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], generator.device)
