"""Counts of many texts, in 10 bytes of memory a slot."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

# Slots that are filled before the table grows to twice its size.
FULL = 0.6
MOST = np.iinfo(np.uint16).max


def hashes(texts: list[str]) -> np.ndarray:
    """64 bits for each text. Among 10 million, two different ones share theirs with a probability of 3 in a million."""
    digests = b"".join([blake2b(text.encode(), digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, np.uint64)


class Counts:
    """A hash table with open addressing: keys of 64 bits that are spread evenly, and how often each was added."""

    def __init__(self, slots: int = 1 << 14):
        self._keys, self._counts = np.zeros(slots, np.uint64), np.zeros(slots, np.uint16)
        self._filled = 0

    def add(self, keys: np.ndarray, limit: int) -> np.ndarray:
        """Mask of keys that were seen `limit` times before; counts the keys."""
        keys = np.where(keys == 0, np.uint64(1), keys)
        distinct, which = np.unique(keys, return_inverse=True)
        while self._filled + len(distinct) > FULL * len(self._keys):
            self._grow()
        slots = self._slots(distinct)
        order = np.argsort(which, kind="stable")
        starts = np.searchsorted(which[order], np.arange(len(distinct)))
        # Occurrence number of each key within this call, from 0.
        turn = np.empty(len(keys), np.int64)
        turn[order] = np.arange(len(keys)) - starts[which[order]]
        counts_before = self._counts[slots].astype(np.int64)
        over_limit = turn + counts_before[which] >= limit
        times = np.bincount(which, minlength=len(distinct))
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
