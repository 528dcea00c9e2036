"""A search as one module: a function of source ids, and how its outputs are read."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.config.roles import fill, needs
from workflow_src.decoding.candidates import joined, traces_of_best, unpadded, winners
from workflow_src.decoding.settings import RESCORER
from workflow_src.errors import InputError
from workflow_src.nn.layers import Memory, Width
from workflow_src.nn.length import LengthChoice
from workflow_src.runtime.device import on_cpu
from workflow_src.spec import MODEL, ROWS, SearchSettings
from workflow_src.types import PAD, Hypotheses, Networks

# Called with the outputs (C, N), padded, before the first step and after every step.
Watch = Callable[[Tensor], None]


def scores_not_finite(search: str) -> InputError:
    """The error of a search whose scores left the range of numbers."""
    problem = "gives scores that are not finite: its settings or the model's weights are too large"
    return InputError(f"search {search}", problem, "use smaller values")


class SearchModule(nn.Module):
    """Base of searches: `forward` computes outputs of sources, and `hypotheses` makes translations of them.

    Engines compile `forward` without knowing the family, where the search declares a `program`: `torch.export` must be
    able to follow it. For CUDA graphs it must read no value and copy nothing from the CPU where `Memory.fixed` is
    true: no Python control flow that depends on values, no boolean index, no assignment to a single element. Engines
    may replace layers of `nn/layers.py` by faster operators, and leave out padding of a single sentence's outputs:
    `torch.where` with a constant may only pad. Padding of the source must change nothing.

    Args:
        networks: by role; `hypotheses` may use others than `forward` does, such as a rescorer
        settings: of the search
        scored: whether scores are asked for; without, they are 0, or 1-best ranking may be skipped
    """

    # Names of what `forward` returns.
    outputs: tuple[str, ...] = ("outputs", "scores")
    # Width of outputs, where an engine wants static shapes.
    static_width: Width | None = None
    # What a declaration may say.
    refines: bool = False
    positions: bool = False
    blocks: bool = False
    # Steps or passes of every sentence; None for searches that count none.
    steps: int | None = None

    def __init__(self, networks: Networks, settings: Any, scored: bool = True):
        super().__init__()
        self.model = networks[MODEL]
        self.settings = settings
        self.scored = scored
        self.rescorer = networks.get(RESCORER)
        self.declared = registry.search_of(settings)
        # Candidates of a sentence, and the rows of outputs that `forward` computes for it.
        self.width = self.declared.width(settings)
        self.rows = self.width
        # Whether candidates need scores of their own.
        self.ranks = scored or (self.width > 1 and self.rescorer is None)

    def encode(self, source: Tensor) -> Memory:
        """What the model's encoder makes of source (B, S)."""
        memory = self.model.encode(source)
        return memory if self.static_width is None else dataclasses.replace(memory, width=self.static_width)

    def forward(self, source: Tensor, lengths: Tensor | None = None, watch: Watch | None = None) -> tuple[Tensor, ...]:
        """Outputs (B * K, N) int64, padded, of source (B, S) int64, the K candidates of a sentence in consecutive rows;
        their scores (B * K,), which are mean log-probabilities of symbols, or 0; and, where sentences may stop early,
        the numbers of their steps (B * K,).

        `lengths` (B,) in words replace predicted ones, where a search begins with lengths.
        """
        raise NotImplementedError

    def at_width(self, source: Tensor, size: int | None) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """What `forward` returns with outputs of a fixed width, so that shapes depend on no value (None: of any), and
        the width that they need: None where no width depends on values. Outputs that need more are wrong."""
        self.static_width = Width(size)
        try:
            return self(source), self.static_width.most
        finally:
            self.static_width = None

    @torch.no_grad()
    def translate(self, source: Tensor, lengths: Tensor | None = None, trace: bool = False) -> Hypotheses:
        """Translations of source (B, S); a `trace` has the best candidates' outputs after every step."""
        # At most ROWS candidates are computed together, or those of one sentence.
        rows = max(1, ROWS // self.rows)
        parts = [
            self._part(source[start : start + rows], None if lengths is None else lengths[start : start + rows], trace)
            for start in range(0, len(source), rows)
        ]
        hypotheses = self.hypotheses(source, joined([outputs for outputs, _ in parts]))
        if trace:
            steps = zip(*(passes for _, passes in parts), strict=True)
            hypotheses.traces = traces_of_best(hypotheses.tokens, [list(itertools.chain(*texts)) for texts in steps])
        return hypotheses

    def _part(
        self, source: Tensor, lengths: Tensor | None, trace: bool
    ) -> tuple[tuple[Tensor, ...], list[list[list[int]]]]:
        passes: list[list[list[int]]] = []

        def watch(outputs: Tensor) -> None:
            passes.append(unpadded(outputs))

        return self(source, lengths, watch if trace else None), passes

    def hypotheses(self, source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        """Translations of source (B, S) from what `forward` returned, on any device.

        Raises InputError where a score is NaN.
        """
        tokens, scores, *counts = on_cpu(*outputs)
        # Candidates without a number, which a rescorer would hide.
        if scores.isnan().any():
            raise scores_not_finite(self.declared.name)
        if self.declared.several:
            penalty = getattr(self.settings, "length_penalty", 1.0)
            hypotheses = winners(tokens, scores, source, self.rescorer, self.scored, penalty)
        else:
            hypotheses = Hypotheses(unpadded(tokens), scores.tolist())
        if counts:
            # The largest number of a candidate.
            hypotheses.steps = counts[0].view(len(source), -1).amax(1).tolist()
        elif self.steps is not None:
            hypotheses.steps = [self.steps] * len(source)
        return hypotheses

    def origins(self, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """For each output of each sentence of source (B, S), the source position that each subword was read off.

        Searches declare whether they know.
        """
        raise NotImplementedError

    def choice(self, lengths: Tensor | None = None) -> LengthChoice:
        """The choice of lengths by the settings, or the given ones."""
        quantile = getattr(self.settings, "length_quantile", None)
        return LengthChoice(quantile, getattr(self.settings, "lengthening", 0.0), lengths)


State = tuple[Tensor, ...]
# (number of the step from 1, state, source states, mask) -> the state after it.
Advance = Callable[[int, State, Memory, Tensor], State]


def run_steps(
    state: State,
    advance: Advance,
    steps: int,
    memory: Memory,
    mask: Tensor,
    stopped: Callable[[State, State, Tensor], Tensor] | None = None,
    watch: Callable[[State], None] | None = None,
) -> tuple[State, Tensor | None]:
    """The state (B, …) of sentences after `steps` steps, and the numbers of their steps (B,) where they may stop early.

    With `stopped`, a function of the states before and after a step and of the mask, a sentence stops after a step at
    which it is true, (B,), and leaves the batch. Without, all take all steps. `watch` is called before the first step
    and after every step.
    """
    if watch:
        watch(state)
    if stopped is None:
        for number in range(1, steps + 1):
            state = advance(number, state, memory, mask)
            if watch:
                watch(state)
        return state, None
    active = torch.arange(len(mask), device=mask.device)
    counts, before, active_memory, active_mask = torch.zeros_like(active), state, memory, mask
    for number in range(1, steps + 1):
        if len(active):
            after = advance(number, before, active_memory, active_mask)
            counts[active] = number
            state = tuple(_placed(whole, active, part) for whole, part in zip(state, after, strict=True))
            going = ~stopped(before, after, active_mask)
            before = after
            if not bool(going.all()):
                active, active_mask = active[going], active_mask[going]
                active_memory = memory.select(active)
                before = tuple(tensor[going] for tensor in after)
        if watch:
            watch(state)
    return state, counts


def _placed(whole: Tensor, rows: Tensor, part: Tensor) -> Tensor:
    """A copy of `whole` (B, …) in which `part` (R, …) stands at `rows` (R,)."""
    whole, part = padded_alike(whole, part)
    return whole.index_copy(0, rows, part)


def padded_alike(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors of ids (B, N) and (B, M) with the same width; others as they are."""
    if first.dim() != 2 or first.size(1) == second.size(1):
        return first, second
    width = max(first.size(1), second.size(1))
    first, second = (nn.functional.pad(ids, (0, width - ids.size(1)), value=PAD) for ids in (first, second))
    return first, second


def open_search(networks: Networks, settings: SearchSettings, scored: bool = True) -> SearchModule:
    """The search with these settings, for networks by role."""
    return registry.import_object(registry.search_of(settings).module)(networks, settings, scored)


def searching(name: str, **fields: Any) -> Callable[[nn.Module, Tensor], Hypotheses]:
    """A function of (model, source (B, S)) that translates by a search and the model alone, without scores.

    `fields` are settings of the search.
    """
    settings = registry.searches()[name].settings.model_validate(fields)
    return lambda model, source: open_search({MODEL: model}, settings, scored=False).translate(source)


def own_networks(models: Mapping[str, nn.Module], settings: SearchSettings) -> dict[str, nn.Module]:
    """The networks of a system that a search uses, by role; `models` are all its networks by family."""
    families = registry.families()
    trained_networks = [(model, families[family]) for family, model in models.items()]
    return fill(needs(settings), trained_networks, {})


def graph_key(settings: SearchSettings, *parts: Any) -> str:
    """The key of a search's graph among the graphs of a system, as text; an engine may add `parts`."""
    search = registry.search_of(settings)
    matters = search.graph(settings) if search.graph else settings.model_dump(mode="json")
    return json.dumps([search.name, matters, *parts], sort_keys=True)
