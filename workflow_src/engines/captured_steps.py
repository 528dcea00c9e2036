"""Searches position by position (`decoding/steps.py`) in blocks of fixed shapes, each captured in a CUDA graph.

Sentences, source width and positions of the cache are padded to buckets. The CPU waits once a block: it looks which
sentences are done and reads what was written. They leave the batch when the others fit into a smaller bucket.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.lengths import limits
from workflow_src.decoding.search import SearchModule
from workflow_src.decoding.steps import Record, State, StepSearch
from workflow_src.engines.programs import Program, rows
from workflow_src.runtime.bounded import Bounded
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.types import Hypotheses

# Positions of a block, and of the smallest cache.
BLOCK, CACHE = 8, 32
# Programs that are kept.
PROGRAMS = 128
# Numbers that tensors in one memory begin at multiples of: kernels read aligned ones faster.
ALIGNED = 64

# The key of a search, sentences, source width, and positions of the cache.
Shape = tuple[str, int, int, int]


class CapturedSteps:
    """The programs of such searches, for one batch at a time.

    What decoders keep lies, for all shapes, in the same memory, as large as the largest needs.
    """

    def __init__(self, device: torch.device, pool: Any):
        self.device, self.pool = device, pool
        # By search, sentences and source width.
        self._sources: dict[tuple[str, int, int], Tensor] = {}
        # With the attributes `decoder` and `tensors`, and `keep`.
        self._states: dict[Shape, Any] = {}
        # By shape and number of positions; 0: the source is read.
        self._programs: Bounded[tuple[Shape, int], Program] = Bounded(PROGRAMS)
        self._memory: dict[torch.dtype, Tensor] = {}

    def translate(self, graph: str, search: StepSearch, ids: Tensor, count: int) -> Hypotheses:
        """The outputs of the first `count` rows of ids (B, S) on the CPU. `graph` is the key of the search."""
        longest = limits(ids, search.settings.max_length_ratio, search.model.config.max_positions).tolist()
        shape = graph, ids.size(0), ids.size(1), CACHE
        source = self.read_source(search, shape, ids)
        # The sentence of each row; rows behind them repeat one.
        sentences, position = list(range(count)), 0
        running = sentences
        records: list[tuple[Sequence[int], Record]] = []
        while True:
            remaining = max(longest[sentences[row]] for row in running) + 1 - position
            number = min(BLOCK, rows(remaining))
            if position + number > shape[3]:
                shape = self.moved(shape, range(shape[1]), 2 * shape[3])
            columns = on_cpu(*self._steps(search, shape, number)())
            records += [(sentences, record) for record in zip(*columns, strict=True)]
            position += number
            done = columns[0][-1].tolist()
            running = [row for row in range(len(sentences)) if not done[row]]
            if not running:
                return search.finish(source[:count], search.read(records, count))
            if rows(len(running)) < shape[1]:
                shape = self.moved(shape, running, shape[3])
                sentences = [sentences[row] for row in running]
                running = list(range(len(sentences)))

    def drop_others(self, graphs: Collection[str]) -> None:
        """Free what belongs to other searches than these."""
        self._sources = {key: source for key, source in self._sources.items() if key[0] in graphs}
        self._states = {shape: state for shape, state in self._states.items() if shape[0] in graphs}
        for key in [key for key in self._programs if key[0][0] not in graphs]:
            del self._programs[key]

    def read_source(self, search: SearchModule, shape: Shape, ids: Tensor) -> Tensor:
        """Make the state before the first position of a batch; its source."""
        graph, size, width, length = shape
        source = self._sources.setdefault(
            (graph, size, width), torch.empty(ids.shape, dtype=ids.dtype, device=self.device)
        )
        source.copy_(ids, non_blocking=True)

        def begin(cache: Tensor | None) -> Any:
            return self.begin(search, source, length, cache)

        if shape not in self._states:
            self._store(shape, begin(None))
        state = self._states[shape]
        self.program(
            (shape, 0), lambda: copy_state(state, begin(state.decoder.cache)), lambda: begin(state.decoder.cache)
        )()
        return source

    def begin(self, search: Any, source: Tensor, length: int, cache: Tensor | None) -> Any:
        """The state before the first position of source (B, S), with room for `length` positions."""
        return search.begin(source, lambda memory: search.model.start_fixed(memory, search.width, length, cache))

    def _steps(self, search: StepSearch, shape: Shape, number: int) -> Program:
        """The program of the next positions, which gives the columns of their records, (positions, B, …)."""
        static = self._states[shape]

        def compute() -> tuple[State, list[Tensor]]:
            state = shallow(static)
            records = [search.step(state) for _ in range(number)]
            return state, [torch.stack(column) for column in zip(*records, strict=True)]

        def advance() -> list[Tensor]:
            state, columns = compute()
            copy_state(static, state)
            return columns

        # Without copying its state, a block changes nothing but positions of the cache that it writes again.
        return self.program((shape, number), advance, compute)

    def program(self, key: tuple[Shape, int], function: Callable[[], Any], warm_up: Callable[[], Any]) -> Program:
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = Program(function, self.device, self.pool, warm_up)
        return program

    def moved(self, shape: Shape, kept_rows: Sequence[int], length: int) -> Shape:
        """The shape of these rows, with a cache of `length` positions, after copying their state there."""
        graph, _, width, _ = shape
        size = rows(len(kept_rows))
        state = shallow(self._states[shape])
        spare = [kept_rows[0]] * (size - len(kept_rows))
        state.keep(on_device([*kept_rows, *spare], self.device))
        state.decoder.lengthen(length)
        for (owner, name, tensor), (_, _, old) in zip(_tensors(state), _tensors(self._states[shape]), strict=True):
            if tensor is old:
                # Its place may be written before it is read.
                setattr(owner, name, tensor.clone())
        moved = graph, size, width, length
        self._store(moved, state)
        return moved

    def _store(self, shape: Shape, state: Any) -> None:
        """Copy a state to the place of its shape."""
        if shape not in self._states:
            self._states[shape] = self._placed(state)
        copy_state(self._states[shape], state)

    def _placed(self, state: Any) -> Any:
        """A state with tensors of the same shapes; those of the decoder in the common memory."""
        sizes: Counter[torch.dtype] = Counter()
        for tensor in state.decoder.tensors().values():
            sizes[tensor.dtype] += _aligned(tensor.numel())
        for dtype, size in sizes.items():
            memory = self._memory.get(dtype)
            if memory is None or len(memory) < size:
                # Programs and states are of the smaller memory.
                self._programs.clear()
                self._states.clear()
                self._memory.pop(dtype, None)
                self._memory[dtype] = torch.zeros(rows(size), dtype=dtype, device=self.device)
        placed = shallow(state)
        begins: Counter[torch.dtype] = Counter()
        for owner, name, tensor in _tensors(placed):
            if owner is placed:
                # Scores may be infinite, and what masked positions of a cache hold must be finite.
                setattr(owner, name, torch.empty_like(tensor))
                continue
            begin = begins[tensor.dtype]
            setattr(owner, name, self._memory[tensor.dtype][begin : begin + tensor.numel()].view(tensor.shape))
            begins[tensor.dtype] += _aligned(tensor.numel())
        return placed


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _tensors(state: Any) -> Iterator[tuple[Any, str, Tensor]]:
    """All tensors of a state and its decoder, with their owners and names."""
    for owner in (state, state.decoder):
        for name, tensor in owner.tensors().items():
            yield owner, name, tensor


def shallow(state: Any) -> Any:
    """A state that may change without changing this one, but for the positions that its decoder writes."""
    copied = copy.copy(state)
    copied.decoder = copy.copy(state.decoder)
    return copied


def copy_state(target: Any, source: Any) -> None:
    """Copy the values of a state's tensors into those of another."""
    for (_, _, old), (_, _, new) in zip(_tensors(target), _tensors(source), strict=True):
        if new is not old:
            old.copy_(new)
