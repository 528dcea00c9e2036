"""Environment variables of libraries: no telemetry, and folders for caches that can be written.

Standard library only: this runs before anything else is imported.
"""

from __future__ import annotations

import getpass
import logging
import os
import stat
import tempfile
from pathlib import Path

# By default ONNX Runtime stores an identifier of the machine and reports to its makers. The first name is that of
# version 1.31, the second that of later ones; the others are for libraries that a plug-in may bring.
NO_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK")
log = logging.getLogger("continuum")


def prepare() -> None:
    """Set variables of the environment where they are missing, for this process and those that it starts.

    Telemetry is switched off. Without a home folder that can be written, as for users of containers who have no entry
    in passwd, caches go to a folder among temporary files, with a warning.
    """
    for name in NO_TELEMETRY:
        os.environ.setdefault(name, "1")
    if not _user():
        os.environ["LOGNAME"] = f"uid-{os.getuid()}"
    home = _home()
    cache = os.environ.get("XDG_CACHE_HOME")
    if home and writable(Path(cache) if cache else home / ".cache"):
        return
    try:
        folder = _private_folder()
    except OSError:
        # Nothing can be written anywhere: libraries that need a cache report that.
        return
    if not home:
        os.environ["HOME"] = str(folder)
    if not (cache and writable(Path(cache))):
        os.environ["XDG_CACHE_HOME"] = str(folder / ".cache")
    os.environ.setdefault("TRITON_HOME", str(folder))
    log.warning("warning: there is no home folder that can be written; caches are in %s (set HOME to choose)", folder)


def writable(folder: Path) -> bool:
    """Whether a folder, or the nearest one above it that exists, can be written."""
    # Not the methods of paths, which raise errors where a folder may not be looked into.
    nearest = next((path for path in (folder, *folder.parents) if os.path.exists(path)), None)
    return nearest is not None and os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK)


def _user() -> bool:
    """Whether this user has a name, which Snakemake and PyTorch need."""
    try:
        return bool(getpass.getuser())
    except (KeyError, OSError, ImportError):
        return False


def _home() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if os.path.isdir(home) else None


def _private_folder() -> Path:
    """A folder among temporary files that belongs to this user alone: code in caches is executed."""
    folder = Path(tempfile.gettempdir(), f"continuum-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            return Path(tempfile.mkdtemp(prefix="continuum-"))
    return folder
