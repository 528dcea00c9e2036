"""Encoded corpora: sentence pairs as flat, memory-mapped arrays of subword ids.

A corpus PREFIX is five files: PREFIX.{source,target}.bin, the ids of all sentences one after another;
PREFIX.{source,target}.offsets.npy, where each sentence begins (int64, one more than there are sentences); and
PREFIX.json, written last, with counts and a digest of the content.
"""

from __future__ import annotations

import array
import contextlib
import functools
import hashlib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from workflow_src.errors import MISSING, ArtifactError, InputError
from workflow_src.records.atomic import atomic, read_json, write_json
from workflow_src.records.checked import check_format
from workflow_src.records.provenance import digests

SIDES = ("source", "target")
FORMAT = 1
# Largest vocabulary whose ids fit into 16 bits.
SMALL_VOCABULARY = 65536
# Pairs that are written at once.
CHUNK = 8192


def _path(prefix: str | Path, ending: str) -> Path:
    return Path(f"{prefix}.{ending}")


class _SideWriter:
    """Appends sentences of one side to a file; memory grows by 4 bytes a sentence, whatever its length."""

    def __init__(self, file: Any, dtype: np.dtype):
        self.file = file
        self.dtype = dtype
        self.limit = np.iinfo(dtype).max
        self.lengths = array.array("i")
        self.digest = hashlib.sha256()

    def append(self, sentences: list[Any]) -> None:
        lengths = [len(sentence) for sentence in sentences]
        flat = np.fromiter(itertools.chain.from_iterable(sentences), dtype=np.int64, count=sum(lengths))
        if flat.size and (flat.min() < 0 or flat.max() > self.limit):
            raise InputError("subword ids", f"are from {flat.min()} to {flat.max()}", f"allowed: 0 to {self.limit}")
        content = flat.astype(self.dtype).tobytes()
        self.file.write(content)
        self.digest.update(content)
        self.lengths.extend(lengths)

    def offsets(self) -> np.ndarray:
        starts = np.zeros(len(self.lengths) + 1, dtype=np.int64)
        np.cumsum(np.frombuffer(self.lengths, dtype=np.intc), out=starts[1:])
        self.digest.update(starts.tobytes())
        return starts


def write(
    prefix: str | Path,
    pairs: Iterable[tuple[list[int], list[int]]],
    summary: dict[str, Any],
    vocabulary_size: int = SMALL_VOCABULARY,
) -> dict[str, Any]:
    """Write pairs of (source ids, target ids) as they come, some at a time; returns the content of PREFIX.json.

    Ids take 2 bytes where the larger vocabulary has at most 65,536 entries, else 4. `summary` is kept in PREFIX.json
    beside the counts (pairs, source_tokens, target_tokens, subwords of the longest sentence; no end symbols) and the
    digest; it may be a mapping that fills while the sentences are consumed. Its provenance, if it has one, gets the
    digests of the files. Files appear by renaming, PREFIX.json last.

    Raises InputError when an id does not fit.
    """
    dtype = np.dtype("<u2" if vocabulary_size <= SMALL_VOCABULARY else "<i4")
    description = _path(prefix, "json")
    pairs = iter(pairs)
    with contextlib.ExitStack() as stack:
        # Leaving the stack renames all four files, the last opened first; an error removes them all.
        files = {side: stack.enter_context(atomic(_path(prefix, f"{side}.bin"), "wb")) for side in SIDES}
        tables = {side: stack.enter_context(atomic(_path(prefix, f"{side}.offsets.npy"), "wb")) for side in SIDES}
        writers = {side: _SideWriter(files[side], dtype) for side in SIDES}
        while block := list(itertools.islice(pairs, CHUNK)):
            writers["source"].append([source for source, _ in block])
            writers["target"].append([target for _, target in block])
        counts = {"longest": 0}
        digest = hashlib.sha256(dtype.str.encode())
        for side, writer in writers.items():
            offsets = writer.offsets()
            # Not np.save: it bypasses the file object, and its errors lack the reason.
            np.lib.format.write_array_header_1_0(tables[side], np.lib.format.header_data_from_array_1_0(offsets))
            tables[side].write(offsets.data.cast("B"))
            digest.update(writer.digest.digest())
            counts[f"{side}_tokens"] = int(offsets[-1])
            counts["longest"] = max(counts["longest"], int(np.diff(offsets).max(initial=0)))
        # Once the first file is replaced, an older corpus of this name is incomplete.
        description.unlink(missing_ok=True)
    content = {
        **summary,
        **counts,
        "format": FORMAT,
        "pairs": len(writers["source"].lengths),
        "dtype": dtype.name,
        "digest": digest.hexdigest(),
    }
    if "provenance" in content:
        names = [_path(prefix, ending).name for side in SIDES for ending in (f"{side}.bin", f"{side}.offsets.npy")]
        content["provenance"] = content["provenance"] | {"files": digests(description.parent, names)}
    write_json(description, content)
    return content


class EncodedCorpus:
    """Sentence pairs in files that are mapped, not read: opening is quick, and processes share the memory."""

    def __init__(
        self,
        prefix: str,
        summary: dict[str, Any],
        tokens: dict[str, np.ndarray],
        offsets: dict[str, np.ndarray],
        rows: np.ndarray | None = None,
        part: str = "",
    ):
        """`rows` are those of a part of the files, whose name is `part`; without them, the corpus has all."""
        self.prefix = prefix
        self.summary = summary
        self.tokens = tokens
        self.offsets = offsets
        self._rows, self._part = rows, part
        kept = slice(None) if rows is None else rows
        self._starts = {side: places[:-1][kept] for side, places in offsets.items()}
        self._ends = {side: places[1:][kept] for side, places in offsets.items()}

    @classmethod
    def open(cls, prefix: str | Path) -> EncodedCorpus:
        """Map the files of PREFIX and check that their sizes agree; `verify` checks the content too.

        Raises ArtifactError naming the file that is missing, damaged or does not belong to the others.
        """
        description = _path(prefix, "json")
        summary = read_json(description)
        check_format(summary, FORMAT, str(description), "encode the corpus again")
        try:
            pairs, dtype = int(summary["pairs"]), np.dtype(summary["dtype"]).newbyteorder("<")
            counts = {side: int(summary[f"{side}_tokens"]) for side in SIDES}
        except (KeyError, TypeError, ValueError):
            raise ArtifactError(description, "lacks counts or the type of ids", "encode it again") from None
        offsets = {side: _offsets(prefix, side, pairs, counts[side]) for side in SIDES}
        tokens = {side: _tokens(prefix, side, dtype, counts[side]) for side in SIDES}
        return cls(str(prefix), summary, tokens, offsets)

    def reversed(self) -> EncodedCorpus:
        """The same pairs with source and target exchanged. `verify` only knows the files."""
        tokens, offsets = (
            {"source": by_side["target"], "target": by_side["source"]} for by_side in (self.tokens, self.offsets)
        )
        return EncodedCorpus(self.prefix, self.summary, tokens, offsets, self._rows, self._part)

    def up_to(self, length: int) -> EncodedCorpus:
        """The pairs with at most `length` subwords on either side, in their order; the corpus itself if these are all.

        `verify` looks at the whole files.
        """
        rows = np.flatnonzero(np.maximum(self.source_lengths, self.target_lengths) <= length)
        if len(rows) == len(self):
            return self
        of_files = rows if self._rows is None else self._rows[rows]
        part = f"{self._part} up to {length}"
        return EncodedCorpus(self.prefix, self.summary, self.tokens, self.offsets, of_files, part)

    def __len__(self) -> int:
        return len(self._starts[SIDES[0]])

    def source(self, row: int) -> np.ndarray:
        """Source ids of a pair, without BOS and EOS; a view into the file, not to be written."""
        return self.tokens["source"][self._starts["source"][row] : self._ends["source"][row]]

    def target(self, row: int) -> np.ndarray:
        """Target ids of a pair, as `source`."""
        return self.tokens["target"][self._starts["target"][row] : self._ends["target"][row]]

    @functools.cached_property
    def source_lengths(self) -> np.ndarray:
        """Subwords of every source sentence, without EOS (int32)."""
        return self._lengths("source")

    @functools.cached_property
    def target_lengths(self) -> np.ndarray:
        """Subwords of every target sentence, without EOS (int32)."""
        return self._lengths("target")

    def _lengths(self, side: str) -> np.ndarray:
        lengths = self._ends[side] - self._starts[side]
        if lengths.size and lengths.min() < 0:
            raise ArtifactError(_path(self.prefix, f"{side}.offsets.npy"), "is damaged", "encode the corpus again")
        return lengths.astype(np.int32)

    @property
    def digest(self) -> str:
        """Digest of the content, from PREFIX.json, and of the part of it that this is."""
        return f"{self.summary.get('digest')}{self._part}"

    @property
    def epoch_tokens(self) -> int:
        """Target tokens of an epoch, end symbols counted."""
        return int(self.target_lengths.sum()) + len(self)

    def epoch_rows(self, _seed: int, _epoch: int) -> np.ndarray:
        """Rows of the pairs of an epoch: all."""
        return np.arange(len(self))

    def most_rows(self) -> None:
        """Every epoch has all rows once."""

    def gather(self, side: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the rows, one after another, and their lengths."""
        starts = self._starts[side][rows]
        lengths = self._ends[side][rows] - starts
        # Position in the file = position in the result + (start in the file - start in the result).
        shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return self.tokens[side][np.arange(int(lengths.sum())) + shift], lengths

    def verify(self) -> None:
        """Compare all content with the digest in PREFIX.json; about a second for a gigabyte.

        Raises ArtifactError when they differ.
        """
        digest = hashlib.sha256(self.tokens["source"].dtype.newbyteorder("<").str.encode())
        for side in SIDES:
            inner = hashlib.sha256(np.ascontiguousarray(self.tokens[side]).data)
            inner.update(np.ascontiguousarray(self.offsets[side]).data)
            digest.update(inner.digest())
        if digest.hexdigest() != self.summary.get("digest"):
            raise ArtifactError(
                self.prefix, f"is damaged: its digest is not that of {self.prefix}.json", "encode it again"
            )


def check_positions(positions: int, corpus: EncodedCorpus) -> None:
    """Raises ArtifactError for a sentence that is longer than a model's positions, end symbol counted."""
    longest = max(int(corpus.source_lengths.max(initial=0)), int(corpus.target_lengths.max(initial=0))) + 1
    if longest > positions:
        raise ArtifactError(
            corpus.prefix,
            f"has a sentence of {longest} subwords, end symbol counted, the model has {positions} positions",
            "raise model.max_positions, lower recipe.max_length (train), or leave the sentence out by "
            "recipe.normalisation.max_characters (dev, test)",
        )


def _offsets(prefix: str | Path, side: str, pairs: int, tokens: int) -> np.ndarray:
    path = _path(prefix, f"{side}.offsets.npy")
    try:
        offsets = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise ArtifactError(path, MISSING, "encode the corpus again") from None
    except (ValueError, OSError, EOFError) as failure:
        raise ArtifactError(path, f"is damaged ({failure})", "encode the corpus again") from None
    # A plain array over the same mapping: numpy's own class slows every access down.
    offsets = np.asarray(offsets)
    if offsets.dtype != np.int64 or offsets.shape != (pairs + 1,) or offsets[0] != 0 or offsets[-1] != tokens:
        raise ArtifactError(path, f"does not belong to {prefix}.json", "encode the corpus again")
    return offsets


def _tokens(prefix: str | Path, side: str, dtype: np.dtype, count: int) -> np.ndarray:
    path = _path(prefix, f"{side}.bin")
    try:
        size = os.path.getsize(path)
    except FileNotFoundError:
        raise ArtifactError(path, MISSING, "encode the corpus again") from None
    if size != count * dtype.itemsize:
        raise ArtifactError(
            path, f"has {size:,} bytes, but by {prefix}.json {count * dtype.itemsize:,}", "encode the corpus again"
        )
    # An empty file cannot be mapped.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if count else np.zeros(0, dtype)
