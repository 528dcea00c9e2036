"""Searches with a program, of any family, in ONNX Runtime: graphs are exported on first use, and kept on disk."""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.config.roles import needs
from workflow_src.data.batching import pad
from workflow_src.decoding.batches import search_rows
from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.ranking import Compiled
from workflow_src.decoding.search import SearchModule, graph_key, open_search, own_networks
from workflow_src.engines.choose import FAST_INT8
from workflow_src.engines.exports import EXPORTS
from workflow_src.engines.graph_folder import GraphFolder, cache_folder, digest, run
from workflow_src.engines.session import KEPT_SEARCHES, Request, Session, SessionConfig
from workflow_src.nn.models import rows_of
from workflow_src.runtime import forks
from workflow_src.runtime.bounded import Bounded
from workflow_src.spec import MODEL
from workflow_src.types import EOS, Hypotheses

# What graphs of a search that checks drafts compute of its model.
READERS = ("workflow_src.decoding.drafts:reading_source", "workflow_src.decoding.drafts:reading_block")


@dataclasses.dataclass(frozen=True)
class _Drafts:
    """An opened search that checks drafts: its module, the functions that read for it, and the drafter's graphs with
    the request for drafts."""

    search: DraftSearch
    readers: tuple[ExportedFunction, ...]
    drafter: ExportedGraphs
    request: Request


class ExportedGraphs(Session):
    """The engine for the searches of a system that have programs. `models` are its networks by family.

    float32: the tokens of eager inference, up to rounding. `int8`: large products in 8 bits; sentences are then
    computed one at a time, and batches change nothing.
    """

    def __init__(
        self, models: Mapping[str, nn.Module], threads: int = 0, int8: bool = False, folder: Path | None = None
    ):
        super().__init__()
        self.models = dict(models)
        self.threads = threads
        self.int8 = int8
        self.graphs = GraphFolder(folder or cache_folder(), threads, int8)
        # Searches, which read outputs, with sessions. Computing the key of a graph takes longer than a sentence.
        self._searches_with_graphs: Bounded[tuple[Hashable, bool], tuple[SearchModule, Any]] = Bounded(KEPT_SEARCHES)
        self._drafts: Bounded[Hashable, _Drafts] = Bounded(KEPT_SEARCHES)
        self._functions: Bounded[tuple[nn.Module, str], ExportedFunction | None] = Bounded(KEPT_SEARCHES)
        self._drafters: Bounded[nn.Module, ExportedGraphs] = Bounded(KEPT_SEARCHES)
        # Held for moments: graphs are opened in the turn of an export, for which other threads must not hold a lock.
        self._lock = threading.Lock()
        forks.renew_in_children(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        if self.threads == 1:
            return
        self.graphs.forget_sessions()
        forks.keep(dict(self._searches_with_graphs))
        self._searches_with_graphs.clear()

    def ready(self, request: Request, alone: bool) -> bool:
        alone = alone or self.int8
        if registry.search_of(request.settings).blocks:
            drafts = self._drafts_of(request)
            return all(reader.ready(alone) for reader in drafts.readers) and drafts.drafter.ready(drafts.request, alone)
        path = self._path(graph_key(request.settings, request.details, alone))
        return self.graphs.ready(path) and all(function.ready(alone) for function in self._of_roles(request).values())

    def gains(self, request: Request, alone: bool) -> bool:
        """Batches: as measured with 64 sentences."""
        return alone or registry.search_of(request.settings).batches

    def prepare(self, request: Request, alone: bool) -> None:
        """Export missing graphs, which takes seconds. Raises ConfigError where that fails."""
        alone = alone or self.int8
        if registry.search_of(request.settings).blocks:
            drafts = self._drafts_of(request)
            for reader in drafts.readers:
                reader.prepare(alone)
            drafts.drafter.prepare(drafts.request, alone)
        else:
            self._with_graph(request, alone)
            for function in self._of_roles(request).values():
                function.prepare(alone)

    def compute(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        """Raises ConfigError for sentences that are longer than the graph can compute, and where an export fails."""
        if self.int8 and len(sources) > 1:
            return search_rows(lambda rows: self.compute(rows, request), sources, 1, request.ranked)
        return self._compute(sources, request, alone=len(sources) == 1)

    def _compute(self, sources: Sequence[Sequence[int]], request: Request, alone: bool) -> Hypotheses:
        """Translations by the graph of single sentences (`alone`), or of batches, of one sentence too."""
        if registry.search_of(request.settings).blocks:
            return self._verified(sources, self._drafts_of(request), alone)
        search, session = self._with_graph(request, alone)
        ids = np.array([[*sources[0], EOS]], dtype=np.int64) if alone else pad(sources, eos=True).numpy()
        outputs = run(session, {"source": ids}, f"search {search.declared.name}")
        if session.get_outputs()[0].name != search.outputs[0] and outputs[0].ndim == 3:
            # The graph of single sentences returns logits; `onnx_export.leave_maximum` has renamed the output.
            outputs[0] = outputs[0].argmax(-1)
        return search.hypotheses(torch.from_numpy(ids), list(map(torch.from_numpy, outputs)))

    def _verified(self, sources: Sequence[Sequence[int]], drafts: _Drafts, alone: bool) -> Hypotheses:
        """Translations by drafts that are checked, all from the graphs of single sentences (`alone`), or of batches."""
        read_source, read_block = (functools.partial(reader.results, alone) for reader in drafts.readers)
        drafted = drafts.search.drafts(sources, lambda rows: drafts.drafter._compute(rows, drafts.request, alone))
        decoder = functools.partial(ExportedDecoder, read_source, read_block)
        return drafts.search.verify(pad(sources, eos=True), drafted, decoder)

    def _drafts_of(self, request: Request) -> _Drafts:
        drafts = self._drafts.get(request.key)
        if drafts is not None:
            return drafts
        search = self.opened(request)
        assert isinstance(search, DraftSearch), "the declaration says that it checks drafts"
        drafter = search.drafting_networks[MODEL]
        readers = tuple(filter(None, (self._function(search.model, reference) for reference in READERS)))
        with self._lock:
            if drafter not in self._drafters:
                models = {drafter.family: drafter}
                self._drafters[drafter] = ExportedGraphs(models, self.threads, self.int8, self.graphs.folder)
            drafting = Request(search.drafting.settings, search.drafting_networks)
            drafts = self._drafts[request.key] = _Drafts(search, readers, self._drafters[drafter], drafting)
        return drafts

    def _function(self, network: nn.Module, reference: str) -> ExportedFunction | None:
        """The graph of a function of a network; None where that is no function of fixed operators."""
        # The key is the network itself, not its `id`, which a later network may get.
        key = network, reference
        with self._lock:
            if key not in self._functions:
                has_program = registry.import_object(reference)(network) is not None
                self._functions[key] = ExportedFunction(self.graphs, network, reference) if has_program else None
            return self._functions[key]

    def _of_roles(self, request: Request) -> dict[str, ExportedFunction]:
        """By role, the functions of networks that a search calls (`Role.program`), which graphs compute."""
        functions = {
            role: self._function(request.networks[role], declared.program)
            for role, declared in needs(request.settings).items()
            if declared.program is not None and role in request.networks
        }
        return {role: function for role, function in functions.items() if function is not None}

    def _with_graph(self, request: Request, alone: bool) -> tuple[SearchModule, Any]:
        """The search of a request, whose functions read the outputs of its graph, and the session of the graph."""
        opened = self._searches_with_graphs.get((request.key, alone))
        if opened is not None:
            return opened
        settings, scored = request.settings, request.details

        def make() -> bytes:
            from workflow_src.engines.onnx_export import export

            return export(own_networks(self.models, settings), settings, scored, alone, self.int8)

        path = self._path(graph_key(settings, scored, alone))
        with EXPORTS.exporting():
            session = self.graphs.session(path, f"search {registry.search_of(settings).name}", make)
            # A batch of which one sentence is left takes the graph of batches, which was exported for it.
            compiled = {
                role: Compiled(of.network, lambda *inputs, of=of: of.results(alone, *inputs)[0])
                for role, of in self._of_roles(request).items()
            }
            search = open_search({**request.networks, **compiled}, settings, scored)
            self._searches_with_graphs[request.key, alone] = search, session
        return search, session

    @functools.cached_property
    def _weights(self) -> str:
        return digest(self.models)

    def _path(self, key: str) -> Path:
        """The file of a search's graph."""
        return self.graphs.path(self._weights, key)


class ExportedFunction:
    """A graph of a function of a network that searches call (`decoding.ranking.Function`)."""

    def __init__(self, graphs: GraphFolder, network: nn.Module, reference: str):
        self.graphs = graphs
        self.network = network
        self.reference = reference

    def ready(self, alone: bool) -> bool:
        """Whether the graph of single sentences (`alone`), or that of batches, needs no export."""
        return self.graphs.ready(self._paths[alone])

    def prepare(self, alone: bool) -> Any:
        """The session of a graph, which is exported if it is missing."""

        def make() -> bytes:
            from workflow_src.engines.onnx_export import export_function

            return export_function(self.network, registry.import_object(self.reference), alone, self.graphs.int8)

        return self.graphs.session(self._paths[alone], self.name, make)

    def results(self, alone: bool, *inputs: Tensor) -> list[Tensor]:
        """All results, by the graph of single sentences (`alone`), or by that of batches."""
        session = self.prepare(alone)
        tensors = dict(zip(("source", *self.inputs), inputs, strict=True))
        feed = {value.name: tensors[value.name].numpy() for value in session.get_inputs()}
        return list(map(torch.from_numpy, run(session, feed, self.name)))

    @property
    def name(self) -> str:
        return self.reference.rpartition(":")[2]

    @functools.cached_property
    def inputs(self) -> list[str]:
        return list(registry.import_object(self.reference)(self.network).inputs)

    @functools.cached_property
    def _paths(self) -> dict[bool, Path]:
        weights = digest({"network": self.network})
        return {form: self.graphs.path(weights, json.dumps([self.reference, form])) for form in (True, False)}


class ExportedDecoder:
    """An `IncrementalDecoder` of source (B, S) whose blocks graphs compute; keys and values that it has read are kept
    here. The functions are those of `decoding.drafts.reading_source` and `reading_block`."""

    def __init__(
        self,
        read_source: Callable[[Tensor], Sequence[Tensor]],
        read_block: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Sequence[Tensor]],
        source: Tensor,
    ):
        self.read_block, self.source = read_block, source
        (self.source_keys_values,) = read_source(source)
        layers, both, sentences, heads, _, width = self.source_keys_values.shape
        # What rows have read: the first `positions` (N,) of keys and values (layers, 2, N, H, P, D/H).
        self.past = self.source_keys_values.new_zeros(layers, both, sentences, heads, 0, width)
        self.positions = torch.zeros(sentences, dtype=torch.int64)

    def step(self, tokens: Tensor) -> Tensor:
        return self.steps(tokens[:, None])[:, 0]

    def steps(self, tokens: Tensor) -> Tensor:
        past = self.past.contiguous()
        logits, written = self.read_block(self.source, self.source_keys_values, past, self.positions, tokens)
        places = self.positions[:, None] + torch.arange(tokens.size(1))
        self.past = torch.cat([past, torch.zeros_like(written)], 4)
        self.past.scatter_(4, places[None, None, :, None, :, None].expand_as(written), written)
        self.positions = self.positions + tokens.size(1)
        return logits

    def rewind(self, positions: Tensor) -> None:
        self.positions, self.past = positions, self.past.narrow(4, 0, int(positions.max()))

    def reorder(self, rows: Tensor) -> None:
        self.past, self.positions = self.past.index_select(2, rows), self.positions.index_select(0, rows)

    def keep(self, sentences: Tensor) -> None:
        self.reorder(rows_of(sentences, self.positions.size(0) // self.source.size(0)))
        self.source = self.source.index_select(0, sentences)
        self.source_keys_values = self.source_keys_values.index_select(2, sentences)


def open_networks(config: SessionConfig) -> ExportedGraphs:
    return ExportedGraphs(config.networks, config.threads, config.mode == FAST_INT8)
