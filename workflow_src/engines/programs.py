"""Programs of static shapes, captured in CUDA graphs on GPUs, and the buckets that shapes are padded to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from workflow_src.types import EOS, PAD

# Runs before a capture: libraries choose kernels and take workspace, which a graph cannot do.
WARM_UP = 3


def bucket(length: int, limit: int) -> int:
    """The static length for a sequence: the next multiple of 8 up to 64, of 32 up to 256, then of 128; at most `limit`.

    Padding wastes little, and the number of programs stays small.
    """
    for step, end in ((8, 64), (32, 256)):
        if length <= end:
            return min(-(-length // step) * step, limit)
    return min(-(-length // 128) * 128, limit)


def rows(sentences: int) -> int:
    """The static number of sentences: the next power of two."""
    return 1 << (sentences - 1).bit_length()


def largest_rows(sentences: int) -> int:
    """The largest static number of sentences that is not above `sentences`."""
    return 1 << (sentences.bit_length() - 1)


def filled(sources: Sequence[Sequence[int]], size: int, width: int) -> Tensor:
    """Sources with end symbols in a (size, width) tensor; spare rows repeat the first source, or are an end symbol."""
    lines = [[*source, EOS] for source in sources]
    lines += [lines[0] if lines else [EOS]] * (size - len(sources))
    return torch.tensor([line + [PAD] * (width - len(line)) for line in lines])


class Program:
    """A function of static tensors without arguments, captured where the device is a GPU; its result is reused.

    `warm_up` runs before a capture in place of a function that may not run more often than it is called.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        device: torch.device,
        pool: Any = None,
        warm_up: Callable[[], Any] | None = None,
    ):
        self.function = function
        self.graph = None
        self.result = None
        if device.type != "cuda":
            return
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                (warm_up or function)()
        torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.result = function()

    def __call__(self) -> Any:
        if self.graph is None:
            return self.function()
        self.graph.replay()
        return self.result
