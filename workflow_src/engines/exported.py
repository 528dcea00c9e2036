"""Searches with a program, of any family, in ONNX Runtime: graphs are exported on first use, and kept on disk.

An export takes seconds, so graphs are cached on disk for later processes: in CONTINUUM_CACHE, or continuum/ in
XDG_CACHE_HOME (else ~/.cache). A graph's name is the digest of everything that it depends on. Graphs that were not used
for longest are deleted where all together are larger than `MOST_BYTES`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.batches import search_rows
from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.ranking import Compiled
from workflow_src.decoding.search import SearchModule, graph_key, open_search, own_networks
from workflow_src.engines.choose import FAST_INT8
from workflow_src.engines.exported_blocks import ExportedDecoder
from workflow_src.engines.exports import EXPORTS
from workflow_src.engines.session import KEPT_SEARCHES, Request, Session, System
from workflow_src.errors import ConfigError
from workflow_src.records.atomic import atomic
from workflow_src.runtime import forks
from workflow_src.runtime.bounded import Bounded
from workflow_src.types import EOS, Hypotheses

log = logging.getLogger("continuum")
# Fusions that are slower on CPUs than the operators that they replace.
DISABLED = ["SkipLayerNormFusion"]
LIBRARIES = ("torch", "onnx", "onnxscript", "onnxruntime")
MOST_BYTES = 4 << 30
# Files of the package that decide what a graph computes.
CODE = ("nn/", "losses/", "decoding/", "families/", "searches/", "engines/onnx_", "types.py")


def cache_folder() -> Path:
    """The folder of cached graphs."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "continuum"
    return Path(os.path.expanduser(os.environ.get("CONTINUUM_CACHE") or default)) / "graphs"


# What graphs of a search that checks drafts compute of its model.
READERS = ("workflow_src.decoding.drafts:reading_source", "workflow_src.decoding.drafts:reading_block")


@dataclasses.dataclass(frozen=True)
class _Graph:
    """An opened search: its module, which reads outputs, and the session of its graph."""

    search: SearchModule
    session: Any


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
        self.models, self.threads, self.int8 = dict(models), threads, int8
        self.folder = folder or cache_folder()
        # Every session of the library has a copy of the weights.
        self._sessions: Bounded[str, Any] = Bounded(KEPT_SEARCHES)
        # By request: computing a key of the graph takes longer than a sentence.
        self._graphs: Bounded[tuple[Hashable, bool], _Graph] = Bounded(KEPT_SEARCHES)
        self._drafts: Bounded[Hashable, _Drafts] = Bounded(KEPT_SEARCHES)
        self._functions: Bounded[tuple[nn.Module, str], ExportedFunction | None] = Bounded(KEPT_SEARCHES)
        self._drafters: Bounded[tuple[nn.Module, ...], ExportedGraphs] = Bounded(KEPT_SEARCHES)
        # Held for moments: graphs are opened in the turn of an export, for which other threads must not hold a lock.
        self._lock = threading.Lock()
        forks.renew_in_children(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        if self.threads == 1:
            return
        caches = (self._sessions, self._graphs, self._functions, self._drafts)
        forks.keep([dict(cache) for cache in caches])
        for cache in caches:
            cache.clear()

    def ready(self, request: Request, alone: bool) -> bool:
        alone = alone or self.int8
        if registry.search_of(request.settings).blocks:
            drafts = self._drafts_of(request)
            return all(reader.ready(alone) for reader in drafts.readers) and drafts.drafter.ready(drafts.request, alone)
        key = graph_key(request.settings, request.details, alone)
        is_exported = key in self._sessions or self._path(key).is_file()
        return is_exported and all(function.ready(alone) for function in self._of_roles(request).values())

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
            self._graph(request, alone)
            for function in self._of_roles(request).values():
                function.prepare(alone)

    def compute(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        """Raises ConfigError for sentences that are longer than the graph can compute, and where an export fails."""
        if self.int8 and len(sources) > 1:
            return search_rows(lambda rows: self.compute(rows, request), sources, 1, request.ranked)
        alone = len(sources) == 1
        if registry.search_of(request.settings).blocks:
            return self._verified(sources, self._drafts_of(request), alone)
        graph = self._graph(request, alone)
        ids = np.array([[*sources[0], EOS]], dtype=np.int64) if alone else pad(sources, eos=True).numpy()
        outputs = _run(graph.session, {"source": ids}, lambda: f"search {registry.search_of(request.settings).name}")
        if graph.search.outputs[0] != "logits" and outputs[0].ndim == 3:
            # Of a single sentence; see `onnx_export.leave_maximum`.
            outputs[0] = outputs[0].argmax(-1)
        return graph.search.hypotheses(torch.from_numpy(ids), list(map(torch.from_numpy, outputs)))

    def _verified(self, sources: Sequence[Sequence[int]], drafts: _Drafts, alone: bool) -> Hypotheses:
        """Translations by drafts that are checked, all from the graphs of single sentences (`alone`), or of batches."""
        read_source, read_block = (functools.partial(reader.results, alone) for reader in drafts.readers)
        drafted = drafts.search.drafts(sources, lambda rows: drafts.drafter.compute(rows, drafts.request))
        decoder = functools.partial(ExportedDecoder, read_source, read_block)
        return drafts.search.verify(pad(sources, eos=True), drafted, decoder)

    def _drafts_of(self, request: Request) -> _Drafts:
        drafts = self._drafts.get(request.key)
        if drafts is not None:
            return drafts
        search = self.opened(request)
        assert isinstance(search, DraftSearch), "the declaration says that it checks drafts"
        networks = tuple(search.drafting_networks.values())
        readers = tuple(filter(None, (self._function(search.model, reference) for reference in READERS)))
        with self._lock:
            if networks not in self._drafters:
                models = {network.family: network for network in networks}
                self._drafters[networks] = ExportedGraphs(models, self.threads, self.int8, self.folder)
            drafting = Request(search.drafting.settings, search.drafting_networks)
            drafts = self._drafts[request.key] = _Drafts(search, readers, self._drafters[networks], drafting)
        return drafts

    def _function(self, network: nn.Module, reference: str) -> ExportedFunction | None:
        """The graph of a function of a network; None where that is no function of fixed operators."""
        # The key is the network itself, not its `id`, which a later network may get.
        key = network, reference
        with self._lock:
            if key not in self._functions:
                has_program = registry.import_object(reference)(network) is not None
                self._functions[key] = ExportedFunction(self, network, reference) if has_program else None
            return self._functions[key]

    def _of_roles(self, request: Request) -> dict[str, ExportedFunction]:
        """By role, the functions of networks that a search calls (`Role.program`), which graphs compute."""
        functions = {
            role: self._function(request.networks[role], declared.program)
            for role, declared in registry.needs(request.settings).items()
            if declared.program is not None and role in request.networks
        }
        return {role: function for role, function in functions.items() if function is not None}

    def _graph(self, request: Request, alone: bool) -> _Graph:
        graph = self._graphs.get((request.key, alone))
        if graph is not None:
            return graph
        settings, scored = request.settings, request.details
        name, key = registry.search_of(settings).name, graph_key(settings, scored, alone)

        def make() -> bytes:
            from workflow_src.engines.onnx_export import export

            return export(own_networks(self.models, settings), settings, scored, alone, self.int8)

        with EXPORTS.exporting():
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = self.session(self._path(key), f"search {name}", make)
            # The graph replaces its module; its functions read the outputs.
            compiled = {role: Compiled(of.network, of) for role, of in self._of_roles(request).items()}
            search = open_search({**request.networks, **compiled}, settings, scored)
            graph = self._graphs[request.key, alone] = _Graph(search, session)
        return graph

    def session(self, path: Path, title: str, make: Callable[[], bytes]) -> Any:
        """A session of the graph in a file, which `make` exports where the file is missing or damaged; in the turn of
        an export.

        Raises ConfigError where the export fails, or where the library cannot read what it exported.
        """
        if path.is_file():
            try:
                content = path.read_bytes()
                with contextlib.suppress(OSError):
                    os.utime(path)
                return self._load(content)
            except Exception as failure:
                log.warning("%s cannot be read (%s); exporting it again", path, in_short(failure))
        log.warning("exporting %s for ONNX Runtime into %s; this takes some seconds, once", title, path.parent)
        try:
            content = make()
            session = self._load(content)
        except Exception as failure:
            problem = f"{title} cannot be exported for ONNX Runtime ({type(failure).__name__}: {in_short(failure)})"
            raise ConfigError("engine", problem=problem, hint="use engine eager") from failure
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path, "wb") as file:
                file.write(content)
            delete_old(path.parent, MOST_BYTES)
        except (OSError, ValueError) as failure:
            log.warning("warning: the exported graph cannot be kept for the next time: %s", failure)
        return session

    def _load(self, content: bytes) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Errors come as exceptions; the log has nothing to add.
        options.log_severity_level = 4
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(content, options, providers=providers, disabled_optimizers=DISABLED)

    @functools.cached_property
    def _weights(self) -> str:
        return digest(self.models)

    def _path(self, key: str) -> Path:
        """The file of a search's graph."""
        return self.path(self._weights, key)

    def path(self, weights: str, key: str) -> Path:
        """The file of a graph, named by what it depends on: weights, code and libraries (`digest`), and settings."""
        dependencies = [weights, key, self.int8]
        return self.folder / f"{hashlib.sha256(json.dumps(dependencies).encode()).hexdigest()[:32]}.onnx"


def in_short(failure: Exception) -> str:
    """The beginning of an error's message, in one line."""
    return " ".join(str(failure).split())[:200]


def _run(session: Any, feed: Mapping[str, np.ndarray], title: Callable[[], str]) -> list[np.ndarray]:
    """The outputs of a graph. Raises ConfigError where they cannot be computed: sentences may be too long."""
    try:
        return session.run(None, feed)
    except Exception as failure:
        if not type(failure).__module__.startswith("onnxruntime"):
            raise
        length = feed["source"].shape[1]
        problem = f"ONNX Runtime cannot compute {title()} for a sentence of {length} subwords ({in_short(failure)})"
        raise ConfigError("engine", problem=problem, hint="use engine eager") from None


class ExportedFunction:
    """A graph of a function of a network that searches call (`decoding.ranking.Function`).

    `graphs` has the folder of graphs, the number of threads, and the precision.
    """

    def __init__(self, graphs: ExportedGraphs, network: nn.Module, reference: str):
        self.graphs, self.network, self.reference = graphs, network, reference
        self._sessions: dict[bool, tuple[Any, list[str]]] = {}

    def ready(self, alone: bool) -> bool:
        """Whether the graph of single sentences (`alone`), or that of batches, needs no export."""
        return alone in self._sessions or self._path(alone).is_file()

    def prepare(self, alone: bool) -> tuple[Any, list[str]]:
        """The session of a graph, which is exported if it is missing, and the names of its inputs."""
        if alone not in self._sessions:
            with EXPORTS.exporting():
                if alone not in self._sessions:
                    self._sessions[alone] = self._opened(alone)
        return self._sessions[alone]

    def __call__(self, source: Tensor, *further_inputs: Tensor) -> Tensor:
        """The first result; for one source by the graph of single sentences."""
        return self.results(source.size(0) == 1, source, *further_inputs)[0]

    def results(self, alone: bool, *inputs: Tensor) -> list[Tensor]:
        """All results, by the graph of single sentences (`alone`), or by that of batches."""
        session, names = self.prepare(alone)
        tensors = dict(zip(("source", *self.inputs), inputs, strict=True))
        feed = {name: tensors[name].numpy() for name in names}
        return list(map(torch.from_numpy, _run(session, feed, lambda: self.name)))

    @property
    def name(self) -> str:
        return self.reference.rpartition(":")[2]

    @functools.cached_property
    def inputs(self) -> list[str]:
        return list(registry.import_object(self.reference)(self.network).inputs)

    def _opened(self, alone: bool) -> tuple[Any, list[str]]:
        def make() -> bytes:
            from workflow_src.engines.onnx_export import export_function

            return export_function(self.network, registry.import_object(self.reference), alone, self.graphs.int8)

        session = self.graphs.session(self._path(alone), self.name, make)
        return session, [value.name for value in session.get_inputs()]

    @functools.cached_property
    def _weights(self) -> str:
        return digest({"network": self.network})

    def _path(self, alone: bool) -> Path:
        return self.graphs.path(self._weights, json.dumps([self.reference, alone]))


def delete_old(folder: Path, most: int) -> None:
    """Delete graphs of a folder, the longest unused first, until all together have at most `most` bytes.

    The last used stays.
    """
    files = []
    for path in folder.glob("*.onnx"):
        # Another process may delete it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            files.append((status.st_mtime_ns, status.st_size, path))
    total = 0
    for number, (_, size, path) in enumerate(sorted(files, reverse=True)):
        total += size
        if number and total > most:
            path.unlink(missing_ok=True)


@functools.cache
def code_digest(package: Path) -> str:
    """SHA-256 of the files of the package that graphs depend on (`CODE`), by name and content."""
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name.startswith(CODE):
            total.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def digest(models: Mapping[str, nn.Module]) -> str:
    """SHA-256 of networks (their settings and weights), of our code and plug-ins, and of the libraries' versions."""
    total = hashlib.sha256(code_digest(registry.PACKAGE).encode())
    total.update(json.dumps([loaded.record() for loaded in registry.plugins()], sort_keys=True).encode())
    for name in LIBRARIES:
        total.update(f"{name} {_version(name)}\n".encode())
    for family, model in models.items():
        total.update(f"{family} {model.config!r}\n".encode())
        for name, tensor in model.state_dict().items():
            array = tensor.detach().cpu().contiguous()
            total.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
            total.update(array.view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def open_networks(system: System) -> ExportedGraphs:
    return ExportedGraphs(system.networks, system.threads, system.mode == FAST_INT8)
