"""Random numbers of each sentence by itself: neither padding nor the rest of the batch changes them.

A sentence's numbers follow from a seed and from the sentence's row in the corpus, position by position, by the
finaliser of SplitMix64 (Steele, Lea & Flood 2014) in integer arithmetic. First weights and dropout alone are drawn from
PyTorch's own generators, which a training seeds at its start and for each part of an update (`training/update.py`).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from workflow_src.types import Batch

GOLDEN = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
# Streams that choose places of a sentence: how many, and which.
COUNT, WHICH = 1, 2


def seed_of(*numbers: int) -> int:
    """A seed below 2 ** 63 from numbers, such as those of a training, an update and a part of its batch."""
    # A sequence ignores zeros at its end.
    return int(np.random.SeedSequence((len(numbers), *numbers)).generate_state(1, np.uint64)[0] >> 1)


def sentence_keys(batch: Batch, seed: int) -> Tensor:
    """A number for each sentence, (B,) int64."""
    rows = torch.tensor(tuple(batch.indices or range(batch.source.size(0))), dtype=torch.int64)
    return _mixed(seed + _signed(GOLDEN) * rows).to(batch.source.device, non_blocking=True)


def number_of(seed: int, stream: int = 0) -> float:
    """A number in (0, 1) that no sentence changes, from a seed; each `stream` has its own."""
    return float(uniform(torch.tensor([seed]), (1,), stream))


def uniform(keys: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """Numbers in (0, 1), (B, *shape) float64, of keys (B,); each `stream` has its own.

    A longer first dimension continues a shorter one.
    """
    count = math.prod(shape)
    counters = torch.arange(count, device=keys.device) + 1
    bits = _mixed(_mixed(keys + _signed(GOLDEN * (stream + 1)))[:, None] + _signed(GOLDEN) * counters)
    # 52 bits and a half: never 0 or 1.
    return ((_shifted(bits, 12)).double().add_(0.5) * 2.0**-52).view(len(keys), *shape)


def normal(keys: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """Standard normal numbers, (B, *shape) float64, as `uniform`."""
    return torch.special.ndtri(uniform(keys, shape, stream))


def gumbel(keys: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """Standard Gumbel numbers -log(-log u), (B, *shape) float64, as `uniform`."""
    return uniform(keys, shape, stream).log_().neg_().log_().neg_()


def subset(keys: Tensor, sizes: Tensor, count: Tensor, width: int, stream: int = 0) -> Tensor:
    """`count` (B,) of the first `sizes` (B,) places of each sentence, at most all of them, as a mask (B, width).

    Every choice is as likely as any other.
    """
    order = uniform(keys, (width,), stream)
    order = order.masked_fill(torch.arange(width, device=keys.device) >= sizes[:, None], 2.0)
    rank = order.argsort(1).argsort(1)
    return rank < torch.minimum(count.long(), sizes)[:, None]


def _signed(value: int) -> int:
    """The signed number with the same 64 bits: int64 arithmetic wraps around."""
    return (value + 2**63) % 2**64 - 2**63


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Bits moved to the right, zeros following from the left, of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mixed(x: Tensor) -> Tensor:
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        x = (x ^ _shifted(x, shift)) * _signed(factor)
    return x ^ _shifted(x, 31)
