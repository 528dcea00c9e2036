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
import importlib.util
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.ranking import Compiled
from workflow_src.decoding.search import SearchModule, graph_key, open_search, own_networks
from workflow_src.engines.exported_blocks import ExportedDecoder
from workflow_src.errors import ConfigError
from workflow_src.records.atomic import atomic
from workflow_src.runtime import forks
from workflow_src.runtime.bounded import Bounded
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, Hypotheses, Networks

log = logging.getLogger("continuum")
# Fusions that are slower on CPUs than the operators that they replace.
DISABLED = ["SkipLayerNormFusion"]
EXPORTER = "onnxscript"
LIBRARIES = ("torch", "onnx", EXPORTER, "onnxruntime")
# Sessions of graphs that are open at once.
SESSIONS = 16
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
class _Checking:
    """A search that checks drafts: its networks, its module, the functions that read for it, the drafter's graphs."""

    networks: Networks | None
    search: DraftSearch
    readers: tuple[ExportedFunction, ExportedFunction]
    drafter: ExportedGraphs


@dataclasses.dataclass(frozen=True)
class _Opened:
    """An opened search: its networks, its module, which reads outputs, and the session of its graph."""

    networks: Networks | None
    search: SearchModule
    session: Any


class ExportedGraphs:
    """The engine for the searches of a system that have programs. `models` are its networks by family.

    float32: the tokens of eager inference, up to rounding. `int8`: large products in 8 bits; sentences are then
    computed one at a time, and batches change nothing.
    """

    # PyTorch's exporter serves one thread of a process at a time, whichever system it exports.
    exporting = threading.RLock()

    def __init__(
        self, models: Mapping[str, nn.Module], threads: int = 0, int8: bool = False, folder: Path | None = None
    ):
        self.models, self.threads, self.int8 = dict(models), threads, int8
        self.folder = folder or cache_folder()
        self._weights: str | None = None
        # Every session has a copy of the weights.
        self._sessions: Bounded[str, Any] = Bounded(SESSIONS)
        # By settings: computing a key of the graph takes longer than a sentence.
        self._opened: Bounded[tuple[SearchSettings, bool, bool], _Opened] = Bounded(SESSIONS)
        self._functions: Bounded[tuple[nn.Module, str], ExportedFunction | None] = Bounded(SESSIONS)
        self._readers: Bounded[nn.Module, tuple[ExportedFunction, ExportedFunction]] = Bounded(SESSIONS)
        self._checking: Bounded[tuple[SearchSettings, bool], _Checking] = Bounded(SESSIONS)
        self._drafters: Bounded[tuple[nn.Module, ...], ExportedGraphs] = Bounded(SESSIONS)
        # Held while a graph is exported or opened; sessions themselves serve several threads.
        self.lock = threading.RLock()
        forks.renew_in_children(self)

    def after_fork(self) -> None:
        self.lock, ExportedGraphs.exporting = threading.RLock(), threading.RLock()
        if self.threads == 1:
            return
        forks.keep([dict(self._sessions), dict(self._opened), dict(self._functions), dict(self._checking)])
        for cache in (self._sessions, self._opened, self._functions, self._readers, self._checking):
            cache.clear()

    def ready(
        self,
        settings: SearchSettings,
        scored: bool,
        networks: Networks | None = None,
        alone: bool = True,
    ) -> bool:
        """Whether the graphs of single sentences (`alone`), or those of batches, need no export."""
        alone = alone or self.int8
        if registry.search_of(settings).blocks:
            checking = self._checked(settings, scored, networks)
            drafting = checking.search.drafting.settings
            readers_are_ready = all(reader.ready(alone) for reader in checking.readers)
            return readers_are_ready and checking.drafter.ready(drafting, False, alone=alone)
        key = graph_key(settings, scored, alone)
        functions = self._functions_of_roles(settings, networks)
        return (key in self._sessions or self._path(key).is_file()) and all(
            function.ready(alone) for function in functions
        )

    def gains_in_batches(self, settings: SearchSettings) -> bool:
        """Whether graphs are faster than our own code in batches of 64, as measured."""
        return registry.search_of(settings).batches

    def _functions_of_roles(self, settings: SearchSettings, networks: Networks | None) -> list[ExportedFunction]:
        compiled = self._compiled(settings, networks or {}).values()
        functions = [network.function for network in compiled if isinstance(network, Compiled)]
        return [function for function in functions if isinstance(function, ExportedFunction)]

    def prepare(self, settings: SearchSettings, scored: bool, networks: Networks | None, alone: bool) -> bool:
        """Export missing graphs, which takes seconds; returns False, with a warning in the log, where that fails."""
        if importlib.util.find_spec(EXPORTER) is None:
            return False
        alone = alone or self.int8
        try:
            if registry.search_of(settings).blocks:
                checking = self._checked(settings, scored, networks)
                for reader in checking.readers:
                    reader.prepare(alone)
                return checking.drafter.prepare(checking.search.drafting.settings, False, None, alone)
            self._open(settings, scored, alone, networks)
            for function in self._functions_of_roles(settings, networks):
                function.prepare(alone)
        except Exception as failure:
            name = registry.search_of(settings).name
            log.warning("search %s stays eager: no graph of it (%s)", name, " ".join(str(failure).split())[:200])
            return False
        return True

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        scored: bool,
        networks: Networks | None = None,
    ) -> Hypotheses:
        """Translate sources of subword ids (not empty, without end symbols), as one batch.

        `networks` are those of the search by role, such as a language model beside the graph. Raises ConfigError for
        sentences that are longer than the graph can compute.
        """
        if self.int8 and len(sources) > 1:
            results = [self.translate([source], settings, scored, networks) for source in sources]
            fields = ("tokens", "scores", "steps", "candidates")
            names = [name for name in fields if getattr(results[0], name) is not None]
            columns: dict[str, Any] = {
                name: [row for result in results for row in getattr(result, name)] for name in names
            }
            ranked = [result.ranked for result in results if result.ranked is not None]
            if len(ranked) == len(results):
                columns["ranked"] = lambda: [row for result in ranked for row in result()]
            return Hypotheses(**columns)
        alone = len(sources) == 1
        if registry.search_of(settings).blocks:
            return self._verified(sources, self._checked(settings, scored, networks), alone)
        opened = self._open(settings, scored, alone, networks)
        ids = np.array([[*sources[0], EOS]], dtype=np.int64) if alone else pad(sources, eos=True).numpy()
        outputs = _run(opened.session, {"source": ids}, lambda: f"search {registry.search_of(settings).name}")
        if opened.search.outputs[0] != "logits" and outputs[0].ndim == 3:
            # Of a single sentence; see `onnx_export.leave_maximum`.
            outputs[0] = outputs[0].argmax(-1)
        with torch.no_grad():
            return opened.search.hypotheses(torch.from_numpy(ids), list(map(torch.from_numpy, outputs)))

    def _verified(self, sources: Sequence[Sequence[int]], checking: _Checking, alone: bool) -> Hypotheses:
        """Translations by drafts that are checked, all from the graphs of single sentences (`alone`), or of batches."""
        drafting = checking.search.drafting.settings
        read_source, read_block = (functools.partial(reader.results, alone) for reader in checking.readers)
        drafts = checking.search.drafts(sources, lambda rows: checking.drafter.translate(rows, drafting, False))
        decoder = functools.partial(ExportedDecoder, read_source, read_block)
        return checking.search.verify(pad(sources, eos=True), drafts, decoder)

    def _checked(self, settings: SearchSettings, scored: bool, networks: Networks | None) -> _Checking:
        checking = self._checking.get((settings, scored))
        if checking is not None and (checking.networks is networks or checking.networks == networks):
            return checking
        search = open_search(networks or own_networks(self.models, settings), settings, scored)
        assert isinstance(search, DraftSearch), "the declaration says that it checks drafts"
        drafting = tuple(search.drafting_networks.values())
        with self.lock:
            if search.model not in self._readers:
                read_source, read_block = (ExportedFunction(self, search.model, reference) for reference in READERS)
                self._readers[search.model] = read_source, read_block
            if drafting not in self._drafters:
                models = {network.family: network for network in drafting}
                self._drafters[drafting] = ExportedGraphs(models, self.threads, self.int8, self.folder)
            checking = _Checking(networks, search, self._readers[search.model], self._drafters[drafting])
            self._checking[settings, scored] = checking
        return checking

    def _compiled(self, settings: SearchSettings, networks: Networks) -> dict[str, Any]:
        """Networks by role; where a search calls one function of a network (`Role.program`), a graph computes it."""
        roles = registry.needs(settings)
        compiled: dict[str, nn.Module | Compiled] = dict(networks)
        for role, network in networks.items():
            reference = roles[role].program if role in roles else None
            if reference is None:
                continue
            # The key is the network itself, not its `id`, which a later network may get.
            key = (network, reference)
            with self.lock:
                if key not in self._functions:
                    has_program = registry.import_object(reference)(network) is not None
                    self._functions[key] = ExportedFunction(self, network, reference) if has_program else None
                function = self._functions[key]
            if function is not None:
                compiled[role] = Compiled(network, function)
        return compiled

    def _open(self, settings: SearchSettings, scored: bool, alone: bool, networks: Networks | None) -> _Opened:
        opened = self._opened.get((settings, scored, alone))
        if opened is not None and (opened.networks is networks or opened.networks == networks):
            return opened
        with self.lock:
            return self._opened_now(settings, scored, alone, networks)

    def _opened_now(self, settings: SearchSettings, scored: bool, alone: bool, networks: Networks | None) -> _Opened:
        name, key = registry.search_of(settings).name, graph_key(settings, scored, alone)

        def make() -> bytes:
            from workflow_src.engines.onnx_export import export

            return export(own_networks(self.models, settings), settings, scored, alone, self.int8)

        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = self.session(self._path(key), f"search {name}", make)
        # The graph replaces its module; its functions read the outputs.
        role_networks = self._compiled(settings, networks) if networks else own_networks(self.models, settings)
        opened = _Opened(networks, open_search(role_networks, settings, scored), session)
        self._opened[settings, scored, alone] = opened
        return opened

    def session(self, path: Path, title: str, make: Callable[[], bytes]) -> Any:
        """A session of the graph in a file, which `make` exports where the file is missing or damaged."""
        with self.exporting:
            return self._session_now(path, title, make)

    def _session_now(self, path: Path, title: str, make: Callable[[], bytes]) -> Any:
        if path.is_file():
            try:
                content = path.read_bytes()
                with contextlib.suppress(OSError):
                    os.utime(path)
                return self._load(content)
            except Exception as failure:
                log.warning("%s cannot be read (%s); exporting it again", path, " ".join(str(failure).split())[:200])
        if importlib.util.find_spec(EXPORTER) is None:
            problem = f'{title} cannot be exported for ONNX Runtime without {EXPORTER} (the extra "fast")'
            raise ConfigError("engine", problem=problem, hint="use engine eager")
        log.warning("exporting %s for ONNX Runtime into %s; this takes some seconds, once", title, path.parent)
        content = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path, "wb") as file:
                file.write(content)
            delete_old(path.parent, MOST_BYTES)
        except (OSError, ValueError) as failure:
            log.warning("warning: the exported graph cannot be kept for the next time: %s", failure)
        return self._load(content)

    def _load(self, content: bytes) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Errors come as exceptions; the log has nothing to add.
        options.log_severity_level = 4
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(content, options, providers=providers, disabled_optimizers=DISABLED)

    def _path(self, key: str) -> Path:
        """The file of a search's graph."""
        if self._weights is None:
            self._weights = digest(self.models)
        return self.path(self._weights, key)

    def path(self, weights: str, key: str) -> Path:
        """The file of a graph, named by what it depends on: weights, code and libraries (`digest`), and settings."""
        dependencies = [weights, key, self.int8]
        return self.folder / f"{hashlib.sha256(json.dumps(dependencies).encode()).hexdigest()[:32]}.onnx"


def _run(session: Any, feed: Mapping[str, np.ndarray], title: Callable[[], str]) -> list[np.ndarray]:
    """The outputs of a graph. Raises ConfigError where they cannot be computed: sentences may be too long."""
    try:
        return session.run(None, feed)
    except Exception as failure:
        if not type(failure).__module__.startswith("onnxruntime"):
            raise
        length, reason = feed["source"].shape[1], " ".join(str(failure).split())[:200]
        problem = f"ONNX Runtime cannot compute {title()} for a sentence of {length} subwords ({reason})"
        raise ConfigError("engine", problem=problem, hint="use engine eager") from None


class ExportedFunction:
    """A graph of a function of a network that searches call (`decoding.ranking.Function`).

    `graphs` has the folder of graphs, the number of threads, and the precision.
    """

    def __init__(self, graphs: ExportedGraphs, network: nn.Module, reference: str):
        self.graphs, self.network, self.reference = graphs, network, reference
        self._weights: str | None = None
        self._sessions: dict[bool, tuple[Any, list[str]]] = {}

    def ready(self, alone: bool) -> bool:
        """Whether the graph of single sentences (`alone`), or that of batches, needs no export."""
        return alone in self._sessions or self._path(alone).is_file()

    def prepare(self, alone: bool) -> tuple[Any, list[str]]:
        """The session of a graph, which is exported if it is missing, and the names of its inputs."""
        if alone not in self._sessions:
            with self.graphs.lock:
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

    def _path(self, alone: bool) -> Path:
        if self._weights is None:
            self._weights = digest({"network": self.network})
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
