"""Widths of outputs, which depend on values such as predicted lengths: read eagerly, symbolic in exports, or fixed."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar, cast

import torch
from torch import Tensor

from workflow_src.nn.layers import Memory, check_length

# A length, or many (B,).
Lengths = TypeVar("Lengths", int, Tensor)


def ratio_of(factor: float) -> tuple[int, int]:
    """Numerator and denominator of a factor, whose decimals after the sixth do not count."""
    return Fraction(factor).limit_denominator(10**6).as_integer_ratio()


def multiplied(lengths: Lengths, ratio: tuple[int, int]) -> Lengths:
    """`lengths` times a ratio, rounded up.

    In whole numbers: a product such as 1.2 * 25 is a little above or below 30 in floating point, and models must have
    as many positions for a tensor of lengths as for a width.
    """
    numerator, denominator = ratio
    return (lengths * numerator + (denominator - 1)) // denominator


def largest(lengths: Tensor, limit: int, memory: Memory, bound: int | None = None) -> int:
    """The largest of lengths (B,), which are at least 1 and at most `limit`: a size, also in an exported graph.

    It is the `width` of the memory where that is fixed. A `bound` known from shapes replaces it where values must not
    be read, or the CPU would wait for a GPU. Lengths on the CPU are read without waiting.
    """
    if bound is not None and (memory.fixed or lengths.is_cuda) and not torch.compiler.is_exporting():
        return bound
    width = memory.width
    if width is not None:
        width.needed.append(lengths.amax())
        if width.size is not None:
            return width.size
    # In an export this is a symbolic number.
    size = cast(int, lengths.cpu().max().item())
    if torch.compiler.is_exporting():
        # The exporter cannot see the value; these checks give its range.
        torch._check(size >= 1)
        torch._check(size <= limit)
    return size


def places(lengths: Tensor, limit: int, memory: Memory, bound: int | None = None) -> tuple[Tensor, Tensor]:
    """Positions (N,) of the longest of outputs of lengths (B,), and the mask (B, N) of real positions.

    Both are on the device of the memory, wherever the lengths are. `memory` and `bound` as in `largest`.

    Raises ConfigError for a length above `limit`.
    """
    width = largest(lengths, limit, memory, bound)
    check_length(width, limit)
    place = torch.arange(width, device=memory.states.device)
    return place, place < beside(lengths, memory)[:, None]


def beside(lengths: Tensor, memory: Memory) -> Tensor:
    """Lengths (B,) on the device of the memory; the CPU does not wait for the copy."""
    return lengths.to(memory.states.device, non_blocking=True)
