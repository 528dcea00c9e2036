"""Searches of any family with static shapes, on GPUs captured in CUDA graphs: one launch a batch, or a block of steps.

Sources are padded to buckets. The width of outputs depends on values, such as predicted lengths: a program is captured
for the widest outputs so far of sources of its bucket, and returns the width that its outputs need. Where that is more,
the batch is computed again by a wider program. On a CPU the same programs run uncaptured, and tests compare them with
eager inference.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from workflow_src.data.batching import pad
from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.search import SearchModule, graph_key
from workflow_src.decoding.steps import StepSearch
from workflow_src.engines.captured_blocks import CapturedBlocks
from workflow_src.engines.captured_steps import CapturedSteps
from workflow_src.engines.programs import Program, bucket, filled, rows
from workflow_src.engines.session import KEPT_SEARCHES, Request, Session, SessionConfig
from workflow_src.nn.layers import check_length
from workflow_src.runtime import forks
from workflow_src.runtime.bounded import Bounded
from workflow_src.runtime.device import on_cpu
from workflow_src.types import Hypotheses, max_positions

# A graph, sentences and source width.
Key = tuple[str, int, int]


class CapturedSearches(Session):
    """The engine for the searches of a system that have programs. `models` are its networks by family.

    Each program is captured once with scores and once without, as they are asked for.
    Programs of the last searches are kept. They share their working memory; each has memory of its own for its outputs,
    which are read before another program runs: threads wait for each other.
    """

    def __init__(self, models: Mapping[str, nn.Module], device: torch.device):
        super().__init__()
        self.models, self._device = dict(models), device
        self.limit = min(map(max_positions, models.values()))
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        # Keys of graphs by search.
        self._graphs: Bounded[SearchModule, str] = Bounded(2 * KEPT_SEARCHES)
        # By graph, sentences and source width: the ids, and the width of outputs.
        self._sources: dict[Key, Tensor] = {}
        self._widths: dict[Key, int] = {}
        self._programs: dict[Key, Program] = {}
        self._steps = CapturedSteps(device, self.pool)
        self._blocks = CapturedBlocks(device, self.pool)
        # Programs share their sources, their working memory and their outputs.
        self._lock = threading.Lock()
        forks.renew_in_children(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def compute(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        with self._lock:
            return self._translated(sources, request)

    def _translated(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        count = len(sources)
        search, graph = self._search(request)
        limit = min(self.limit, max_positions(search.model))
        key = graph, rows(count), bucket(max(map(len, sources)) + 1, limit)
        ids = filled(sources, *key[1:])
        if isinstance(search, (StepSearch, DraftSearch)) and not search.model.can_start_fixed:
            return search.translate(ids[:count].to(self._device))
        if isinstance(search, StepSearch):
            return self._steps.translate(graph, search, ids, count)
        if isinstance(search, DraftSearch):
            return self._verified(graph, search, sources, ids)
        outputs = self._outputs(key, search, ids, count)
        source = self._sources[key] if search.declared.logits else ids
        return search.hypotheses(source[:count], outputs)

    def _verified(self, graph: str, search: DraftSearch, sources: Sequence[Sequence[int]], ids: Tensor) -> Hypotheses:
        drafting = search.drafting

        def draft(rows: list[Sequence[int]]) -> Hypotheses:
            if search.static:
                return self._translated(rows, Request(drafting.settings, search.drafting_networks))
            return drafting.translate(pad(rows, eos=True).to(self._device))

        return self._blocks.verify(graph, search, ids, search.drafts(sources, draft))

    def _outputs(self, key: Key, search: SearchModule, ids: Tensor, count: int) -> list[Tensor]:
        """Outputs of the first `count` sentences: on the CPU, or on their device where a search reads them there."""
        if key not in self._sources:
            source = ids.to(self._device)
            self._widths[key] = self._widest(search, source)
            self._sources[key] = source
        self._sources[key].copy_(ids, non_blocking=True)
        while True:
            outputs, needed_width = self._program(key, search)()
            # Without spare rows. A search may have several rows for a sentence.
            tensors = [output[: count * (len(output) // len(ids))] for output in outputs]
            tensors += [] if needed_width is None else [needed_width]
            if not search.declared.logits:
                # With one wait for all.
                tensors = on_cpu(*tensors)
            width = 0 if needed_width is None else int(tensors[-1])
            if width <= self._widths[key]:
                return tensors[: len(outputs)]
            check_length(width, self.limit)
            # The program of the smaller width is not run again.
            del self._programs[key]
            self._widths[key] = bucket(width, self.limit)

    def _widest(self, search: SearchModule, ids: Tensor) -> int:
        """The width of outputs of these sources, rounded up; 0 where it does not depend on values."""
        _, width = search.at_width(ids, None)
        return 0 if width is None else bucket(int(width), self.limit)

    def _program(self, key: Key, search: SearchModule) -> Program:
        if key not in self._programs:
            size, ids = self._widths[key], self._sources[key]
            self._programs[key] = Program(lambda: search.at_width(ids, size), self._device, self.pool)
        return self._programs[key]

    def _search(self, request: Request) -> tuple[SearchModule, str]:
        """The search of a request, and the key of its graph."""
        is_new = request.key not in self._searches
        search = self.opened(request)
        if is_new:
            self._drop_unused()
        return search, self._graph_of(search)

    def _graph_of(self, search: SearchModule) -> str:
        # Computing it takes longer than some sentences.
        graph = self._graphs.get(search)
        if graph is None:
            # Drafters are other systems: searches of theirs with equal settings have programs of their own.
            graph = self._graphs[search] = graph_key(search.settings, search.scored, id(search.model))
        return graph

    def _drop_unused(self) -> None:
        """Free programs of searches that are not kept."""
        graphs = {self._graph_of(search) for search in self._searches.values()}
        for key in [key for key in self._sources if key[0] not in graphs]:
            del self._sources[key], self._widths[key]
            self._programs.pop(key, None)
        self._steps.drop_others(graphs)
        self._blocks.drop_others(graphs)


def open_networks(config: SessionConfig) -> CapturedSearches:
    return CapturedSearches(config.networks, torch.device(config.device))
