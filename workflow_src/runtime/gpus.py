"""Which GPU a job gets: jobs that run side by side on one machine take different ones, or share them as they may.

Each GPU has a file in a folder that all jobs of the machine share; the process that holds its lock (flock) has the
GPU. Jobs that share it hold the lock together, and each that of one of its places. The kernel releases a lock when its
process ends, so there are no stale ones. The file also names the holder, which the package filelock has no place for.
No torch here: a GPU is taken before any library looks at it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from workflow_src.errors import ArtifactError, ConfigError

log = logging.getLogger("continuum")

VISIBLE = "CUDA_VISIBLE_DEVICES"
FOLDER = "CONTINUUM_DEVICE_LOCKS"
# Not in TMPDIR: schedulers give every job one of its own.
DEFAULT_FOLDER = "/tmp/continuum-devices"
# GPUs that a parent process took for this one.
LEASED = "CONTINUUM_DEVICES_LEASED"
# Jobs that may share a GPU; one where it is not set.
SHARING = "CONTINUUM_JOBS_PER_GPU"
LOG_SECONDS = 60.0


class GpuBusy(TimeoutError):
    """Other jobs hold the GPUs, and the time to wait for them is up."""


@dataclasses.dataclass
class Lease:
    """GPUs as CUDA_VISIBLE_DEVICES names them, held until `release` or the end of the process."""

    devices: tuple[str, ...]
    files: list[int]

    def release(self) -> None:
        """Let others have the GPUs. CUDA may hold them until the process ends, though."""
        for file in self.files:
            os.close(file)
        self.files = []


def lease(
    count: int = 1, names: dict[str, str] | None = None, seconds: float | None = None, alone: bool = False
) -> Lease | None:
    """Take `count` GPUs that no other job holds, all or none at a time, and set CUDA_VISIBLE_DEVICES to them.

    Where CONTINUUM_JOBS_PER_GPU lets several jobs share a GPU, it takes the first free place on each, unless it
    is to be `alone` there.

    `names` maps names of GPUs in CUDA_VISIBLE_DEVICES to names of their locks; default: all visible GPUs. Waits until
    enough are free, `seconds` at most if given. None where there is no GPU, or a parent process took some for us.

    Raises ConfigError when more are wanted than there are, and GpuBusy, which names the holders, when the time is up.
    """
    if os.environ.get(LEASED) is not None and os.environ.get(LEASED) == os.environ.get(VISIBLE):
        return None
    names = visible() if names is None else names
    if not names:
        return None
    if count > len(names):
        raise ConfigError(
            "runtime.devices",
            count,
            problem=f"{len(names)} GPUs are visible here ({', '.join(names)})",
            hint=f"lower it, or let {VISIBLE} name more",
        )
    began, reported = time.monotonic(), -LOG_SECONDS
    while True:
        leased = _lock_free(names, count, alone)
        if leased:
            os.environ[VISIBLE] = os.environ[LEASED] = ",".join(leased.devices)
            return leased
        waited = time.monotonic() - began
        if seconds is not None and waited >= seconds:
            raise GpuBusy(f"no {count} free GPUs within {seconds:g} s: {_holders_text(names)}.")
        if waited - reported >= LOG_SECONDS:
            log.info("waiting for %d free GPUs: %s", count, _holders_text(names))
            reported = waited
        # Two jobs that each want several must not keep step.
        time.sleep(random.uniform(0.2, 1.0))


def announce(index: int) -> Lease | None:
    """Hold the lock of the GPU that the user chose by its number, so that others choose another.

    If another process holds it already, a warning names that process, and the GPU is used all the same.
    """
    names = visible()
    if index >= len(names) or os.environ.get(LEASED) is not None:
        return None
    device = list(names)[index]
    leased = _lock_free({device: names[device]}, 1, alone=False)
    if leased is None:
        log.warning("warning: GPU %s (cuda:%d) is in use by %s", device, index, holder(names[device]))
    return leased


def visible() -> dict[str, str]:
    """GPUs that this process may use: their names in CUDA_VISIBLE_DEVICES, and of their locks (UUIDs if known)."""
    installed = _installed()
    if not installed and not Path("/dev/nvidiactl").exists():
        return {}
    listed = os.environ.get(VISIBLE)
    if listed is None:
        return {uuid: uuid for uuid in installed}
    names = {}
    for word in listed.split(","):
        word = word.strip()
        # As CUDA does, ignore all words after one that names no GPU.
        if not re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", word):
            break
        # Inside a container or a Slurm job, 0 may be another GPU than outside. The beginning of a UUID names a GPU too.
        places = installed[int(word) :][:1] if word.isdigit() else [uuid for uuid in installed if uuid.startswith(word)]
        if word.isdigit() and installed and not places:
            break
        names[word] = places[0] if len(places) == 1 else word
    return names


def _installed() -> list[str]:
    """UUIDs of the machine's GPUs in the order of their numbers, from nvidia-smi; none without it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    words = [command, "--query-gpu=uuid", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
        return [line.strip() for line in output.splitlines() if line.startswith("GPU-")]
    return []


def folder() -> Path:
    """The folder of the locks: CONTINUUM_DEVICE_LOCKS, or a folder that all users of the machine share.

    Raises ArtifactError when it cannot be made.
    """
    if os.environ.get(FOLDER):
        return _create(Path(os.environ[FOLDER]))
    try:
        return _create(Path(DEFAULT_FOLDER))
    except ArtifactError as failure:
        # In a container, TMPDIR may be the only folder that can be written.
        fallback = Path(tempfile.gettempdir(), Path(DEFAULT_FOLDER).name)
        log.warning("warning: %s Jobs are kept apart by %s until then.", failure, fallback)
        return _create(fallback)


def _create(path: Path) -> Path:
    if path.is_dir():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        # With any umask, all users may add files and remove only their own.
        fresh.chmod(0o1777)
        try:
            # Under its name only when it is as it should be; an empty folder of another job is replaced.
            fresh.rename(path)
        except OSError:
            fresh.rmdir()
            if not path.is_dir():
                raise
    except OSError as failure:
        raise ArtifactError(
            path,
            f"cannot be made ({failure.strerror})",
            f"name another folder for the locks of GPUs, which all who share the GPUs can write, in {FOLDER}",
        ) from None
    return path


def _path(name: str, place: int | None = None) -> Path:
    """The lock of a GPU, or of one of the places that jobs which share it have."""
    stem = re.sub(r"[^A-Za-z0-9-]", "_", name)
    return folder() / (f"{stem}.lock" if place is None else f"{stem}.place-{place}.lock")


def holder(name: str) -> str:
    """The process that wrote the lock file of a GPU last: its number and command."""
    try:
        return _path(name).read_text(encoding="utf-8").strip() or "a process that is starting"
    except OSError:
        return "nobody"


def _lock_free(names: dict[str, str], count: int, alone: bool) -> Lease | None:
    """Locks of `count` free GPUs, or of a place on each; None, and no lock, when fewer are free."""
    jobs = int(os.environ.get(SHARING, "1"))
    # The first places first, so that jobs spread over the GPUs.
    places: Iterable[int | None] = range(jobs) if jobs > 1 and not alone else [None]
    files: dict[str, list[int]] = {}
    for place, (device, name) in itertools.product(places, names.items()):
        locks = [] if device in files else _locks(name, place)
        if locks:
            files[device] = locks
        if len(files) == count:
            for device_locks in files.values():
                _write_holder(device_locks[0])
            taken = tuple(device for device in names if device in files)
            return Lease(taken, list(itertools.chain.from_iterable(files.values())))
    for file in itertools.chain.from_iterable(files.values()):
        os.close(file)
    return None


def _locks(name: str, place: int | None) -> list[int]:
    """The open, locked files of a GPU for a job alone, or of one of its places; none where another job has them."""
    file = _lock(_path(name), shared=place is not None)
    if file is None or place is None:
        return [] if file is None else [file]
    place_file = _lock(_path(name, place))
    if place_file is None:
        os.close(file)
        return []
    return [file, place_file]


def _holders_text(names: dict[str, str]) -> str:
    holders = [f"{device} by {holder(name)}" for device, name in names.items() if _is_locked(name)]
    return "; ".join(holders) or "GPUs were released just now"


def _is_locked(name: str) -> bool:
    file = _lock(_path(name))
    if file is not None:
        os.close(file)
    return file is None


def _lock(path: Path, shared: bool = False) -> int | None:
    """The open, locked file; None when another process holds it. Holders with `shared` hold it together.

    Files stay: removing one would let two hold it.
    """
    file = _open(path)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError as failure:
        os.close(file)
        raise ArtifactError(
            path, f"is on a disk without locks ({failure.strerror})", f"name a folder on another disk in {FOLDER}"
        ) from None
    return file


def _open(path: Path) -> int:
    """The open file of a lock, created if missing. Raises ArtifactError when this user cannot open it."""
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        # Without O_CREAT for a file that exists: in a folder for everybody, Linux then refuses files of others.
        try:
            file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except (FileNotFoundError, FileExistsError, PermissionError) as failure:
            lacking: OSError = failure
            continue
        except OSError as failure:
            lacking = failure
            break
        if flags & os.O_CREAT:
            os.fchmod(file, 0o666)
        return file
    raise ArtifactError(
        path,
        f"is the lock of a GPU, and cannot be opened ({lacking.strerror})",
        f"name another folder, which all who share the GPUs can write, in {FOLDER}",
    )


def _write_holder(file: int) -> None:
    """Write the holder into a lock's file, for processes that wait. A read-only file keeps an older holder."""
    program, *words = sys.argv or ["python"]
    command = " ".join([Path(program).name, *words[:2]])[:120]
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} ({command})\n".encode(), 0)
