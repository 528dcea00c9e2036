"""Batches by token budget: which rows go together in an epoch, and their tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from workflow_src.errors import ConfigError
from workflow_src.types import EOS, PAD, Batch


class Lengths(Protocol):
    """Lengths of the sentences of a corpus in subwords, without end symbols."""

    @property
    def source_lengths(self) -> np.ndarray: ...

    @property
    def target_lengths(self) -> np.ndarray: ...


class Pairs(Lengths, Protocol):
    """Encoded pairs to train on: a corpus or a mixture."""

    @property
    def prefix(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def epoch_tokens(self) -> int: ...

    def __len__(self) -> int: ...

    def epoch_rows(self, seed: int, epoch: int, /) -> np.ndarray: ...

    def gather(self, side: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


def epoch_batches(
    corpus: Lengths,
    batch_tokens: int,
    seed: int,
    epoch: int,
    max_length: int | None = None,
    rows: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Row numbers of every batch of an epoch, in the order of training; the same for the same (seed, epoch).

    A batch of B rows costs B times the longest side of any of its rows, one end symbol counted, and costs at most
    `batch_tokens`; a pair that is longer than that is a batch by itself. Each of `rows` (default: all) comes exactly
    once, except rows with more than `max_length` subwords on a side, which are left out. Rows of like lengths go
    together: rows are shuffled, sorted by the longer side alone, cut, and the batches shuffled.

    Rows of equal longer side stay in random order, so that a batch says nothing about |y| - |x|, the label of a length
    head, nor about which text of a mixture a row comes from. Sorting by that difference too would pad less, but most
    batches would then hold a single label.

    Raises InputError when the budget is not positive.
    """
    if batch_tokens < 1:
        raise ConfigError("batch_tokens", batch_tokens, allowed="1 or more")
    generator = np.random.Generator(np.random.PCG64([seed, epoch]))
    rows = np.arange(len(corpus.source_lengths)) if rows is None else rows
    rows = rows[generator.permutation(len(rows))]
    longest = np.maximum(corpus.source_lengths, corpus.target_lengths)[rows].astype(np.int64)
    if max_length is not None:
        short_enough = longest <= max_length
        rows, longest = rows[short_enough], longest[short_enough]
    if not len(rows):
        return []
    # Stable, so that equal rows stay shuffled.
    order = np.argsort(longest, kind="stable")
    batches = _cut(rows[order], longest[order] + 1, batch_tokens)
    return [batches[number] for number in generator.permutation(len(batches))]


def _cut(rows: np.ndarray, costs: np.ndarray, budget: int) -> list[np.ndarray]:
    """Cut rows, sorted by rising cost, into the longest runs whose number times last cost is within the budget."""
    batches, begin = [], 0
    # Rows up to ends[i] cost at most values[i]: the number of rows that a batch may hold changes only there.
    values, starts = np.unique(costs, return_index=True)
    ends = np.append(starts[1:], len(costs)).tolist()
    values = values.tolist()
    group = 0
    while begin < len(rows):
        while ends[group] <= begin:
            group += 1
        # Grow over whole groups of equal cost while all of them still fit.
        end, last = begin, group
        while last < len(ends) and end == (begin if last == group else ends[last - 1]):
            end = max(end, min(ends[last], begin + budget // values[last]))
            last += 1
        # A row beyond the budget goes alone.
        end = max(end, begin + 1)
        batches.append(rows[begin:end])
        begin = end
    return batches


def _padded(flat: np.ndarray, lengths: np.ndarray, eos: bool) -> Tensor:
    """Sentences that stand one after another in `flat`, as (B, longest), int64, at least one column wide."""
    width = max(int(lengths.max(initial=0)) + eos, 1)
    rows = np.full((len(lengths), width), PAD, dtype=np.int64)
    rows[np.arange(width) < lengths[:, None]] = flat
    if eos:
        rows[np.arange(len(lengths)), lengths] = EOS
    return torch.from_numpy(rows)


def pad(sequences: Sequence[Sequence[int]], eos: bool) -> Tensor:
    """Sequences of ids as one int64 tensor (B, longest), each followed by EOS with `eos`, then by PAD.

    The tensor is at least one column wide, so that a batch of empty sentences is still one.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    flat = np.fromiter(itertools.chain.from_iterable(sequences), dtype=np.int64, count=int(lengths.sum()))
    return _padded(flat, lengths, eos)


def collate(corpus: Pairs, indices: np.ndarray) -> Batch:
    """The batch of these rows: source (B, S) with EOS, target (B, T) without, both int64."""
    rows = np.asarray(indices, dtype=np.int64)
    source = _padded(*corpus.gather("source", rows), eos=True)
    target = _padded(*corpus.gather("target", rows), eos=False)
    return Batch(source, target, tuple(rows.tolist()))
