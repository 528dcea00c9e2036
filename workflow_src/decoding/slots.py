"""Selection of the probable symbols of slots, which are searched, from logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workflow_src.errors import InputError

# Symbols with lower logits may not be output.
LEAST = -1e30
# Probable symbols of a slot, on average, that a copy from a device has room for: 16 bytes each.
ROOM = 64


class Row(NamedTuple):
    """The probable symbols of a sentence's slots, one after another.

    counts  (N,) int64, symbols of each slot
    symbols (K,) int64, ascending within a slot
    values  (K,) float64, log-probabilities relative to the best of the slot
    base    sum of the log-probabilities of the best symbols, to which scores are relative; 0 where it is not needed
    """

    counts: np.ndarray
    symbols: np.ndarray
    values: np.ndarray
    base: float


Probable = tuple[np.ndarray, np.ndarray, np.ndarray]


def below(min_ratio: float) -> float:
    return math.log(min_ratio) if min_ratio else -math.inf


def probable(logits: np.ndarray, min_ratio: float) -> Probable:
    """Counts, symbols and values as in `Row`, from logits (N, V), of symbols at least `min_ratio` times as probable as
    the best of their slot."""
    best = logits.max(-1, keepdims=True)
    places = np.flatnonzero(logits >= np.maximum(best + below(min_ratio), LEAST))
    rows, symbols = np.divmod(places, logits.shape[1])
    values = logits.ravel()[places] - best[rows, 0]
    return np.bincount(rows, minlength=len(logits)), symbols, values.astype(np.float64)


def _whole(row: Row) -> Row:
    if not row.counts.all():
        raise InputError(
            "the model",
            "forbids every symbol of a slot, or its logits are not numbers",
            "look at its training",
        )
    return row


def certainty(logits: np.ndarray) -> float:
    """Sum over slots of the log-probability of the best symbol, from logits (N, V)."""
    return -float(np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)).sum())


def rows_of_arrays(
    logits: np.ndarray,
    slots: np.ndarray,
    min_ratio: float,
    compared: bool,
    probable: Callable[[np.ndarray, float], Probable] = probable,
) -> list[Row]:
    """Rows of sentences from logits (B, N, V) and numbers of slots (B,); `base` is 0 unless `compared`."""
    rows = [logits_row[:count] for logits_row, count in zip(logits, slots.tolist(), strict=True)]
    return [
        _whole(Row(*probable(logits_row, min_ratio), certainty(logits_row) if compared else 0.0)) for logits_row in rows
    ]


def rows_of_tensors(logits: Tensor, slots: Tensor, min_ratio: float, compared: bool) -> list[Row]:
    """`rows_of_arrays` for tensors. The probable symbols of all sentences are copied from their device at once, into
    room for `ROOM` a slot; where there are more, they are copied again."""
    sentences, width, classes = logits.shape
    best = logits.amax(-1, keepdim=True)
    mask = torch.arange(width, device=logits.device) < slots[:, None]
    probable_enough = ((logits >= (best + below(min_ratio)).clamp(min=LEAST)) & mask[..., None]).flatten()
    sums = ((best[..., 0] - logits.logsumexp(-1)) * mask).sum(1) if compared else torch.zeros_like(slots)
    number, room = probable_enough.sum(), sentences * width * ROOM
    while True:
        # The CPU would wait for the number of cells if it determined the size.
        cells = torch.nonzero_static(probable_enough, size=room, fill_value=0)[:, 0]
        log_ratios = logits.flatten()[cells] - best.flatten()[cells // classes]
        # Integers of this size are exact in float64, so that one copy is enough.
        columns = [column.double() for column in (number[None], slots, sums, cells, log_ratios)]
        sizes = np.cumsum([len(column) for column in columns])[:-1]
        total, lengths, bases, places, logs = np.split(torch.cat(columns).cpu().numpy(), sizes)
        if total[0] <= room:
            break
        room = int(total[0])
    owners, ids = np.divmod(places[: int(total[0])].astype(np.int64), classes)
    counts = np.bincount(owners, minlength=sentences * width).reshape(-1, width)
    ends = counts.sum(1).cumsum()
    by_sentence = (counts, lengths.astype(np.int64), np.split(ids, ends)[:-1], np.split(logs, ends)[:-1], bases)
    return [
        _whole(Row(slot_counts[:length], words, values, float(base)))
        for slot_counts, length, words, values, base in zip(*by_sentence, strict=True)
    ]
