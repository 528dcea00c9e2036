"""Exported graphs on disk, for later processes, and the sessions of ONNX Runtime that compute them.

An export takes seconds, so graphs are kept in CONTINUUM_CACHE, or continuum/ in XDG_CACHE_HOME (else ~/.cache). A
graph's name is the digest of everything that it depends on. Graphs that were not used for longest are deleted where all
together are larger than `MOST_BYTES`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from workflow_src import registry
from workflow_src.engines.exports import EXPORTS
from workflow_src.engines.session import KEPT_SEARCHES
from workflow_src.errors import ConfigError
from workflow_src.records.atomic import atomic
from workflow_src.records.provenance import installed_version
from workflow_src.runtime import forks
from workflow_src.runtime.bounded import Bounded

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


class GraphFolder:
    """The graphs of a folder, and the sessions of the last used ones, each of which has a copy of the weights.

    `int8`: large products are computed in 8 bits.
    """

    def __init__(self, folder: Path, threads: int, int8: bool):
        self.folder = folder
        self.threads = threads
        self.int8 = int8
        self._sessions: Bounded[Path, Any] = Bounded(4 * KEPT_SEARCHES)

    def forget_sessions(self) -> None:
        """Open graphs once more in a forked child: sessions wait for their threads also to be freed."""
        forks.keep(dict(self._sessions))
        self._sessions.clear()

    def path(self, weights: str, key: str) -> Path:
        """The file of a graph, named by what it depends on: weights, code and libraries (`digest`), and settings."""
        dependencies = [weights, key, self.int8]
        return self.folder / f"{hashlib.sha256(json.dumps(dependencies).encode()).hexdigest()[:32]}.onnx"

    def ready(self, path: Path) -> bool:
        """Whether a graph needs no export."""
        return path in self._sessions or path.is_file()

    def session(self, path: Path, title: str, make: Callable[[], bytes]) -> Any:
        """A session of the graph in a file, which `make` exports where the file is missing or damaged.

        Raises ConfigError where the export fails, or where the library cannot read what it exported.
        """
        session = self._sessions.get(path)
        if session is None:
            with EXPORTS.exporting():
                session = self._sessions.get(path)
                if session is None:
                    session = self._sessions[path] = self._opened(path, title, make)
        return session

    def _opened(self, path: Path, title: str, make: Callable[[], bytes]) -> Any:
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


def in_short(failure: Exception) -> str:
    """The beginning of an error's message, in one line."""
    return " ".join(str(failure).split())[:200]


def run(session: Any, feed: Mapping[str, np.ndarray], title: str) -> list[np.ndarray]:
    """The outputs of a graph. Raises ConfigError where they cannot be computed: sentences may be too long."""
    try:
        return session.run(None, feed)
    except Exception as failure:
        if not type(failure).__module__.startswith("onnxruntime"):
            raise
        length = feed["source"].shape[1]
        problem = f"ONNX Runtime cannot compute {title} for a sentence of {length} subwords ({in_short(failure)})"
        raise ConfigError("engine", problem=problem, hint="use engine eager") from None


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
    for path in registry.files_of(package, "*.py"):
        name = path.relative_to(package).as_posix()
        if name.startswith(CODE):
            total.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def digest(models: Mapping[str, nn.Module]) -> str:
    """SHA-256 of networks (their settings and weights), of our code and plug-ins, and of the libraries' versions."""
    total = hashlib.sha256(code_digest(registry.PACKAGE).encode())
    total.update(json.dumps([loaded.record() for loaded in registry.plugins()], sort_keys=True).encode())
    for name in LIBRARIES:
        total.update(f"{name} {installed_version(name) or 'none'}\n".encode())
    for family, model in models.items():
        total.update(f"{family} {model.config!r}\n".encode())
        for name, tensor in model.state_dict().items():
            array = tensor.detach().cpu().contiguous()
            total.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
            total.update(array.view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
