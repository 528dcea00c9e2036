"""Reading texts that are compressed (gz, bz2, xz, zst) or inside archives (tar, zip, archives inside archives).

A member is streamed, and nothing is written to a path that an archive gives. An archive inside an archive is copied to
a temporary file, because zip and a second pass need one.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import posixpath
import shutil
import stat
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from workflow_src.data.formats import START, TAR_MAGIC_AT, ZIP, Contents, compression, json_format, other_format
from workflow_src.data.rows import listed
from workflow_src.errors import MISSING, ArtifactError, readable
from workflow_src.records.atomic import room_for

# The backport has the interface of Python 3.14's own module.
if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DAMAGE = (EOFError, tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)
# The most that unpacking one .xz may take: `xz -9` needs 65 MiB. Zstandard's own limit is 128 MiB.
MOST_MEMORY = 1 << 29
DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=MOST_MEMORY),
    "Zstandard": zstd.ZstdDecompressor,
}
# Files that grow more than this when unpacked are refused as traps; compression shrinks text to a tenth or so.
MOST_GROWTH = 200
# Small files may grow more.
ALWAYS_ALLOWED = 1 << 28


# Headers whose content the tar reader holds in memory: long names and links, attributes.
IN_MEMORY = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
MOST_HEADER = 1 << 20
# What is wrong with a file whose bytes cannot be read.
DAMAGED = "is truncated or damaged"


@contextlib.contextmanager
def reported(name: str) -> Iterator[None]:
    """Turns errors of archive readers on damaged bytes into one sentence that names the file."""
    try:
        yield
    except (*DAMAGE, OSError) as failure:
        # bz2 raises an OSError without errno on damaged bytes. Damaged headers of a zip lead to a place before the
        # file's start, which is EINVAL.
        if not isinstance(failure, DAMAGE) and failure.errno not in (None, errno.EINVAL):
            raise
        reason = " ".join(str(failure).split()) or type(failure).__name__
        raise ArtifactError(name, f"{DAMAGED} ({reason})", "delete it and download or copy it again") from None


def largest(path: str | Path) -> int:
    """Bytes that a compressed file or an archive may grow to."""
    return max(ALWAYS_ALLOWED, MOST_GROWTH * Path(path).stat().st_size)


def _bomb(name: str, limit: int) -> ArtifactError:
    return ArtifactError(
        name,
        f"is refused: unpacked it has more than {limit:,} bytes, {MOST_GROWTH} times the file and more, as text "
        "never has",
        "get it from a source you trust, or unpack it yourself and give the text",
    )


class Archives:
    """Opens texts and archive members; a context manager that owns the temporary copies of nested archives.

    Every archive is looked through once before anything of it is used, so that one that is cut or too large is refused
    as a whole.
    """

    def __init__(self) -> None:
        self._temporary = contextlib.ExitStack()
        # Nested archives, and the members of all archives, by path and members.
        self._copies: dict[tuple[str, ...], str] = {}
        self._contents: dict[tuple[str, ...], list[tuple[str, bool]]] = {}

    def __enter__(self) -> Archives:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.close()

    @contextlib.contextmanager
    def open(self, path: str | Path, *members: str, contents: Contents = "text") -> Iterator[IO[bytes]]:
        """The bytes of `path`, or of the member that `members` lead to, with gzip, bzip2, xz or Zstandard undone.

        A member is named by its path inside the archive, or by the end of it as long as that fits one member only.
        Raises ArtifactError when the file is missing or damaged, has no such member, or is of a known kind that is
        neither `contents` nor UTF-8 text.
        """
        name = "!".join([str(path), *members])
        with contextlib.ExitStack() as stack:
            stack.enter_context(reported(name))
            stream = stack.enter_context(self._raw(str(path), *members))
            plain = stack.enter_context(_decompressed(stream, name, largest(path)))
            start = plain.peek(TAR_MAGIC_AT + 8)
            if error := other_format(start, name, contents) or (json_format(name) if contents == "text" else None):
                raise error
            if start[:4] == ZIP or start[TAR_MAGIC_AT : TAR_MAGIC_AT + 5] == b"ustar":
                raise ArtifactError(name, "is an archive, not a text", f"name the text inside it as {name}!MEMBER")
            yield plain

    @contextlib.contextmanager
    def _raw(self, path: str, *members: str) -> Iterator[IO[bytes]]:
        if not members:
            if not Path(path).is_file():
                raise ArtifactError(path, MISSING, "correct its path or put it there")
            with readable(path):
                file = open(path, "rb")
            with file:
                yield file
            return
        key = (path, *members[:-1])
        name = "!".join(key)
        with self._raw(self._copied(*key)) as container, _opened(container, name) as archive:
            if key not in self._contents:
                self._contents[key] = _members(archive, name, largest(path))
            with _member(archive, _find(members[-1], self._contents[key], name), name) as stream:
                yield stream

    def _copied(self, path: str, *members: str) -> str:
        """The path of an archive: its own, or that of a copy of a nested one."""
        key = (path, *members)
        if members and key not in self._copies:
            copy = self._temporary.enter_context(tempfile.NamedTemporaryFile())
            name = "!".join(key)
            place = Path(copy.name).with_name(f"the copy of {members[-1].rpartition('/')[2]}")
            with room_for(place), reported(name), self._raw(*key) as stream:
                shutil.copyfileobj(stream, copy, 1 << 20)
                copy.flush()
            self._copies[key] = copy.name
        return self._copies[key] if members else path


class _Limited(io.RawIOBase):
    """A stream that is refused once more than `limit` bytes of it were read."""

    def __init__(self, stream: Any, name: str, limit: int):
        self._stream = stream
        self._name = name
        self._limit = limit
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer)) or b""
        self._read += len(data)
        if self._read > self._limit:
            raise _bomb(self._name, self._limit)
        buffer[: len(data)] = data
        return len(data)


class _Decompressed:
    """Uncompressed bytes of one or more compressed streams; nulls may fill the file up at the end.

    Python's own readers of .bz2 and .xz end without an error where the bytes after a stream are damaged.
    """

    def __init__(self, stream: IO[bytes], new: Callable[[], Any], name: str):
        self._stream = stream
        self._new = new
        self._name = name
        self._decompressor = new()
        self._waiting = b""

    def read(self, size: int) -> bytes:
        data = b""
        while not data:
            if self._decompressor.eof:
                self._waiting = self._decompressor.unused_data or self._waiting
                while not self._waiting.strip(b"\0"):
                    self._waiting = self._stream.read(1 << 16) or b""
                    if not self._waiting:
                        return b""
                self._waiting = self._waiting.lstrip(b"\0")
                self._decompressor = self._new()
            if self._decompressor.needs_input and not self._waiting:
                self._waiting = self._stream.read(1 << 16) or b""
                if not self._waiting:
                    raise EOFError("its end is missing")
            try:
                data = self._decompressor.decompress(self._waiting, size)
            except (lzma.LZMAError, zstd.ZstdError) as failure:
                if "memory" not in str(failure).lower():
                    raise
                problem = f"needs too much memory to be unpacked here ({failure})"
                raise ArtifactError(self._name, problem, "unpack it yourself and give the text") from None
            self._waiting = b""
        return data


@contextlib.contextmanager
def _decompressed(stream: IO[bytes], name: str, limit: int) -> Iterator[io.BufferedReader[Any]]:
    """The stream without its layer of compression, if it has one."""
    # ZipExtFile.peek may return fewer bytes than its argument.
    # Typeshed's IO lacks readinto, which all streams here have.
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, 1 << 16)  # type: ignore[type-var]
    kind = compression(buffered.peek(10))
    if kind is None:
        yield buffered
    elif kind == "gzip":
        with gzip.GzipFile(fileobj=buffered) as plain:
            yield io.BufferedReader(_Limited(plain, name, limit), 1 << 16)
    else:
        yield io.BufferedReader(_Limited(_Decompressed(buffered, DECOMPRESSORS[kind], name), name, limit), 1 << 16)


class _Header(tarfile.TarInfo):
    """The header of a member, refused where it announces a long name or attributes that would fill the memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        if header.type in IN_MEMORY and header.size > MOST_HEADER:
            raise tarfile.TarError(f"a member's name or attributes have {header.size:,} bytes")
        return header


@contextlib.contextmanager
def _opened(file: IO[bytes], name: str) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    start = file.read(START)
    file.seek(0)
    if not start:
        raise ArtifactError(name, "is empty", "delete it and download or copy it again")
    if not start.startswith(ZIP) and (error := other_format(start, name)):
        raise error
    with contextlib.ExitStack() as stack:
        with reported(name):
            try:
                archive: zipfile.ZipFile | tarfile.TarFile
                if start.startswith(ZIP):
                    archive = zipfile.ZipFile(file)
                elif compression(start) == "Zstandard":
                    plain = stack.enter_context(zstd.ZstdFile(file))
                    archive = tarfile.open(fileobj=plain, mode="r:*", tarinfo=_Header)
                else:
                    archive = tarfile.open(fileobj=file, mode="r:*", tarinfo=_Header)
            except tarfile.ReadError:
                # These bytes mark a damaged archive; without them it is a text.
                if compression(start) or start[TAR_MAGIC_AT : TAR_MAGIC_AT + 5] == b"ustar":
                    raise
                fix = f"write {name} alone if it is the text itself, else download or copy it again"
                raise ArtifactError(name, "is no archive", fix) from None
            except (NotImplementedError, UnicodeDecodeError) as failure:
                # The archive has a newer form of zip, or names that are not in the encoding which they claim.
                raise ArtifactError(
                    name, f"cannot be read here ({failure})", "unpack it yourself and give the text"
                ) from None
        stack.callback(archive.close)
        yield archive


def _members(archive: zipfile.ZipFile | tarfile.TarFile, name: str, limit: int) -> list[tuple[str, bool]]:
    """Names of all members, with whether each is a plain file.

    Refuses archives of more than `limit` bytes in all, by the sizes in their headers, before reading.
    """
    contents: list[tuple[str, bool]] = []
    total = 0
    with reported(name):
        for member, plain, size in _entries(archive):
            total += size
            if total > limit:
                raise _bomb(name, limit)
            contents.append((member, plain))
    return contents


def _entries(archive: zipfile.ZipFile | tarfile.TarFile) -> Iterator[tuple[str, bool, int]]:
    """(name, is a plain file, bytes) of every member."""
    if isinstance(archive, tarfile.TarFile):
        for member in archive:
            yield member.name, member.isfile(), member.size
        return
    for entry in archive.infolist():
        # orig_filename: ZipFile cuts names at a null byte and turns backslashes on some systems.
        yield entry.orig_filename, not (entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16)), entry.file_size


def _member(archive: zipfile.ZipFile | tarfile.TarFile, member: str, name: str) -> IO[bytes]:
    """The bytes of a member by its path, which `_find` returned."""
    if isinstance(archive, zipfile.ZipFile):
        return _zipped(archive, next(entry for entry in archive.infolist() if entry.orig_filename == member), name)
    # In the archive's order: asking by name would first read a compressed archive to its end.
    stream = archive.extractfile(next(entry for entry in archive if entry.name == member))
    assert stream is not None, "`_find` names plain files only"
    return stream


def _zipped(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> IO[bytes]:
    try:
        return archive.open(entry)
    except RuntimeError:  # NotImplementedError is one.
        unknown = f"is compressed by a method unknown here ({entry.compress_type})"
        reason = "is encrypted" if entry.flag_bits & 1 else unknown
        raise ArtifactError(
            name, f'has a member "{entry.orig_filename}" that {reason}', "unpack the archive yourself and give the text"
        ) from None
    except UnicodeDecodeError:
        raise zipfile.BadZipFile(f'"{entry.orig_filename}" has another name in its own header') from None


def _find(member_path: str, contents: list[tuple[str, bool]], name: str) -> str:
    """The member that `member_path` names: a whole path, or a unique end of one."""
    tidy = [(posixpath.normpath(member), plain) for member, plain in contents]
    normalised = posixpath.normpath(member_path)
    paths = {path for path, _ in tidy if path == normalised}
    paths = paths or {path for path, plain in tidy if path.endswith("/" + normalised) and plain}
    if not paths:
        files = [path for path, plain in tidy if plain]
        raise ArtifactError(name, f'has no member "{member_path}"', f"it has {listed(sorted(files)) or 'no files'}")
    if len(paths) > 1:
        raise ArtifactError(
            name, f'has several members "{member_path}" ({", ".join(sorted(paths)[:3])})', "write the whole path"
        )
    (path,) = paths
    fitting = [entry for entry, (other, _) in zip(contents, tidy, strict=True) if other == path]
    if not any(plain for _, plain in fitting):
        raise ArtifactError(name, f'has "{member_path}" as a folder or a link, not a file', "name a file")
    if len(fitting) > 1:
        # Programs differ in which of them they unpack: the first or the last.
        problem = f'has {len(fitting)} members of the name "{path}", so that it is not clear which is meant'
        raise ArtifactError(name, problem, "pack it again with one of them, or give the text itself")
    return fitting[0][0]
