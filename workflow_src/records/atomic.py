"""Files that are whole or absent: atomic writing, JSON with its checksum, safetensors, digests."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from workflow_src.errors import MISSING, ArtifactError, readable

# Why a file cannot grow: errors of the system, and the problem in words.
NO_ROOM = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EFBIG: "it would be larger than a file may be here",
}
# As many links as Linux follows.
LINKS = 40


@contextlib.contextmanager
def room_for(path: str | Path) -> Iterator[None]:
    """Turns errors of a full disk, a quota or a limit of sizes while `path` is written into one sentence."""
    try:
        yield
    except OSError as failure:
        if failure.errno not in NO_ROOM:
            raise
        raise _refusal(path, failure) from None


def _refusal(path: str | Path, failure: OSError) -> ArtifactError:
    """The error of the system that `path` cannot be written, as one sentence."""
    if failure.errno not in NO_ROOM:
        reason = "a part of its path is a file" if isinstance(failure, FileExistsError) else failure.strerror
        return ArtifactError(path, f"cannot be written: {reason}", "name a file elsewhere")
    limited = failure.errno == errno.EFBIG
    space = "see `ulimit -f`" if limited else _space(Path(path))
    return ArtifactError(
        path,
        f"cannot be written: {NO_ROOM[failure.errno]} ({space})",
        f"{'raise the limit' if limited else 'make room'}, then run again (nothing half-written was kept, and what "
        "was there before is untouched)",
    )


def _space(path: Path) -> str:
    """Free space on the disk of the nearest existing folder above `path`."""
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    disk = os.statvfs(folder)
    free, total = disk.f_bavail * disk.f_frsize / 1e6, disk.f_blocks * disk.f_frsize / 1e6
    files = "" if disk.f_favail or not disk.f_files else ", and it can hold no more files"
    return f"{free:,.1f} of {total:,.1f} MB of the disk of {folder} are free{files}"


class _File(io.FileIO):
    """A file whose writes fail with a sentence where the disk is full, naming the file that it will become."""

    def __init__(self, handle: int, target: Path):
        super().__init__(handle, "w")
        self.target = target

    def write(self, content: Any) -> int:
        with room_for(self.target):
            return super().write(content)


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file's content, as `atomic` writes: another name of the old file (`link_file`) keeps the old content.

    Raises ArtifactError for a source that is missing or cannot be read.
    """
    with readable(source):
        content = open(source, "rb")
    with content, atomic(target, "wb") as copy:
        shutil.copyfileobj(content, copy, 1 << 20)


def link_file(source: str | Path, target: str | Path) -> None:
    """Give a file a second name, or copy it where the disk has no hard links.

    Raises ArtifactError for a source that is missing, and where the disk is full.
    """
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)


def _is_open_file(path: Path) -> bool:
    """True for a path that leads, over any links, to a file that a process has open, as /dev/stdout does."""
    for _ in range(LINKS):
        folder = os.path.realpath(path.parent)
        if re.fullmatch(r"/proc/.+/fd", folder):
            return True
        path = Path(folder, path.name)
        if not path.is_symlink():
            return False
        path = Path(folder, path.readlink())
    return False


def _replaceable(path: Path) -> Path:
    """The file that writing `path` replaces, links followed. Raises ArtifactError for a path that is no file."""
    # Other processes may go on writing to a file that a process has open.
    opened = _is_open_file(path)
    if path.is_dir() and not opened:
        raise ArtifactError(path, "is a folder", "name a file in it")
    if opened or (path.exists() and not path.is_file()):
        raise ArtifactError(
            path,
            "is a pipe or a device, which cannot be replaced as a whole",
            "name a file, or write to standard output",
        )
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def new_file_mode() -> int:
    """The mode of a new file by the umask: temporary files are private, and results are shared like any output."""
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


@contextlib.contextmanager
def atomic(path: str | Path, mode: str = "w") -> Iterator[IO]:
    """Open a temporary file beside `path`; on success it is flushed to disk and renamed, on any error removed.

    A process that is killed leaves it, hidden. Of two writers, the last one's file stays. Text is UTF-8 with plain
    newlines. A reader sees the old file or the whole new one, never a part. A link stays, and the file that it points
    to is replaced. A file that is replaced keeps its mode.

    Raises ArtifactError before anything is written where `path` cannot be a file: a folder, a pipe or a device, or in
    a folder that cannot be written.
    """
    try:
        path = _replaceable(Path(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        # Most disks allow 255 bytes in all, up to four for a letter.
        prefix = f".{path.name[:50]}."
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".partial")
    except OSError as failure:
        raise _refusal(path, failure) from None
    buffered = io.BufferedWriter(_File(handle, path))
    file: Any = buffered if "b" in mode else io.TextIOWrapper(buffered, encoding="utf-8", newline="\n")
    try:
        with file:
            yield file
            file.flush()
            with room_for(path):
                os.fsync(handle)
        os.chmod(name, stat.S_IMODE(path.stat().st_mode) if path.exists() else new_file_mode())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def canonical(content: Any) -> str:
    """JSON as `write_json` writes it: indented, keys sorted."""
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_json(path: str | Path, content: Any) -> None:
    """Write `content` as indented JSON with sorted keys, atomically; content with provenance gets its own checksum."""
    text = canonical(content)
    if isinstance(content, dict) and "provenance" in content:
        sealed = json.loads(text)
        sealed["provenance"]["checksum"] = checksum(sealed)
        text = canonical(sealed)
    with atomic(path) as file:
        file.write(text)


def checksum(record: dict[str, Any]) -> str:
    """Digest of a record without its own checksum, by which a changed record is recognised."""
    block = {name: value for name, value in record["provenance"].items() if name != "checksum"}
    return fingerprint(record | {"provenance": block})


# The problem of a file that is not read.
PICKLE = (
    "is refused: it is a pickle (what torch.save writes), not a safetensors file, and reading a pickle can run any code"
)


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises ArtifactError naming the file when it is missing, damaged or a folder."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    # Other errors of the system, which may pass, stay: who takes a damaged file for none would delete a good one.
    except FileNotFoundError:
        raise ArtifactError(path, MISSING) from None
    except IsADirectoryError:
        raise ArtifactError(path, "is a folder", "name a file") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise ArtifactError(path, f"is damaged ({failure})", "delete it and make it again") from None


def sha256(path: str | Path) -> str:
    """SHA-256 of a file, as 64 hexadecimal digits."""
    return file_digest(path, "sha256")


def file_digest(path: str | Path, algorithm: str) -> str:
    """A sum of a file as hexadecimal digits, by an algorithm of `hashlib`."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def fingerprint(content: Any) -> str:
    """Digest of JSON-like content, independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def save_tensors(path: str | Path, tensors: dict[str, Any]) -> None:
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic(path, "wb") as file:
        file.write(save(plain))


def load_tensors(path: str | Path) -> dict[str, Any]:
    """Tensors of a safetensors file, on the CPU. Pickles are never read.

    Raises ArtifactError naming the file when it is missing, damaged or another format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(path))
    except FileNotFoundError:
        raise ArtifactError(path, MISSING) from None
    except (SafetensorError, ValueError) as failure:
        if _is_pickle(path):
            raise ArtifactError(path, PICKLE, "ask for a copy that was saved with safetensors") from None
        raise ArtifactError(
            path, f"is damaged or not a safetensors file ({failure})", "make or copy it again"
        ) from None


def _is_pickle(path: str | Path) -> bool:
    """True for a file of torch.save by its first bytes: a zip archive, or a pickle of protocol 2 or newer."""
    with open(path, "rb") as file:
        start = file.read(4)
    return start == b"PK\x03\x04" or (start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"))
