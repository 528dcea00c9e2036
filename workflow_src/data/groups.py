"""Many texts in little memory: how often each came, pairs in a file, and groups of pairs that sentences connect."""

from __future__ import annotations

import array
import os
import tempfile
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from workflow_src.data.characters import bare, key
from workflow_src.records.atomic import room_for

# Pairs whose sentences are hashed at once.
BLOCK = 4096
# Bytes of a group's name that are held in memory; names that are equal so far are read where they are compared.
START = 24
# Slots that are filled before the table grows to twice its size.
FULL = 0.6
MOST = np.iinfo(np.uint16).max


def hashes(texts: list[str]) -> np.ndarray:
    """64 bits for each text. Among 10 million, two different ones share theirs with a probability of 3 in a million."""
    digests = b"".join([blake2b(text.encode(), digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, np.uint64)


class Counts:
    """A hash table with open addressing, 10 bytes a slot: keys of 64 bits, spread evenly, and how often each came."""

    def __init__(self, slots: int = 1 << 14):
        self._keys, self._counts = np.zeros(slots, np.uint64), np.zeros(slots, np.uint16)
        self._filled = 0

    def add(self, keys: np.ndarray, limit: int) -> np.ndarray:
        """Mask of keys that were seen `limit` times before; counts the keys."""
        keys = np.where(keys == 0, np.uint64(1), keys)
        distinct, which, times = np.unique(keys, return_inverse=True, return_counts=True)
        while self._filled + len(distinct) > FULL * len(self._keys):
            self._grow()
        slots = self._slots(distinct)
        order = np.argsort(which, kind="stable")
        # Occurrence number of each key within this call, from 0.
        turn = np.empty(len(keys), np.int64)
        turn[order] = np.arange(len(keys)) - np.repeat(np.cumsum(times) - times, times)
        counts_before = self._counts[slots].astype(np.int64)
        over_limit = turn + counts_before[which] >= limit
        self._counts[slots] = np.minimum(counts_before + times, MOST)
        return over_limit

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """The slot of each of some distinct keys; new ones are filled in."""
        last = len(self._keys) - 1
        slots = (keys & np.uint64(last)).astype(np.int64)
        unplaced = np.arange(len(keys))
        while len(unplaced):
            free = unplaced[self._keys[slots[unplaced]] == 0]
            # One of several keys that meet in a free slot stays, the others go on.
            self._keys[slots[free]] = keys[free]
            self._filled += int((self._keys[slots[free]] == keys[free]).sum())
            unplaced = unplaced[self._keys[slots[unplaced]] != keys[unplaced]]
            slots[unplaced] = (slots[unplaced] + 1) & last
        return slots

    def _grow(self) -> None:
        keys, counts = self._keys, self._counts
        filled = np.flatnonzero(keys)
        self._keys, self._counts = np.zeros(2 * len(keys), np.uint64), np.zeros(2 * len(keys), np.uint16)
        self._filled = 0
        self._counts[self._slots(keys[filled])] = counts[filled]


class StoredRows:
    """Rows of two texts or more, none of which has a line break, in the order in which they were added.

    A sequence of pairs, the first two texts of each row, in 8 bytes of memory a row. A context manager that owns an
    unnamed file in `folder`.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(dir=self._folder, buffering=1 << 20)
        self._ends = array.array("q", [0])
        self._written = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, texts: Iterable[str]) -> None:
        row = "\n".join(texts).encode("utf-8")
        with room_for(self._folder / "the rows that are split"):
            self._file.write(row)
        self._ends.append(self._ends[-1] + len(row))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def texts(self, row: int) -> list[str]:
        if self._written < len(self):
            with room_for(self._folder / "the rows that are split"):
                self._file.flush()
            self._written = len(self)
        begin, end = self._ends[row], self._ends[row + 1]
        return os.pread(self._file.fileno(), end - begin, begin).decode("utf-8").split("\n")

    def __getitem__(self, row: int) -> tuple[str, str]:
        first, second = self.texts(row)[:2]
        return first, second


class Groups(NamedTuple):
    """`rows` of all groups, one group after the other, rising within each; where each group begins, and the end; and
    the groups in the order of their names."""

    rows: np.ndarray
    begins: np.ndarray
    by_name: np.ndarray

    def members(self, group: int) -> list[int]:
        return self.rows[self.begins[group] : self.begins[group + 1]].tolist()


def groups_of(pairs: StoredRows) -> Groups:
    """The groups of pairs that sentences of either side with the same `key` connect.

    Every sentence is a node by the 64 bits of its hash; both sentences of a pair are joined, and each `bare` sentence
    with its key. A group has the name of the second sentence of a pair, that of the last group which others were joined
    to: draws depend on the order of names. Memory for about 100 bytes a pair.
    """
    count = len(pairs)
    # Hashes of all first sentences, then of all second ones; and beginnings of the second ones.
    sentences, starts = np.empty((2, count), np.uint64), np.empty(count, f"S{START}")
    # Pairs with a sentence whose key is not its bare form, and the nodes of both keys.
    keyed = array.array("i")
    keys: list[np.ndarray] = [np.zeros((2, 0), np.uint64)]
    for begin in range(0, count, BLOCK):
        block = [pairs[row] for row in range(begin, min(begin + BLOCK, count))]
        bares = [(bare(source), bare(target)) for source, target in block]
        here = slice(begin, begin + len(block))
        # The digits keep the two sides apart.
        for side in (0, 1):
            sentences[side, here] = hashes([f"{side}{texts[side]}" for texts in bares])
        starts[here] = [target.encode("utf-8")[:START] for _, target in bares]
        others = []
        for place, pair in enumerate(block):
            if not (pair[0].isascii() and pair[1].isascii()):
                names = key(pair[0]), key(pair[1])
                if names != bares[place]:
                    others.append((place, names))
        keyed.extend(begin + place for place, _ in others)
        keys.append(np.stack([hashes([f"{side}{names[side]}" for _, names in others]) for side in (0, 1)]))
    sentences = np.concatenate([sentences.reshape(-1), *np.concatenate(keys, axis=1)])
    nodes, shared = _nodes(sentences)
    del sentences, keys
    above = _joined(nodes, shared, count, keyed)
    # A pair whose second sentence is that of a group's name.
    named = np.empty(len(above), np.int32)
    named[nodes[count : 2 * count]] = np.arange(count, dtype=np.int32)
    root = above[nodes[:count]]
    del above, nodes, shared
    rows = np.argsort(root, kind="stable").astype(np.int32)
    begins = np.append(np.flatnonzero(np.diff(root[rows], prepend=-1)), count).astype(np.int32)
    named = named[root[rows[begins[:-1]]]]
    starts = starts[named]
    return Groups(rows, begins, _by_name(starts, named, pairs))


def _nodes(hashed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The node of each hash, numbered in the order of their values, and whether a node comes more than once."""
    order = np.argsort(hashed)
    is_new = np.ones(len(hashed), bool)
    for begin in range(1, len(hashed), BLOCK):
        block = hashed[order[begin - 1 : begin + BLOCK]]
        is_new[begin : begin + BLOCK] = block[1:] != block[:-1]
    sorted_nodes = np.cumsum(is_new, dtype=np.int32)
    sorted_nodes -= 1
    shared = np.zeros(sorted_nodes[-1] + 1 if len(hashed) else 0, bool)
    shared[sorted_nodes[~is_new]] = True
    nodes = np.empty(len(hashed), np.int32)
    nodes[order] = sorted_nodes
    return nodes, shared


def _joined(nodes: np.ndarray, shared: np.ndarray, count: int, keyed: array.array[int]) -> np.ndarray:
    """The root of every node, after `count` pairs of nodes and those of keys were joined in their order.

    `shared` says of nodes whether they come more than once.
    """
    above = np.arange(len(shared), dtype=np.int32)
    first, second = nodes[:count], nodes[count : 2 * count]
    # A first sentence that comes once joins the group of its second one. Others in their order: they move groups.
    moves = shared[first]
    moves[np.frombuffer(keyed, np.int32)] = True
    above[first[~moves]] = second[~moves]
    parents = array.array("i", above.tobytes())
    del above

    def find(node: int) -> int:
        root = node
        while (step := parents[root]) != root:
            root = step
        while parents[node] != root:
            parents[node], node = root, parents[node]
        return root

    def join(node: int, other: int) -> None:
        root, other_root = find(node), find(other)
        if root != other_root:
            parents[root] = other_root

    rows = np.flatnonzero(moves)
    place = 0
    for begin in range(0, len(rows), BLOCK):
        block = rows[begin : begin + BLOCK]
        for row, node, other in zip(block.tolist(), first[block].tolist(), second[block].tolist(), strict=True):
            join(node, other)
            if place < len(keyed) and keyed[place] == row:
                join(int(nodes[2 * count + place]), node)
                join(int(nodes[2 * count + len(keyed) + place]), other)
                place += 1
    roots = np.frombuffer(parents, np.int32)
    while not np.array_equal(roots, higher := roots[roots]):
        roots = higher
    return roots


def _by_name(starts: np.ndarray, rows: np.ndarray, pairs: StoredRows) -> np.ndarray:
    """Numbers of groups in the order of their names, by the starts of these and the rows that have them."""
    order = np.argsort(starts, kind="stable")
    equal = np.zeros(max(len(order) - 1, 0), bool)
    for begin in range(0, len(equal), BLOCK):
        block = starts[order[begin : begin + BLOCK + 1]]
        equal[begin : begin + BLOCK] = block[1:] == block[:-1]
    order = order.astype(np.int32)
    bounds = np.flatnonzero(np.diff(equal.astype(np.int8), prepend=0, append=0)).tolist()
    for begin, end in zip(bounds[::2], bounds[1::2], strict=True):
        run = order[begin : end + 1]
        order[begin : end + 1] = sorted(run.tolist(), key=lambda group: bare(pairs[int(rows[group])][1]))
    return order
