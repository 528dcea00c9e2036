"""Widths of outputs, which depend on values such as predicted lengths: read eagerly, symbolic in exports, or fixed."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from workflow_src.nn.layers import check_length
from workflow_src.types import values_on_cpu


@dataclasses.dataclass(frozen=True)
class Width:
    """The fixed width of outputs (None: not fixed), and the widths that outputs need, as tensors."""

    size: int | None
    needed: list[Tensor] = dataclasses.field(default_factory=list)

    @property
    def most(self) -> Tensor | None:
        """The largest needed width; None where no width depends on values."""
        return torch.stack(self.needed).amax() if self.needed else None


_WIDTH: contextvars.ContextVar[Width | None] = contextvars.ContextVar("width", default=None)


@contextlib.contextmanager
def width_of(size: int | None) -> Iterator[Width]:
    """A context in which `largest` returns `size` for all lengths, so that shapes depend on no value.

    The `Width` records the widths that outputs need. Outputs that need more than `size` positions are wrong.
    """
    width = Width(size)
    token = _WIDTH.set(width)
    try:
        yield width
    finally:
        _WIDTH.reset(token)


def fixed() -> bool:
    """Whether shapes must not depend on values: in an export, and in a program of static shapes."""
    width = _WIDTH.get()
    return torch.compiler.is_exporting() or (width is not None and width.size is not None)


def largest(lengths: Tensor, limit: int, bound: int | None = None) -> int:
    """The largest of lengths (B,), which are at least 1 and at most `limit`: a size, also in an exported graph.

    A `bound` known from shapes replaces it where values must not be read, or the CPU would wait for a GPU.
    """
    width = _WIDTH.get()
    if bound is not None and (fixed() or lengths.is_cuda) and not torch.compiler.is_exporting():
        return bound
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


def places(lengths: Tensor, limit: int, bound: int | None = None) -> tuple[Tensor, Tensor]:
    """Positions (N,) of the longest of outputs of lengths (B,), and the mask (B, N) of real positions.

    `bound` as in `largest`. Raises ConfigError for a length above `limit`.
    """
    width = largest(lengths, limit, bound)
    check_length(width, limit)
    place = torch.arange(width, device=lengths.device)
    return place, place < lengths[:, None]


def length_mask(lengths: Tensor) -> Tensor:
    """Mask (B, T) of sequences of the given lengths (B,)."""
    return torch.arange(int(lengths.max()), device=lengths.device)[None, :] < lengths[:, None]
