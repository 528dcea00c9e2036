"""ONNX Runtime on CPUs: several times as fast as eager inference on a sentence. Needs the extra `fast`.

Every search that has a program is exported (`exported.py`), whatever its family. Latent inference has graphs written
by hand beside (`FastLatent`, `onnx_latent.py`): their sentences take as long (float32) or an eighth less time (int8),
but they are built from a model's weights in a fraction of a second, where an export takes several.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import platform
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from workflow_src import registry
from workflow_src.config.base import nearest
from workflow_src.data.batching import pad
from workflow_src.decoding.latent import without_ends
from workflow_src.engines.exported import ExportedGraphs
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, Hypotheses

log = logging.getLogger("continuum")

# What has graphs written by hand.
SEARCHES = ("prior-mean", "delta", "score")
HAND_WRITTEN = frozenset({"lvm", "score", "energy"})
ENGINES = ("auto", "eager", "fast", "fast-int8")
# Up to this many steps a graph has no loop, which costs a twentieth of a single sentence.
UNROLLED = 1
PACKAGES = ("onnx", "onnxruntime")


def missing_packages() -> list[str]:
    """Which of the packages that this module needs are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def choose_engine(engine: str, device: str, precision: str, serving: bool) -> str:
    """The engine for these settings: eager, fast or fast-int8; auto is fast on CPUs where it can serve, else eager.

    On GPUs, fast is `cuda_graphs.py`; auto does not take it, because every new length costs a capture first. `serving`
    says whether the system has a search that such an engine serves. Raises ValueError for an engine that is unknown or
    cannot serve.
    """
    if engine not in ENGINES:
        raise ValueError(f'unknown engine "{engine}"; allowed: {", ".join(ENGINES)}.{nearest(engine, ENGINES)}')
    if engine == "eager":
        return engine
    reason = None
    if not serving:
        reason = "serves searches that have a program, and this system has none"
    elif device != "cpu":
        if engine == "fast":
            return engine
        reason = f"runs on CPUs, and the device is {device}"
    elif precision != "float32":
        reason = f"reads float32 weights, and the precision is {precision}"
    elif missing := missing_packages():
        reason = f'needs {" and ".join(missing)} (the extra "fast")'
    if engine == "auto":
        return "eager" if reason else "fast"
    if reason:
        raise ValueError(f'engine "{engine}" {reason}; use engine eager.')
    if engine == "fast-int8" and not int8_is_safe():
        log.warning(
            "warning: this processor lacks VNNI instructions; its 8-bit products may overflow, so translations may be "
            "worse than those of others"
        )
    return engine


@functools.cache
def int8_is_safe() -> bool:
    """Whether this CPU adds 8-bit products without saturating: it has VNNI instructions.

    Older x86 processors add pairs of products in 16 bits, which overflow: results would depend on the machine.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        flags = open("/proc/cpuinfo").read()
    except OSError:
        return False
    return "avx512_vnni" in flags or "avx_vnni" in flags


class FastLatent:
    """Searches `SEARCHES` of a latent-variable model, and of its score network where one is given.

    float32: the tokens of eager inference, up to rounding. `int8`: the large products in 8 bits; inputs are then
    rounded by the range of a whole tensor, so sentences go one at a time, and batches change nothing.
    """

    gives_scores = True

    def __init__(self, lvm: nn.Module, score: nn.Module | None = None, threads: int | None = None, int8: bool = False):
        from workflow_src.engines.onnx_latent import Part

        self._lvm = Part(lvm.config, _arrays(lvm), _array(lvm.target_embedding.positions))
        self._score = Part(score.config, _arrays(score), _array(score.positions)) if score else None
        self.threads = threads or 0
        self.int8 = int8
        self._sessions: dict[tuple, object] = {}

    def search(
        self,
        sources: Sequence[Sequence[int]],
        search: str,
        steps: int = 0,
        step_size: float = 1.0,
        scored: bool = True,
        length_quantile: float | None = None,
        lengthening: float = 0.0,
    ) -> Hypotheses:
        """`latent.translate_batch` for sources of subword ids (not empty, without end symbols), as one batch.

        Raises ValueError for a search that this class or this system lacks.
        """
        if search not in SEARCHES:
            raise ValueError(f'unknown search "{search}"; allowed: {", ".join(SEARCHES)}.')
        if search == "score" and self._score is None:
            raise ValueError("search score needs a score network; this system has none.")
        if self.int8 and len(sources) > 1:
            return _joined(
                [
                    self.search([source], search, steps, step_size, scored, length_quantile, lengthening)
                    for source in sources
                ]
            )
        if search == "prior-mean":
            steps = 0
        if len(sources) == 1:
            # No detour over padding: it costs as much as a layer.
            ids = np.array([[*sources[0], EOS]], dtype=np.int64)
        else:
            ids = pad(sources, eos=True).numpy()
        padded = len(sources) > 1
        feed = {"source": ids}
        if steps > UNROLLED:
            feed["steps"] = np.array(steps)
        if search == "score" and steps:
            feed["step_size"] = np.array(step_size, dtype=np.float32)
        if length_quantile is not None:
            feed["length_quantile"] = np.array(length_quantile, dtype=np.float32)
        if lengthening:
            feed["lengthening"] = np.array(lengthening, dtype=np.float64)
        names = ["positions", "tokens" if padded else "logits", *(["scores"] if scored else [])]
        session = self._session(search, padded, scored, steps, length_quantile is not None, bool(lengthening))
        positions, words, *scores = session.run(names, feed)
        tokens = words if padded else words.argmax(-1)
        rows = without_ends(tokens.tolist(), positions.tolist())
        return Hypotheses(rows, scores[0].tolist() if scored else [0.0] * len(rows), [steps] * len(rows))

    def _session(self, search: str, masked: bool, scored: bool, steps: int, quantile: bool, lengthening: bool):
        # Without steps all searches are the same.
        unrolled = steps if steps <= UNROLLED else None
        key = (search if steps else "prior-mean", masked, scored, unrolled, quantile, lengthening)
        if key not in self._sessions:
            self._sessions[key] = self._open(*key)
        return self._sessions[key]

    def _open(self, search: str, masked: bool, scored: bool, steps: int | None, quantile: bool, lengthening: bool):
        import onnxruntime

        from workflow_src.engines.onnx_latent import build

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Errors come as exceptions; the log has nothing to add.
        options.log_severity_level = 4
        model = build(self._lvm, self._score, search, masked, scored, self.int8, steps, quantile, lengthening)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _joined(parts: list[Hypotheses]) -> Hypotheses:
    together = lambda name: [value for part in parts for value in getattr(part, name)]  # noqa: E731
    return Hypotheses(together("tokens"), together("scores"), together("steps"))


def _array(tensor) -> np.ndarray:
    return tensor.detach().float().cpu().contiguous().numpy()


def _arrays(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: _array(parameter) for name, parameter in model.named_parameters()}


class Networks:
    """The engine for networks by family, the system's own first; `int8` computes large products in 8 bits."""

    gives_scores = True

    def __init__(self, models: Mapping[str, nn.Module], threads: int, int8: bool):
        self.exported = ExportedGraphs(models, threads, int8)
        known = HAND_WRITTEN.issuperset(models) and "lvm" in models
        self.latent = FastLatent(models["lvm"], models.get("score"), threads, int8) if known else None

    def ready(
        self,
        settings: SearchSettings,
        scored: bool,
        networks: Mapping[str, nn.Module] | None = None,
        alone: bool = True,
    ) -> bool:
        return self._by_hand(settings) or self.exported.ready(settings, scored, networks, alone)

    def gains_in_batches(self, settings: SearchSettings) -> bool:
        """Measured in batches of 64: latent graphs written by hand, with masks, lose; a search says it of others."""
        return not self._by_hand(settings) and registry.search_of(settings).batches

    def prepare(
        self, settings: SearchSettings, scored: bool, networks: Mapping[str, nn.Module] | None, alone: bool
    ) -> bool:
        return self._by_hand(settings) or self.exported.prepare(settings, scored, networks, alone)

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        scored: bool,
        networks: Mapping[str, nn.Module] | None = None,
    ) -> Hypotheses:
        if not self._by_hand(settings):
            return self.exported.translate(sources, settings, scored, networks)
        steps, size = getattr(settings, "steps", 0), getattr(settings, "step_size", 1.0)
        name = registry.search_of(settings).name
        return self.latent.search(sources, name, steps, size, scored, settings.length_quantile, settings.lengthening)

    def _by_hand(self, settings: SearchSettings) -> bool:
        name = registry.search_of(settings).name
        return self.latent is not None and name in SEARCHES and not (name == "score" and self.latent._score is None)


def open_networks(models: Mapping[str, nn.Module], mode: str, device: torch.device) -> Networks:
    """The engine for networks by family; `mode` is fast or fast-int8."""
    return Networks(models, torch.get_num_threads(), mode == "fast-int8")
