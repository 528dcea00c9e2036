"""Sizes of the matrices in a CTranslate2 model file, read from the heads of its variables alone."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# The version of the file format that CTranslate2 writes.
VERSION = 6
PARTS = ("encoder", "decoder", "output")


def weights_of(path: Path) -> dict[str, int]:
    """Weights of matrix products by part; 0 where the file is missing or in another format."""
    try:
        return dict(_weights(path, path.stat().st_mtime_ns))
    except (OSError, ValueError, struct.error):
        return dict.fromkeys(PARTS, 0)


@functools.lru_cache(maxsize=16)
def _weights(path: Path, _changed: int) -> dict[str, int]:
    """Embeddings are counted once, as the projection onto the vocabulary, which may be the same matrix."""
    counts = dict.fromkeys(PARTS, 0)
    with path.open("rb") as file:
        for name, shape in _variables(file):
            if len(shape) != 2 or not name.endswith("weight"):
                continue
            if name.startswith(("decoder/projection/", "decoder/embeddings/")):
                counts["output"] = math.prod(shape)
            elif "embeddings" not in name:
                part = name.partition("/")[0]
                if part in counts:
                    counts[part] += math.prod(shape)
    return counts


def _variables(file: BinaryIO) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every stored variable. Raises ValueError for a file in another format."""

    def unpacked(form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))

    def text() -> str:
        (length,) = unpacked("H")
        return file.read(length)[:-1].decode()

    if unpacked("I") != (VERSION,):
        raise ValueError("another version of the format")
    text()
    _, count = unpacked("II")
    for _ in range(count):
        name = text()
        (rank,) = unpacked("B")
        shape = unpacked(f"{rank}I")
        _, size = unpacked("BI")
        yield name, shape
        file.seek(size, 1)
