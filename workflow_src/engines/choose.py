"""Choosing the engine of the table (`engines/__init__.py`) that computes a system's searches."""

from __future__ import annotations

import functools
import logging
import platform
from collections.abc import Sequence

from workflow_src import registry
from workflow_src.engines.session import Session, SessionConfig
from workflow_src.errors import ConfigError
from workflow_src.runtime.device import cpu_flags
from workflow_src.spec import Engine, Family, SearchSettings

log = logging.getLogger("continuum")

AUTO = "auto"
EAGER = "eager"
FAST = "fast"
FAST_INT8 = "fast-int8"


def choose(mode: str, device: str, precision: str, family: Family, search_names: Sequence[str]) -> tuple[str, Engine]:
    """The mode (eager, fast, fast-int8) that `mode` means on this device, and its engine; auto is fast where an engine
    serves any of the searches, else eager.

    Raises InputError for a mode that is unknown or cannot serve.
    """
    engines = registry.engines().values()
    modes = [AUTO, *dict.fromkeys(name for declared in engines for name in declared.modes.values())]
    if mode not in modes:
        raise ConfigError("engine", mode, allowed=modes)
    if mode == EAGER:
        return EAGER, registry.default_engine()
    reasons: list[tuple[bool, str]] = []
    for declared in engines:
        wanted = FAST if mode == AUTO else mode
        if wanted not in declared.modes.values():
            continue
        is_on_device, reason = _cannot(declared, device, precision, family, search_names)
        if reason is None:
            if wanted == FAST_INT8 and not int8_is_safe():
                log.warning(
                    "warning: this processor lacks VNNI instructions; its 8-bit products may overflow, so translations "
                    "may be worse than those of others"
                )
            return wanted, declared
        reasons.append((not is_on_device, reason))
    if mode == AUTO:
        return EAGER, registry.default_engine()
    # The reason of an engine for this device comes first.
    raise ConfigError("engine", mode, problem=min(reasons)[1], hint="use engine eager")


def _cannot(
    declared: Engine, device: str, precision: str, family: Family, search_names: Sequence[str]
) -> tuple[bool, str | None]:
    """Whether an engine runs on a device, and why it computes no search of a system there; None where it does."""
    kind = device.split(":")[0]
    is_on_device = kind in declared.devices
    settings = [registry.searches()[name].settings() for name in search_names]
    refusals = [why_not(declared, family, search_settings) for search_settings in settings]
    reason = None
    if not is_on_device:
        places = " and ".join({"cpu": "CPUs", "cuda": "GPUs"}[place] for place in declared.devices)
        reason = f"{declared.name} runs on {places}, and the device is {device}"
    elif all(refusals):
        reason = f"{declared.name} {next(iter(refusals), 'computes searches, and the system has none')}"
    elif None not in declared.modes and precision not in declared.modes:
        reason = f"{declared.name} reads float32 weights, and the precision is {precision}"
    elif not declared.installed():
        reason = f'{declared.name} needs {" and ".join(declared.packages)} (the extra "fast")'
    return is_on_device, reason


def why_not(declared: Engine, family: Family, settings: SearchSettings) -> str | None:
    """Why an engine does not compute a search: the end of a sentence that begins with its name; None where it does."""
    reason = declared.serves(family, registry.search_of(settings), settings)
    # The rest of the sentence is about configurations.
    return reason.partition(";")[0] if reason else None


def open_session(declared: Engine, config: SessionConfig) -> Session:
    """The engine, opened for a system."""
    return registry.import_object(declared.open)(config)


@functools.cache
def int8_is_safe() -> bool:
    """Whether this CPU adds 8-bit products without saturating: it has VNNI instructions.

    Older x86 processors add pairs of products in 16 bits, which overflow: results would depend on the machine.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    flags = cpu_flags()
    return "avx512_vnni" in flags or "avx_vnni" in flags
