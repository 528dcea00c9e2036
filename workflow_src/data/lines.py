"""Reading text line by line, strictly: UTF-8 or an error that says where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from workflow_src.data.formats import START, compression, other_format


def _opened(path: str | Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise ValueError(f"text {path} does not exist.") from None
    except IsADirectoryError:
        raise ValueError(f"text {path} is a folder; name a file.") from None
    except OSError as failure:
        raise ValueError(f"text {path} cannot be read: {failure.strerror}.") from None


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their line ends (LF or CR LF); nothing else separates lines.

    Raises ValueError naming the file, when it is missing, or file, line and byte (both from 1, the byte within the
    file) where it is not UTF-8; or what the file is where its first bytes tell.
    """
    with _opened(path) as file:
        before, start = 0, None
        for number, raw in enumerate(file, start=1):
            start = raw[:START] if start is None else start
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as failure:
                kind = other_format(start, str(path))
                if kind is None and (name := compression(start)):
                    kind = f"is compressed with {name}; unpack it and give the text"
                if kind is not None:
                    raise ValueError(f"text {path} {kind}.") from None
                raise ValueError(
                    f"text {path} is not UTF-8 in line {number}, byte {before + failure.start + 1} of the file "
                    f"(0x{raw[failure.start]:02x}): convert the file to UTF-8."
                ) from None
            before += len(raw)
            yield line.removesuffix("\n").removesuffix("\r")


def count_lines(path: str | Path) -> int:
    """Number of lines that `read_lines` gives, without decoding them.

    Raises ValueError naming the file when it is missing.
    """
    with _opened(path) as file:
        count, last = 0, b"\n"
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def check_parallel(source: str | Path, target: str | Path) -> int:
    """Number of lines of two files that belong together.

    Raises ValueError when one is missing or empty, or when their numbers of lines differ; it names both and the counts.
    """
    counts = {}
    for path in (source, target):
        counts[path] = count_lines(path)
        if counts[path] == 0:
            raise ValueError(f"text {path} is empty: give a file with at least one line.")
    if counts[source] != counts[target]:
        raise ValueError(
            f"texts that belong together differ in their numbers of lines: {source} has {counts[source]:,}, "
            f"{target} has {counts[target]:,}; make them line-aligned."
        )
    return counts[source]


def read_aligned(first: Path, *others: Path) -> list[list[str]]:
    """Lines of files that must have equally many, at least one. Raises ValueError naming files and counts."""
    for path in others:
        check_parallel(first, path)
    return [list(read_lines(path)) for path in (first, *others)]
