"""ONNX Runtime on CPUs: several times as fast as eager inference on a sentence. Needs the extra `fast`.

Every search that has a program is exported (`exported.py`), whatever its family. This module decides where.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import platform
from collections.abc import Mapping

import torch
from torch import nn

from workflow_src.engines.exported import ExportedGraphs
from workflow_src.errors import ConfigError
from workflow_src.runtime.device import cpu_flags

log = logging.getLogger("continuum")

ENGINES = ("auto", "eager", "fast", "fast-int8")
PACKAGES = ("onnx", "onnxruntime")


def missing_packages() -> list[str]:
    """The packages of this module that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def choose_engine(engine: str, device: str, precision: str, serving: bool) -> str:
    """The engine for these settings: eager, fast or fast-int8; auto is fast where it can serve, else eager.

    On GPUs, fast is `cuda_graphs.py`. `serving`: whether the engine serves a search of the system. Raises InputError
    for an engine that is unknown or cannot serve.
    """
    if engine not in ENGINES:
        raise ConfigError("engine", engine, allowed=ENGINES)
    if engine == "eager":
        return engine
    reason = None
    if not serving:
        reason = "serves searches that have a program, and this system has none"
    elif device != "cpu":
        if engine != "fast-int8":
            return "fast"
        reason = f"runs on CPUs, and the device is {device}"
    elif precision != "float32":
        reason = f"reads float32 weights, and the precision is {precision}"
    elif missing := missing_packages():
        reason = f'needs {" and ".join(missing)} (the extra "fast")'
    if engine == "auto":
        return "eager" if reason else "fast"
    if reason:
        raise ConfigError("engine", engine, problem=f"it {reason}", hint="use engine eager")
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
    flags = cpu_flags()
    return "avx512_vnni" in flags or "avx_vnni" in flags


def open_networks(models: Mapping[str, nn.Module], mode: str, _device: torch.device) -> ExportedGraphs:
    """The engine for networks by family; `mode` is fast or fast-int8."""
    return ExportedGraphs(models, torch.get_num_threads(), mode == "fast-int8")
