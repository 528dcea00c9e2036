"""The analyses of an experiment: what each follows, which bundles it reads, and what changes its result."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal

from workflow_src.config.base import ConfigError, unknown
from workflow_src.config.families import AUTOREGRESSIVE_SEARCHES, REFINEMENTS
from workflow_src.config.resolved import Loaded, System

NAMES = ("marginal", "tokens", "lengths", "samples", "latent_space")
# Curves are drawn on dev; what stands beside the main table or shows sentences is of its split.
SPLITS: dict[str, Literal["dev", "test"]] = {"marginal": "dev", "tokens": "dev"}


@dataclasses.dataclass(frozen=True)
class Analysis:
    """One analysis of an experiment: its file, the systems whose bundles it reads, and what changes its result.

    `enabled` also is False where the experiment has nothing to analyse.
    """

    name: str
    path: str
    split: Literal["dev", "test"]
    enabled: bool
    systems: tuple[str, ...]
    settings: str


def analyses(loaded: Loaded) -> dict[str, Analysis]:
    """Every analysis by name, also those that are switched off.

    Raises ConfigError when latent_space names a system that cannot be drawn.
    """
    found = {}
    for name in NAMES:
        config: Any = getattr(loaded.config.analyses, name)
        entries = _entries(name, loaded)
        settings = config.model_dump(mode="json", exclude={"enabled", "chunk", "system"}) | entries
        if name == "lengths":
            settings["remove_repetitions"] = loaded.config.report.remove_repetitions
        systems = tuple(dict.fromkeys(entry["system"] for entry in entries["searches"]))
        found[name] = Analysis(
            name=name,
            path=f"results/{loaded.config.experiment}/analysis/{name.replace('_', '-')}.json",
            split=SPLITS.get(name, "test"),
            enabled=config.enabled and bool(systems),
            systems=systems,
            settings=json.dumps(settings, sort_keys=True, ensure_ascii=False),
        )
    return found


def _entries(name: str, loaded: Loaded) -> dict[str, Any]:
    """Which searches an analysis follows; `model` is the latent-variable model that a search works in."""
    if name == "latent_space":
        system = _two_dimensional(loaded)
        return {"searches": [{"system": system, "search": "score", "step_size": 1.0}] if system else []}
    if name == "lengths":
        return {"searches": [*_models(loaded), *_searches(loaded)]}
    if name == "samples":
        ranked = sorted(_searches(loaded), key=lambda entry: ("score", "energy", "delta").index(entry["search"]))
        return {"searches": ranked[:1]}
    return {"searches": _searches(loaded)}


def _searches(loaded: Loaded) -> list[dict[str, Any]]:
    """Every refining search that is decoded, once; not those whose settings dev chooses or that stop by themselves."""
    found: dict[tuple, dict[str, Any]] = {}
    for decode in loaded.decodes:
        if (
            decode.search in REFINEMENTS
            and not decode.tune
            and not {"stop_threshold", "engine", "length_quantile", "lengthening"} & set(decode.settings)
        ):
            size = decode.settings["step_size"]
            entry = {"system": decode.system, "search": decode.search, "step_size": size}
            found[decode.system, decode.search, size] = entry | {"model": _model(loaded.systems[decode.system])}
    return list(found.values())


def _models(loaded: Loaded) -> list[dict[str, Any]]:
    """Every latent-variable model that is decoded, with a system whose bundle holds it: its own where it has one."""
    found: dict[str, str] = {}
    for decode in loaded.decodes:
        if decode.search not in AUTOREGRESSIVE_SEARCHES:
            model = _model(loaded.systems[decode.system])
            found[model] = model if decode.system == model else found.get(model, decode.system)
    return [{"system": s, "search": "prior-mean", "step_size": 1.0, "model": m} for m, s in found.items()]


def _model(system: System) -> str:
    return system.base or system.name


def _two_dimensional(loaded: Loaded) -> str | None:
    fits = [s.name for s in loaded.systems.values() if s.family_name == "score" and s.model.latent_dim == 2]
    named = loaded.config.analyses.latent_space.system
    if named is None:
        return fits[0] if fits else None
    where = "analyses.latent_space.system"
    if named not in loaded.systems:
        raise unknown("system", named, list(loaded.systems), where)
    if named not in fits:
        system = loaded.systems[named]
        raise ConfigError(
            f"{where} is {named}, of family {system.family_name}"
            f"{f' with latent_dim {system.model.latent_dim}' if hasattr(system.model, 'latent_dim') else ''}; "
            f"it must be a score network with latent_dim 2 ({', '.join(fits) or 'there is none: add one'})."
        )
    return named
