"""Searches that write one position after another with an autoregressive decoder: their state, and the eager loop.

An engine may run the same steps in blocks of fixed shapes (`engines/captured_steps.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.lengths import limits
from workflow_src.decoding.search import SearchModule
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.types import BOS, Hypotheses, IncrementalDecoder

# What a step wrote: whether each sentence is done (B,), and tensors of the search, with sentences as first axis.
Record = tuple[Tensor, ...]
# The records of all positions, on the CPU, each with the sentence of its rows.
Records = Sequence[tuple[Sequence[int], Record]]


@dataclasses.dataclass
class State:
    """What a search keeps between positions. Each tensor has the sentences (B) as first axis.

    tokens    (B,) that the decoder reads next, or (B, W) for W hypotheses of each sentence
    position  number of positions that are written; a tensor (B,) where shapes are fixed
    limits    (B,) longest outputs: what follows them can only be an end
    shortest  a number that no limit is below
    done      (B,) whether the output is complete
    """

    # An `IncrementalDecoder`; a `FixedDecoder` where shapes are fixed.
    decoder: Any
    tokens: Tensor
    position: int | Tensor
    limits: Tensor
    shortest: int
    done: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """By name, without those of the decoder."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64 indices)."""
        self.decoder.keep(sentences)
        for name, value in self.tensors().items():
            setattr(self, name, value.index_select(0, sentences))

    @property
    def fixed(self) -> bool:
        """Whether shapes are fixed, and no value may be read."""
        return not isinstance(self.position, int)

    def full(self) -> Tensor | None:
        """The sentences (B,) that can only end here; None: there are none."""
        if isinstance(self.position, int) and self.position < self.shortest:
            return None
        return self.limits <= self.position


class StepSearch(SearchModule):
    """A search position by position.

    There are `width` hypotheses a sentence. The eager loop drops finished sentences when they are at least the share
    `idle` of the batch: dropping copies what the decoder keeps.
    """

    positions = True
    idle = 0.0

    def begin(self, source: Tensor, start: Callable[[Any], IncrementalDecoder] | None = None) -> State:
        """The state before the first position of source (B, S).

        With `start`, which makes the decoder from the model's states, shapes are fixed: there are `width` hypotheses a
        sentence, where otherwise the first position widens one.
        """
        memory, count, device = self.model.encode(source), source.size(0), source.device
        longest = limits(source, self.settings.max_length_ratio, self.model.config.max_positions)
        return State(
            decoder=(start or self.model.start)(memory),
            tokens=torch.full((count,), BOS, device=device),
            position=torch.zeros(count, dtype=torch.int64, device=device) if start else 0,
            limits=longest,
            shortest=0 if start else int(longest.min()),
            done=torch.zeros(count, dtype=torch.bool, device=device),
        )

    def step(self, state: Any) -> Record:
        """Write the next position of every sentence; rows that are done write anything.

        Reads no value where shapes are fixed. Replaces `state.done` where it may have changed.
        """
        raise NotImplementedError

    def read(self, records: Records, count: int) -> Hypotheses:
        """The outputs of `count` sentences."""
        raise NotImplementedError

    def finish(self, _source: Tensor, hypotheses: Hypotheses) -> Hypotheses:
        """The result for source (B, S), from what was read."""
        return hypotheses

    @torch.no_grad()
    def translate(self, source: Tensor, lengths: Tensor | None = None, trace: bool = False) -> Hypotheses:
        """Translate source (B, S) eagerly: finished sentences leave the batch.

        There are no outputs of given lengths, and no traces.
        """
        del lengths, trace
        state = self.begin(source)
        sentences = list(range(source.size(0)))
        written: list[tuple[list[int], Record]] = []
        while True:
            done_before = state.done
            record = self.step(state)
            written.append((sentences, record))
            if state.done is done_before:
                continue
            running = [row for row, done in enumerate(record[0].tolist()) if not done]
            if not running:
                break
            if len(sentences) - len(running) >= max(1, self.idle * len(sentences)):
                state.keep(on_device(running, source.device))
                sentences = [sentences[row] for row in running]
        # One wait for all.
        tensors = iter(on_cpu(*(tensor for _, record in written for tensor in record)))
        records = [(rows, tuple(next(tensors) for _ in record)) for rows, record in written]
        return self.finish(source, self.read(records, source.size(0)))
