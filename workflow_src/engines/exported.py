"""Searches with a program, of any family, in ONNX Runtime: graphs are exported when first asked for, and kept on disk.

An export takes seconds, so graphs lie in a folder for all later processes: CONTINUUM_CACHE, or continuum/ in
XDG_CACHE_HOME (else ~/.cache). A graph's name is the digest of everything that it depends on.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.passes import make_pass
from workflow_src.records.atomic import atomic
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, Hypotheses

log = logging.getLogger("continuum")
# Fusions that are slower on CPUs than what they replace.
DISABLED = ["SkipLayerNormFusion"]
EXPORTER = "onnxscript"
LIBRARIES = ("torch", "onnx", EXPORTER, "onnxruntime")


def cache_folder() -> Path:
    """Where graphs are kept."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "continuum"
    return Path(os.environ.get("CONTINUUM_CACHE") or default) / "graphs"


class ExportedGraphs:
    """The searches of a system that have programs. `models` are its networks by family, the system's own first.

    float32: the tokens of eager inference, up to rounding. `int8`: large products in 8 bits; sentences then go one at a
    time, and batches change nothing.
    """

    gives_scores = True

    def __init__(
        self, models: Mapping[str, nn.Module], threads: int = 0, int8: bool = False, folder: Path | None = None
    ):
        self.models, self.threads, self.int8 = dict(models), threads, int8
        self.folder = folder or cache_folder()
        self._weights: str | None = None
        self._sessions: dict[str, Any] = {}

    def ready(self, settings: SearchSettings, scored: bool) -> bool:
        """Whether the graph of a single sentence needs no export."""
        key = (settings, scored, True)
        return self._key(*key) in self._sessions or self._path(*key).is_file()

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        scored: bool,
        networks: Mapping[str, nn.Module] | None = None,
    ) -> Hypotheses:
        """Translate sources of subword ids (not empty, without end symbols), as one batch.

        `networks` by role are what a search works with beside the graph, such as a language model. Raises ValueError
        for sentences that are longer than the graph can compute.
        """
        if self.int8 and len(sources) > 1:
            parts = [self.translate([source], settings, scored, networks) for source in sources]
            names = [
                name for name in ("tokens", "scores", "steps", "candidates") if getattr(parts[0], name) is not None
            ]
            return Hypotheses(**{name: [row for part in parts for row in getattr(part, name)] for name in names})
        alone = len(sources) == 1
        session = self._session(settings, scored, alone)
        # Its module is not computed with: what counts is how rows are finished.
        program = make_pass(networks or self._networks(settings), settings, scored)
        ids = np.array([[*sources[0], EOS]], dtype=np.int64) if alone else pad(sources, eos=True).numpy()
        try:
            outputs = session.run(None, {"source": ids})
        except Exception as failure:
            if not type(failure).__module__.startswith("onnxruntime"):
                raise
            name, reason = registry.search_of(settings).name, " ".join(str(failure).split())[:200]
            raise ValueError(
                f"ONNX Runtime cannot compute search {name} for a sentence of {ids.shape[1]} subwords ({reason}); use "
                "engine eager."
            ) from None
        if program.read is not None:
            return program.read(ids, outputs)
        words, positions, *scores = outputs
        tokens = words.argmax(-1) if words.ndim == 3 else words
        rows = zip(tokens.tolist(), positions.tolist(), strict=True)
        found = [program.finish(row[:count]) for row, count in rows]
        return Hypotheses(found, scores[0].tolist() if scored else [0.0] * len(found), [program.steps] * len(found))

    def _networks(self, settings: SearchSettings) -> dict[str, nn.Module]:
        families = registry.families()
        own = [(model, families[family]) for family, model in self.models.items()]
        return registry.fill(registry.needs(settings), own, {})

    def _session(self, settings: SearchSettings, scored: bool, alone: bool) -> Any:
        key = self._key(settings, scored, alone)
        if key not in self._sessions:
            self._sessions[key] = self._opened(settings, scored, alone)
        return self._sessions[key]

    def _opened(self, settings: SearchSettings, scored: bool, alone: bool) -> Any:
        path = self._path(settings, scored, alone)
        if path.is_file():
            try:
                return self._load(path.read_bytes())
            except Exception as failure:
                log.warning("%s cannot be read (%s); exporting it again", path, " ".join(str(failure).split())[:200])
        name = registry.search_of(settings).name
        if importlib.util.find_spec(EXPORTER) is None:
            raise ValueError(
                f'search {name} cannot be exported for ONNX Runtime without {EXPORTER} (the extra "fast"); use engine '
                "eager."
            )
        from workflow_src.engines.onnx_export import export

        log.info("exporting search %s for ONNX Runtime into %s; this takes some seconds, once", name, path.parent)
        content = export(self._networks(settings), settings, scored, alone, self.int8)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path, "wb") as file:
                file.write(content)
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

    def _path(self, settings: SearchSettings, scored: bool, alone: bool) -> Path:
        """The file of a graph, named by what it depends on: weights, code, settings and libraries."""
        if self._weights is None:
            self._weights = digest(self.models)
        parts = [self._weights, self._key(settings, scored, alone), self.int8]
        return self.folder / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.onnx"

    @staticmethod
    def _key(settings: SearchSettings, scored: bool, alone: bool) -> str:
        """What tells the graphs of a system apart."""
        search = registry.search_of(settings)
        matters = search.graph(settings) if search.graph else settings.model_dump(mode="json")
        return json.dumps([search.name, matters, scored, alone], sort_keys=True)


def digest(models: Mapping[str, nn.Module]) -> str:
    """SHA-256 of networks (their settings and weights), of our code and plug-ins, and of the libraries' versions."""
    total = hashlib.sha256(registry.digest(registry.PACKAGE / "__init__.py").encode())
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
