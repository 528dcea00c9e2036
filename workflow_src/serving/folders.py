"""Opening bundles in stages, with the engine of a decode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workflow_src.errors import ConfigError
from workflow_src.jobs import Machine
from workflow_src.registry import default_engine, engines
from workflow_src.spec import Engine

if TYPE_CHECKING:
    from workflow_src.serving.translator import Translator


def bundle_files(folders: dict[str, Path], systems: set[str], kind: str = "bundle") -> dict[str, Path]:
    """The descriptions of the bundles of `systems`, as inputs of a provenance: they hold the digests of other files."""
    return {f"{kind} {system}": folder / "bundle.json" for system, folder in folders.items() if system in systems}


def open_eager_translators(folders: Mapping[str, Path], systems: set[str], machine: Machine) -> dict[str, Translator]:
    """Eager translators of those of `systems` that have a folder, by name."""
    from workflow_src.serving.translator import Translator

    return {
        # Eager, so that exported graphs in this machine's cache change no analysis.
        system: Translator.load(folder, machine.device, machine.precision, machine.threads, engine="eager")
        for system, folder in folders.items()
        if system in systems
    }


def open_translator(
    folder: Path,
    device: str,
    precision: str,
    threads: int | None,
    engine: str | None = None,
    compute_type: str | None = None,
) -> Translator:
    """The translator of a bundle with a decode's engine and compute type; the default engine is eager.

    Raises ConfigError where the engine needs a GPU and there is none.
    """
    import torch

    from workflow_src.serving.translator import Translator

    if _only(_engine(engine)) == "cuda" and (device == "cpu" or not torch.cuda.is_available()):
        problem = "there is no GPU here, or runtime.device is cpu"
        raise ConfigError("engine", engine, problem=problem, hint="decode where there is one, or remove the engine")
    device, precision, mode = placement(engine, compute_type, device, precision)
    return Translator.load(folder, device, precision, threads, mode)


def placement(
    engine: str | None, compute_type: str | None, device: str = "auto", precision: str = "auto"
) -> tuple[str, str, str]:
    """The arguments device, precision and engine of `Translator.load` for a decode's engine and compute type."""
    declared = _engine(engine)
    # A folder that another engine reads has no modes.
    mode = "auto" if declared.exports else declared.modes.get(compute_type, "eager")
    if _only(declared):
        return (*_placed(declared, compute_type, device, precision), mode)
    # A compute type changes translations, so it is a setting of the decode; the machine's precision is not.
    # Only float16 needs a GPU, whose libraries an engine may not find; quality is the same on CPUs.
    on_cpu = device == "auto" and compute_type in ("float32", "int8")
    return "cpu" if on_cpu else device, compute_type or precision, mode


def _engine(name: str | None) -> Engine:
    return engines()[name] if name else default_engine()


def _only(engine: Engine) -> str | None:
    """The only kind of device on which an engine runs that reads bundles; None where there are several."""
    return engine.devices[0] if len(engine.devices) == 1 and not engine.exports else None


def _placed(engine: Engine, compute_type: str | None, device: str, precision: str) -> tuple[str, str]:
    """Device and precision of bundles that an engine computes.

    An engine with one kind of device keeps it, because elsewhere the mode's name selects another engine. It reads
    weights in bfloat16 where that is the decode's compute type, else in float32.
    """
    only = _only(engine)
    if only is None:
        return device, precision
    precision = "bfloat16" if compute_type == "bfloat16" else "float32"
    return device if device.split(":")[0] == only else only, precision


def open_role_translators(
    folders: Mapping[str, Path], machine: Machine, engine: str | None = None, compute_type: str | None = None
) -> dict[str, Translator]:
    """Translators of the systems of a search's roles, on the device of the decode's engine."""
    from workflow_src.serving.translator import Translator

    device, precision = _placed(_engine(engine), compute_type, machine.device, machine.precision)
    return {
        role: Translator.load(folder, device, precision, machine.threads, engine="eager")
        for role, folder in folders.items()
    }
