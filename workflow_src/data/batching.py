"""Batches by token budget: which rows go together in an epoch, and their tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.mixture import Mixture
from workflow_src.types import EOS, PAD, Batch

# Encoded pairs to train on.
Pairs = EncodedCorpus | Mixture


def epoch_batches(
    corpus: Pairs, batch_tokens: int, seed: int, epoch: int, rows: np.ndarray | None = None
) -> list[np.ndarray]:
    """Row numbers of every batch of an epoch, in the order of training; the same for the same (seed, epoch).

    A batch of B rows costs B times the longest side of any of its rows, one end symbol counted, and costs at most
    `batch_tokens`; a pair that is longer than that is a batch by itself. Each of `rows` (default: all) comes exactly
    once. Rows of like lengths go together: rows are shuffled, sorted by the longer side alone, cut, and the batches
    shuffled.

    Rows of equal longer side stay in random order, so that a batch says nothing about |y| - |x|, the label of a length
    head, nor about which text of a mixture a row comes from. Sorting by that difference too would pad less, but most
    batches would then hold a single label.
    """
    generator = np.random.Generator(np.random.PCG64([seed, epoch]))
    rows = np.arange(len(corpus.source_lengths)) if rows is None else rows
    rows = rows[generator.permutation(len(rows))]
    longest = np.maximum(corpus.source_lengths, corpus.target_lengths)[rows].astype(np.int64)
    # Stable, so that equal rows stay shuffled.
    order = np.argsort(longest, kind="stable")
    batches = _cut(rows[order], longest[order] + 1, batch_tokens)
    return [batches[number] for number in generator.permutation(len(batches))]


# What the memory of a batch grows with, of numbers of rows and widths of both sides: positions, pairs of positions, as
# attention has them, and pairs of the source's, as graphs have them.
Size = Callable[[Any, Any, Any], Any]
SIZES: tuple[Size, ...] = (
    lambda rows, source, target: rows * (source + target),
    lambda rows, source, target: rows * (source + target) ** 2,
    lambda rows, source, _target: rows * source**2,
)


def largest_batches(corpus: Pairs, batch_tokens: int) -> list[np.ndarray]:
    """Rows of the largest batches of any epoch, by each of `SIZES`; a batch that is the largest by several comes once.

    Where every epoch has all rows once, its batches have the same lengths of longer sides in every epoch, and rows of
    equal longer side change places: a batch here has the widest of these. Epochs of a mixture have other rows and are
    cut at other places: a batch here is as full as any that ends with its longest row, and shorter rows may stand
    in it.
    """
    rows = corpus.most_rows()
    possible = np.arange(len(corpus)) if rows is None else rows
    sides = np.stack([corpus.source_lengths[possible], corpus.target_lengths[possible]]).astype(np.int64)
    longest = sides.max(0)
    order = np.argsort(longest, kind="stable")
    costs = longest[order] + 1
    batches = _cut(order, costs, batch_tokens) if rows is None else _fullest(order, costs, batch_tokens)
    # The widest source and target of rows by their longer side.
    widest = np.zeros((2, longest.max() + 1), np.int64)
    for widths, lengths in zip(widest, sides, strict=True):
        np.maximum.at(widths, longest, lengths)
    ends = [(longest[batch[0]] if rows is None else 0, longest[batch[-1]]) for batch in batches]
    bounds = np.array([widest[:, low : high + 1].max(1) + 1 for low, high in ends]).T
    counts = np.array([len(batch) for batch in batches])
    chosen = [_largest(batches, size(counts, *bounds), size, sides, rows is not None) for size in SIZES]
    return [possible[batch] for batch in {tuple(sorted(batch)): batch for batch in chosen}.values()]


def _largest(
    batches: list[np.ndarray], bounds: np.ndarray, size: Size, sides: np.ndarray, with_shorter: bool
) -> np.ndarray:
    """The largest batch, its rows exchanged by others of the same longer side, from bounds of all sizes, and lengths
    (2, N) of the sides of all rows."""
    best, best_size = batches[0], 0
    for number in np.argsort(-bounds, kind="stable"):
        if best_size >= bounds[number]:
            break
        for batch in _exchanged(batches[number], sides, with_shorter):
            batch_size = size(len(batch), *sides[:, batch].max(1) + 1)
            if batch_size > best_size:
                best, best_size = batch, batch_size
    return best


def _exchanged(batch: np.ndarray, sides: np.ndarray, with_shorter: bool) -> Iterator[np.ndarray]:
    """Batches whose rows of the least and of the greatest longer side are the widest ones of that side: the widest
    source first, or the widest target. `with_shorter`: or of any shorter side."""
    longest = sides.max(0)
    lengths = longest[batch]
    between = batch[(lengths > lengths[0]) & (lengths < lengths[-1])]
    choices = []
    for length in dict.fromkeys([lengths[0], lengths[-1]]):
        shorter = with_shorter and length == lengths[0]
        rows = np.flatnonzero(longest <= length if shorter else longest == length)
        rows = rows[np.argsort(-sides[:, rows].sum(0), kind="stable")]
        first = [rows[np.argmax(side[rows])] for side in sides]
        count = np.count_nonzero(lengths == length)
        orders = [dict.fromkeys([*pair, *rows[:count]]) for pair in (first, first[::-1])]
        choices.append([list(order)[:count] for order in orders])
    for parts in itertools.product(*choices):
        yield np.concatenate([between, *parts]).astype(np.int64)


def _fullest(rows: np.ndarray, costs: np.ndarray, budget: int) -> list[np.ndarray]:
    """Of rows, sorted by rising cost, the longest runs within the budget that end at each cost."""
    values, ends = np.unique(costs[::-1], return_index=True)
    ends = len(costs) - ends
    counts = np.minimum(np.maximum(budget // values, 1), ends)
    return [rows[end - count : end] for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]


def _cut(rows: np.ndarray, costs: np.ndarray, budget: int) -> list[np.ndarray]:
    """Cut rows, sorted by rising cost, into the longest runs whose number times last cost is within the budget."""
    batches, begin = [], 0
    while begin < len(rows):
        # No following row costs less than this one, which bounds their number.
        following = costs[begin : begin + max(budget // int(costs[begin]), 1)]
        fitting = int(np.searchsorted(following * np.arange(1, len(following) + 1), budget, side="right"))
        # A row beyond the budget goes alone.
        end = begin + max(fitting, 1)
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
