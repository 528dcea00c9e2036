"""Searches that check drafts (`decoding/drafts.py`) in passes of fixed shapes, each captured in a CUDA graph.

Sentences, source width, positions of the cache and words of a pass are padded to buckets. The CPU waits once a pass: it
looks how many words were accepted. Finished sentences leave the batch when the others fit into a smaller bucket.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from workflow_src.decoding.drafts import Drafts, DraftSearch, Judged, Sentence, results
from workflow_src.engines.captured_steps import CACHE, CapturedSteps, Shape, copy_state, shallow
from workflow_src.engines.programs import Program, largest_rows, rows
from workflow_src.runtime.device import on_cpu
from workflow_src.spec import ROWS
from workflow_src.types import PAD, FixedDecoder, Hypotheses

# Words of a pass; longer ones have a multiple of the largest.
WIDTHS = (4, 8, 16, 32)


def padded_width(words: int) -> int:
    """The static number of words of a pass."""
    largest = WIDTHS[-1]
    return next((width for width in WIDTHS if width >= words), math.ceil(words / largest) * largest)


@dataclasses.dataclass
class BlockState:
    """What a search keeps between passes: the decoder alone."""

    decoder: FixedDecoder

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def keep(self, sentences: Tensor) -> None:
        self.decoder.keep(sentences)


class CapturedBlocks(CapturedSteps):
    """The programs of such searches, for one batch at a time."""

    def __init__(self, device: torch.device, pool: Any):
        super().__init__(device, pool)
        # By rows and words of a pass: what it reads and checks, limits, positions and winners, (R, 2 m + 3).
        self._inputs: dict[tuple[int, int], Tensor] = {}

    def verify(self, graph: str, search: DraftSearch, ids: Tensor, drafts: Sequence[Drafts]) -> Hypotheses:
        """The outputs of the first sentences of ids (B, S) on the CPU, those with drafts. `graph` is the key of the
        search."""
        # Logits of at most ROWS words, padding counted, are computed together, or those of one sentence.
        words = padded_width(search.settings.block) * search.settings.drafts
        size = largest_rows(max(1, ROWS // words))
        sentences: list[Sentence] = []
        for start in range(0, len(drafts), size):
            own = drafts[start : start + size]
            begun = search.begun(ids[start : start + len(own)], own)
            part = ids[start : start + rows(len(own))]
            search.grow(begun, CapturedPasses(self, graph, search, part, len(own)))
            sentences += begun
        return results(sentences)

    def begin(self, search: DraftSearch, source: Tensor, length: int, cache: Tensor | None) -> BlockState:
        width = search.settings.drafts
        decoder = search.model.start_fixed(search.model.encode(source), width, length, cache)
        decoder.rewind(torch.zeros(source.size(0) * width, dtype=torch.int64, device=source.device))
        return BlockState(decoder)

    def inputs(self, count: int, width: int) -> Tensor:
        """The static inputs of passes with so many rows and words."""
        key = count, width
        if key not in self._inputs:
            self._inputs[key] = torch.zeros(count, 2 * width + 3, dtype=torch.int64, device=self.device)
        return self._inputs[key]

    def pass_program(self, search: DraftSearch, shape: Shape, width: int) -> Program:
        """The program of a pass over blocks of `width` words, which gives `Judged`."""
        static = self._states[shape]
        inputs = self.inputs(shape[1] * search.settings.drafts, width)

        def compute() -> tuple[BlockState, Judged]:
            state = shallow(static)
            read, checked = inputs[:, :width], inputs[:, width:-3]
            limit, positions, winners = inputs[:, -3:].unbind(1)
            if search.settings.drafts > 1:
                state.decoder.reorder(winners)
            state.decoder.rewind(positions)
            return state, search.judge(state.decoder.steps(read), checked, limit)

        def advance() -> Judged:
            state, judged = compute()
            copy_state(static, state)
            return judged

        # Without copying its state, a pass changes nothing but positions of the cache that it writes again.
        return self.program((shape, -width), advance, compute)


class CapturedPasses:
    """Passes over the first `count` sentences of ids (B, S)."""

    def __init__(self, programs: CapturedBlocks, graph: str, search: DraftSearch, ids: Tensor, count: int):
        self.programs = programs
        self.search = search
        self.width = search.settings.drafts
        self.shape: Shape = graph, ids.size(0), ids.size(1), CACHE
        programs.read_source(search, self.shape, ids)
        # The place of each sentence in the batch; of each row, the number of tokens that it has read, and the row of
        # its sentence that it continues.
        self.places = list(range(count))
        self.positions = [0] * (count * self.width)
        self.winners = list(range(self.width)) * count

    def read(self, read: Tensor, checked: Tensor, limit: Tensor) -> Judged:
        words = padded_width(read.size(1))
        while max(self.positions) + words > self.shape[3]:
            self.shape = self.programs.moved(self.shape, range(self.shape[1]), 2 * self.shape[3])
        first_rows = torch.tensor(self.places).repeat_interleave(self.width) * self.width
        winners = first_rows + torch.tensor(self.winners)
        spare = (0, words - read.size(1))
        columns = torch.stack([limit, torch.tensor(self.positions), winners], 1)
        own = torch.cat([F.pad(read, spare, value=PAD), F.pad(checked, spare, value=PAD), columns], 1)
        # Nobody looks at the other rows of the batch, which read what the first one reads.
        inputs = own[:1].repeat(self.shape[1] * self.width, 1)
        rows_in_batch = first_rows + torch.arange(self.width).repeat(len(self.places))
        inputs[rows_in_batch] = own
        # Before the program is captured, which runs it: passes write the cache where their inputs say.
        self.programs.inputs(len(inputs), words).copy_(inputs, non_blocking=True)
        program = self.programs.pass_program(self.search, self.shape, words)
        accepted, word, gains, own_gains = (column[rows_in_batch] for column in on_cpu(*program()))
        return accepted, word, gains, own_gains

    def go_on(self, winners: Sequence[int], kept: Sequence[int], positions: Sequence[int]) -> None:
        self.winners = [winners[number * self.width] % self.width for number in kept for _ in range(self.width)]
        self.places, self.positions = [self.places[number] for number in kept], list(positions)
        if rows(len(kept)) < self.shape[1]:
            self.shape = self.programs.moved(self.shape, self.places, self.shape[3])
            self.places = list(range(len(kept)))
