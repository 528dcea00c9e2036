"""Opening a folder with the engine that a decode asks for; stages that translate share it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_engine(folder: Path, device: str, precision: str, threads: int | None, settings: dict[str, Any]) -> Any:
    """The translator that a decode's engine and compute type ask for; our own computes eagerly."""
    from workflow_src.serving.translator import Translator

    engine, compute_type = settings.get("engine", "continuum"), settings.get("compute_type")
    if engine == "onnxruntime":
        # It serves on CPUs here; on a GPU its name would mean another engine.
        fast = "fast-int8" if compute_type == "int8" else "fast"
        return Translator.load(folder, "cpu" if device == "auto" else device, "float32", threads, fast)
    # A compute type changes translations, so it is a setting of the decode; the machine's precision is not.
    # Only float16 needs a GPU, whose libraries CTranslate2 may not find; quality is the same on CPUs.
    on_cpu = device == "auto" and compute_type in ("float32", "int8")
    return Translator.load(folder, "cpu" if on_cpu else device, compute_type or precision, threads, "eager")
