"""Searches that are one fixed function of source ids, so that an engine can compile them without knowing the family.

A search names a function (networks by role, settings, scored) -> `Pass` as its `program`. Engines ask of the module
that `torch.export` can follow it, and, for CUDA graphs, that it reads no value and copies nothing from the CPU where
`fixed()` is true: no Python control flow that depends on values, no boolean index, no assignment to a single element.
Layers of `nn/layers.py` are replaced by faster operators where an engine has them.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.nn.layers import check_length
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, Hypotheses, Networks, values_on_cpu


def without_end(row: list[int]) -> list[int]:
    """Ids without end symbols."""
    return [i for i in row if i != EOS]


@dataclasses.dataclass(frozen=True)
class Pass:
    """A search as one function of tensors.

    module  forward(source (B, S) int64) -> tokens (B, T) int64, positions (B,) int64 that count in each row, and, where
            scores are asked for, scores (B,). Padding of the source must change nothing.
    finish  the translation from the first `positions` tokens of a row, such as a collapse of repetitions and blanks
    steps   refinement steps it takes
    outputs  names of other outputs that the module has in place of tokens, positions and scores
    read    then, what makes translations of them: (source (B, S), the outputs as arrays) -> Hypotheses
    read_tensors  the same of tensors, which need not leave their device; None: they are copied to the CPU
    """

    module: nn.Module
    finish: Callable[[list[int]], list[int]] = without_end
    steps: int = 0
    outputs: tuple[str, ...] = ()
    read: Callable[[np.ndarray, list[np.ndarray]], Hypotheses] | None = None
    read_tensors: Callable[[Tensor, Sequence[Tensor]], Hypotheses] | None = None

    def finished(self, tokens: list[list[int]], positions: list[int]) -> list[list[int]]:
        """Translations from tokens (B, T) and the positions (B,) that count."""
        return [self.finish(row[:count]) for row, count in zip(tokens, positions, strict=True)]


@dataclasses.dataclass(frozen=True)
class Function:
    """What searches ask of another system's network, as one function of tensors: a role's `program` makes it.

    module    forward(source (B, S) int64, …) -> one tensor
    inputs    names of the others, with the places of axes that vary
    examples  of source and the others, for exporters; any values will do. `alone` has one sentence without padding.
    """

    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    alone: tuple[Tensor, ...]
    together: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A network whose role's function an engine computes: searches get it in the network's place."""

    network: nn.Module
    function: Callable[..., Tensor]

    @property
    def config(self) -> Any:
        return self.network.config


def own_networks(models: Mapping[str, nn.Module], settings: SearchSettings) -> dict[str, nn.Module]:
    """The networks of a system, by role, that a search works with; `models` are all of them, by family."""
    families = registry.families()
    own = [(model, families[family]) for family, model in models.items()]
    return registry.fill(registry.needs(settings), own, {})


def make_pass(networks: Networks, settings: SearchSettings, scored: bool) -> Pass:
    """The program of a search for networks by role and settings."""
    program = registry.search_of(settings).program
    assert program, "engines compile only searches that declare a program"
    return registry.import_object(program)(networks, settings, scored)


def graph_key(settings: SearchSettings, *more: Any) -> str:
    """The key of a search's graph among those of a system, as text; `more` is what an engine adds to it."""
    search = registry.search_of(settings)
    matters = search.graph(settings) if search.graph else settings.model_dump(mode="json")
    return json.dumps([search.name, matters, *more], sort_keys=True)


@dataclasses.dataclass(frozen=True)
class Width:
    """The width of outputs (None: as wide as they need), and the widths that they would need, as tensors."""

    size: int | None
    needed: list[Tensor] = dataclasses.field(default_factory=list)

    @property
    def most(self) -> Tensor | None:
        """The widest of all; None where no width depends on values."""
        return torch.stack(self.needed).amax() if self.needed else None


_WIDTH: contextvars.ContextVar[Width | None] = contextvars.ContextVar("width", default=None)


@contextlib.contextmanager
def width_of(size: int | None) -> Iterator[Width]:
    """Within this context `largest` is `size`, whatever lengths are, so that shapes depend on no value.

    The widths that outputs would need are kept. Outputs that need more than `size` positions are wrong.
    """
    width = Width(size)
    before = _WIDTH.set(width)
    try:
        yield width
    finally:
        _WIDTH.reset(before)


def fixed() -> bool:
    """Whether no operator may depend on values: in an export, and in a program of static shapes."""
    width = _WIDTH.get()
    return torch.compiler.is_exporting() or (width is not None and width.size is not None)


def largest(lengths: Tensor, limit: int, bound: int | None = None) -> int:
    """The largest of lengths (B,), which are at least 1 and at most `limit`: a size, also in an exported graph.

    A `bound` that shapes give takes its place where values must not be read, or the CPU would wait for a GPU.
    """
    width = _WIDTH.get()
    if bound is not None and (fixed() or lengths.is_cuda) and not torch.compiler.is_exporting():
        return bound
    if width is not None:
        width.needed.append(lengths.amax())
        if width.size is not None:
            return width.size
    # While exporting it is a symbol that stands for a number.
    size = cast(int, values_on_cpu(lengths).max().item())
    if torch.compiler.is_exporting():
        # An exporter cannot see the value; these give it the range.
        torch._check(size >= 1)
        torch._check(size <= limit)
    return size


def places(lengths: Tensor, limit: int, bound: int | None = None) -> tuple[Tensor, Tensor]:
    """Places (N,) of the longest of outputs of lengths (B,), and the mask (B, N) of those that an output has.

    `bound` as in `largest`. Raises ConfigError for a length above `limit`.
    """
    width = largest(lengths, limit, bound)
    check_length(width, limit)
    place = torch.arange(width, device=lengths.device)
    return place, place < lengths[:, None]
