"""Widths of outputs, which depend on values such as predicted lengths: read eagerly, symbolic in exports, or fixed."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from workflow_src.nn.layers import Memory, check_length
from workflow_src.types import values_on_cpu


def largest(lengths: Tensor, limit: int, memory: Memory, bound: int | None = None) -> int:
    """The largest of lengths (B,), which are at least 1 and at most `limit`: a size, also in an exported graph.

    It is the `width` of the memory where that is fixed. A `bound` known from shapes replaces it where values must not
    be read, or the CPU would wait for a GPU.
    """
    if bound is not None and (memory.fixed or lengths.is_cuda) and not torch.compiler.is_exporting():
        return bound
    width = memory.width
    if width is not None:
        width.needed.append(lengths.amax())
        if width.size is not None:
            return width.size
    # In an export this is a symbolic number.
    size = cast(int, values_on_cpu(lengths).max().item())
    if torch.compiler.is_exporting():
        # The exporter cannot see the value; these checks give its range.
        torch._check(size >= 1)
        torch._check(size <= limit)
    return size


def places(lengths: Tensor, limit: int, memory: Memory, bound: int | None = None) -> tuple[Tensor, Tensor]:
    """Positions (N,) of the longest of outputs of lengths (B,), and the mask (B, N) of real positions.

    `memory` and `bound` as in `largest`. Raises ConfigError for a length above `limit`.
    """
    width = largest(lengths, limit, memory, bound)
    check_length(width, limit)
    place = torch.arange(width, device=lengths.device)
    return place, place < lengths[:, None]


def length_mask(lengths: Tensor) -> Tensor:
    """Mask (B, T) of sequences of the given lengths (B,)."""
    return torch.arange(int(lengths.max()), device=lengths.device)[None, :] < lengths[:, None]
