"""Reading UTF-8 text line by line, with an error that names the line and byte of other text."""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from workflow_src.data.formats import START, compression, other_format
from workflow_src.errors import ArtifactError, readable

STANDARD_INPUT = Path("/dev/stdin")
BYTE_ORDER_MARK = "\ufeff"
# The problem of a text without lines.
EMPTY = "is empty"


class _Counted(FileIO):
    """A file that counts the bytes that were read from it."""

    count = 0

    def readinto(self, buffer: Any) -> int:
        number = super().readinto(buffer)
        self.count += number or 0
        return number


def _opened(path: str | Path) -> BufferedReader:
    """A file that is read in bytes.

    Standard input is read by its descriptor: by its path, a socket or a pipe of another user cannot be opened, and a
    file would be read from its start.
    """
    with readable(path):
        if Path(path) == STANDARD_INPUT:
            return BufferedReader(_Counted(0, closefd=False))
        return BufferedReader(_Counted(path))


def decoded(lines: Iterable[bytes], name: str | Path) -> Iterator[str]:
    """Lines of UTF-8 without their line ends (LF or CR LF) and without a byte order mark; nothing else separates lines.

    Raises ArtifactError naming the text, the line, and the byte within the text, from 1, where it is not UTF-8.
    """
    offset = 0
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as failure:
            if 0 in raw:
                raise ArtifactError(name, "has bytes that are in no text", "check the file", line=number) from None
            place = offset + failure.start + 1
            problem = f"is not UTF-8: byte {place:,} of the text is 0x{raw[failure.start]:02x}"
            raise ArtifactError(name, problem, "convert the file to UTF-8", line=number) from None
        offset += len(raw)
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        yield line.removesuffix("\n").removesuffix("\r")


def read_lines(path: str | Path, own: bool = False) -> Iterator[str]:
    """The lines of a UTF-8 file, as of `decoded`.

    Raises ArtifactError for a file that is missing or not UTF-8. A file of the user's `own` is refused too where it is
    of another format by its first bytes: such files may be valid UTF-8.
    """
    with _opened(path) as file:
        yield from _of_this_format(file, file, path, own)


def zipped_lines(*paths: Path) -> Iterator[tuple[str, ...]]:
    return zip(*map(read_lines, paths), strict=True)


def read_lines_and_pauses(path: str | Path) -> Iterator[str | None]:
    """`read_lines` of a user's own file, with None where the next line has not arrived: the writer of a pipe may wait
    for an answer."""
    offset = 0

    def counted() -> Iterator[bytes]:
        nonlocal offset
        for raw in file:
            offset += len(raw)
            yield raw

    with _opened(path) as file:
        for line in _of_this_format(file, counted(), path, own=True):
            yield line
            if not _has_line(file, offset):
                yield None


def _of_this_format(file: BufferedReader, lines: Iterable[bytes], path: str | Path, own: bool) -> Iterator[str]:
    """`lines` of a file as text; the error of what is none says which other format the file has."""
    start = file.peek(START)
    if own and (format_error := other_format(start, path)):
        raise format_error
    try:
        yield from decoded(lines, path)
    except ArtifactError:
        if format_error := other_format(start, path):
            raise format_error from None
        if name := compression(start):
            raise ArtifactError(path, f"is compressed with {name}", "unpack it and give the text") from None
        raise


def _has_line(file: BufferedReader, offset: int) -> bool:
    """Whether a line of the file, or its end, can be read after `offset` bytes without waiting."""
    assert isinstance(file.raw, _Counted)
    if file.raw.count > offset and b"\n" in file.peek():
        return True
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))


def count_lines(path: str | Path) -> int:
    """Number of lines that `read_lines` gives, without decoding them. Standard input stays where it was.

    Raises ArtifactError for a file that is missing.
    """
    with _opened(path) as file:
        begin = file.tell() if file.seekable() else None
        count, last = 0, b"\n"
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
        if begin is not None:
            file.seek(begin)
    return count + (last != b"\n")


def check_parallel(source: str | Path, target: str | Path) -> int:
    """Number of lines of two files that belong together.

    Raises ArtifactError when one is missing or empty, or when their numbers of lines differ.
    """
    counts = {}
    for path in (source, target):
        counts[path] = count_lines(path)
        if counts[path] == 0:
            raise ArtifactError(path, EMPTY, "give a file with at least one line")
    if counts[source] != counts[target]:
        problem = f"has {counts[source]:,} lines, and {target} has {counts[target]:,}"
        raise ArtifactError(source, problem, "make them line-aligned")
    return counts[source]


def read_aligned(first: Path, *others: Path) -> list[list[str]]:
    """Lines of files that must have equally many, at least one. Raises ArtifactError."""
    for path in others:
        check_parallel(first, path)
    return [list(read_lines(path)) for path in (first, *others)]
