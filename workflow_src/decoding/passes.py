"""Searches that are one fixed function of source ids, so that an engine can compile them without knowing the family.

A search names a function (networks by role, settings, scored) -> `Pass` as its `program`. `torch.export` must be able
to follow its module. For CUDA graphs, the module must read no value and copy nothing from the CPU where `fixed()` is
true: no Python control flow that depends on values, no boolean index, no assignment to a single element. Engines may
replace layers of `nn/layers.py` by faster operators.
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
from workflow_src.decoding.steps import StepSearch
from workflow_src.nn.layers import check_length
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, Hypotheses, Networks, values_on_cpu


def without_end(row: list[int]) -> list[int]:
    """Ids without end symbols."""
    return [i for i in row if i != EOS]


@dataclasses.dataclass(frozen=True)
class Pass:
    """A search as one function of tensors.

    module  forward(source (B, S) int64) -> tokens (B, T) int64, numbers of positions (B,) int64 of each row, and, with
            scores, scores (B,). Padding of the source must change nothing.
    finish  the translation from the first `positions` tokens of a row, such as a collapse of repetitions and blanks
    steps   number of refinement steps
    outputs  names of the module's outputs, where these are others than tokens, positions and scores
    read    makes translations of such outputs: (source (B, S), the outputs as arrays) -> Hypotheses
    read_tensors  `read` for tensors, which need not leave their device; None: they are copied to the CPU
    """

    module: nn.Module
    finish: Callable[[list[int]], list[int]] = without_end
    steps: int = 0
    outputs: tuple[str, ...] = ()
    read: Callable[[np.ndarray, list[np.ndarray]], Hypotheses] | None = None
    read_tensors: Callable[[Tensor, Sequence[Tensor]], Hypotheses] | None = None

    def hypotheses(self, source: np.ndarray, outputs: list[np.ndarray]) -> Hypotheses:
        """Translations of source (B, S) from the module's outputs as arrays.

        In place of tokens (B, T) there may be scores (B, T, V), of which the best count. Without scores, these are 0.
        """
        if self.read is not None:
            return self.read(source, outputs)
        tokens, positions, *scores = outputs
        best = tokens.argmax(-1) if tokens.ndim == 3 else tokens
        rows = zip(best.tolist(), positions.tolist(), strict=True)
        return Hypotheses(
            [self.finish(row[:count]) for row, count in rows],
            scores[0].tolist() if scores else [0.0] * len(best),
            [self.steps] * len(best),
        )


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of another system's network that searches call, as one function of tensors; see `Role.program`.

    module    forward(source (B, S) int64, …) -> one tensor
    inputs    names of the inputs after the source, with the indices of axes that vary
    alone     example inputs for exporters, with any values: one sentence without padding
    together  example inputs for several sentences
    """

    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    alone: tuple[Tensor, ...]
    together: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A network and its role's function, computed by an engine; searches get it in place of the network."""

    network: nn.Module
    function: Callable[..., Tensor]

    @property
    def config(self) -> Any:
        return self.network.config


def own_networks(models: Mapping[str, nn.Module], settings: SearchSettings) -> dict[str, nn.Module]:
    """The networks of a system that a search uses, by role; `models` are all its networks by family."""
    families = registry.families()
    trained_networks = [(model, families[family]) for family, model in models.items()]
    return registry.fill(registry.needs(settings), trained_networks, {})


def make_pass(networks: Networks, settings: SearchSettings, scored: bool) -> Pass:
    """The program of a search for networks by role and settings."""
    program = registry.search_of(settings).program
    assert program, "engines compile only searches that declare a program"
    return registry.import_object(program)(networks, settings, scored)


def make_search(networks: Networks, settings: SearchSettings, scored: bool) -> Pass | StepSearch:
    """`make_pass`, or the steps of a search position by position."""
    steps = registry.search_of(settings).steps
    return registry.import_object(steps)(networks, settings, scored) if steps else make_pass(networks, settings, scored)


def graph_key(settings: SearchSettings, *parts: Any) -> str:
    """The key of a search's graph among the graphs of a system, as text; an engine may add `parts`."""
    search = registry.search_of(settings)
    matters = search.graph(settings) if search.graph else settings.model_dump(mode="json")
    return json.dumps([search.name, matters, *parts], sort_keys=True)


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
