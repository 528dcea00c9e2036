"""The decodes of an experiment: lists written out, settings checked against searches and engines, names given."""

from __future__ import annotations

import dataclasses
from typing import Any

from workflow_src.config.base import ConfigError, unknown
from workflow_src.config.experiment import DecodeConfig, WorkflowConfig
from workflow_src.config.families import AUTOREGRESSIVE_SEARCHES, LATENT_SEARCH, REFINEMENTS, SEARCHES_OF_SETTING
from workflow_src.config.resolved import Decode, System

ENGINE_SEARCHES = {"ctranslate2": AUTOREGRESSIVE_SEARCHES, "onnxruntime": ("prior-mean", "delta", "score")}


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def resolve_decodes(config: WorkflowConfig, systems: dict[str, System]) -> tuple[Decode, ...]:
    """Every decode of an experiment, one a number of steps, beam and compute type. Raises ConfigError."""
    found: list[Decode] = []
    for number, decode in enumerate(config.decodes):
        where = f"decodes[{number}]"
        if decode.system not in systems:
            raise unknown("system", decode.system, list(systems), where)
        searches = systems[decode.system].family.searches
        if decode.search not in searches:
            raise unknown("search", decode.search, list(searches), f"{where} (system {decode.system})")
        for steps in _each(decode.steps):
            for beam in _each(decode.beam):
                for compute_type in _each(decode.compute_type):
                    found.append(_on_engine(_decode(decode, systems, steps, beam, where), decode, compute_type, where))
    names = [(decode.system, decode.name) for decode in found]
    for system, name in names:
        if names.count((system, name)) > 1:
            raise ConfigError(f'decodes: system {system} has two decodes named "{name}"; give one of them a name.')
    return tuple(found)


def _decode(
    decode: DecodeConfig, systems: dict[str, System], steps: int | None, beam: int | None, where: str
) -> Decode:
    iterative = decode.search in (*REFINEMENTS, LATENT_SEARCH)
    if iterative != (steps is not None):
        remedy = "add steps" if iterative else "remove steps"
        raise ConfigError(f"{where}: search {decode.search} {'needs' if iterative else 'takes no'} steps; {remedy}.")
    if (decode.search == "beam") != (beam is not None):
        remedy = "add beam" if decode.search == "beam" else "remove beam"
        raise ConfigError(f"{where}: only search beam takes a beam; {remedy}.")
    for value, setting in ((steps, "steps"), (beam, "beam")):
        if value is not None and value < (0 if setting == "steps" else 1):
            raise ConfigError(f"{where}.{setting} is {value}; it must be {'0' if setting == 'steps' else '1'} or more.")
    _check_own(decode, where)
    _check_rescorer(decode, systems, where)
    _check_tune(decode, where)
    settings: dict[str, Any] = {"search": decode.search}
    name = decode.search
    if decode.search in AUTOREGRESSIVE_SEARCHES:
        settings |= {
            "beam": beam or 1,
            "length_penalty": decode.length_penalty,
            "max_length_ratio": decode.max_length_ratio,
        }
        name += f"-{beam}" if beam else ""
        name += f"-penalty{decode.length_penalty:g}" if decode.length_penalty != 1 else ""
    else:
        settings |= {"steps": steps or 0, "step_size": decode.step_size}
        if decode.search == LATENT_SEARCH:
            settings |= {name: getattr(decode, name) for name in ("lengths", "samples", "mean_first", "search_seed")}
            settings |= {"rescorer": decode.rescorer, "refinement": systems[decode.system].family.refinement}
            name += f"-{decode.lengths}x{decode.samples}"
            name += "-mean" if decode.mean_first else ""
        name += f"-{steps}" if iterative else ""
        name += f"-size{decode.step_size:g}" if decode.step_size != 1 else ""
        name += "" if decode.search != LATENT_SEARCH or decode.rescorer else "-own"
        if decode.length_quantile is not None:
            settings |= {"length_quantile": decode.length_quantile}
            name += f"-quantile{decode.length_quantile:g}"
        if decode.lengthening:
            settings |= {"lengthening": decode.lengthening}
            name += f"-longer{decode.lengthening:g}"
        if decode.stop_threshold is not None:
            settings |= {"stop_threshold": decode.stop_threshold}
            name += f"-stop{decode.stop_threshold:g}"
    name += "-tuned" if decode.tune else ""
    if decode.name:
        several = isinstance(decode.steps, tuple) or isinstance(decode.beam, tuple)
        name = f"{decode.name}-{steps if iterative else beam}" if several else decode.name
    tune = {key: list(values) for key, values in decode.tune.items()} or None
    return Decode(decode.system, decode.search, name, settings, decode.splits, decode.batch, tune, decode.shards)


def _check_own(decode: DecodeConfig, where: str) -> None:
    # A configuration that was written whole says every default: only what differs from it was meant.
    said = {name for name in SEARCHES_OF_SETTING if getattr(decode, name) != DecodeConfig.model_fields[name].default}
    for setting in sorted(said | set(decode.tune)):
        searches = SEARCHES_OF_SETTING[setting]
        if decode.search not in searches:
            raise ConfigError(
                f"{where}: search {decode.search} takes no {setting}, which belongs to "
                f"{', '.join(searches)}; remove it."
            )


def _check_rescorer(decode: DecodeConfig, systems: dict[str, System], where: str) -> None:
    if decode.rescorer is None:
        return
    autoregressive = [name for name, system in systems.items() if system.family.autoregressive]
    if decode.rescorer not in autoregressive:
        raise unknown("rescorer", decode.rescorer, autoregressive, f"{where} (an autoregressive system ranks)")


def _check_tune(decode: DecodeConfig, where: str) -> None:
    for setting, values in decode.tune.items():
        if not values:
            raise ConfigError(f"{where}.tune.{setting} is empty; list the values to choose from.")
        for value in values:
            # The same limits as for the setting itself.
            try:
                DecodeConfig.model_validate({"system": decode.system, "search": decode.search, setting: value})
            except ValueError as failure:
                problem = failure.errors()[0]["msg"].removeprefix("Input ") if hasattr(failure, "errors") else failure
                raise ConfigError(f"{where}.tune.{setting} has {value:g}: {problem}.") from None


def _on_engine(made: Decode, decode: DecodeConfig, compute_type: str | None, where: str) -> Decode:
    """The decode with its engine, which its settings and its name tell only where it is not our own."""
    if decode.engine == "continuum":
        if compute_type is not None:
            others = " or ".join(ENGINE_SEARCHES)
            raise ConfigError(f"{where}: compute_type belongs to engine {others}; remove it, or add the engine.")
        return made
    searches = ENGINE_SEARCHES[decode.engine]
    if decode.search not in searches:
        raise ConfigError(
            f"{where}: engine {decode.engine} translates with {', '.join(searches)} only, not with {decode.search}; "
            "remove the engine."
        )
    if decode.stop_threshold is not None or "stop_threshold" in decode.tune:
        raise ConfigError(f"{where}: engine {decode.engine} takes no stop_threshold; remove one of the two.")
    compute_type = compute_type or "float32"
    if decode.engine == "onnxruntime" and compute_type == "float16":
        raise ConfigError(f"{where}: engine onnxruntime computes in float32 or int8, not in float16.")
    named = decode.name and not isinstance(decode.compute_type, tuple)
    name = made.name if named else f"{made.name}-{decode.engine}-{compute_type}"
    settings = made.settings | {"engine": decode.engine, "compute_type": compute_type}
    return dataclasses.replace(made, name=name, settings=settings)
