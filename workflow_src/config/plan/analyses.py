"""The analyses of an experiment: what each follows, which bundles it reads, and what changes its result."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

from workflow_src.config.analyses import scoring_systems
from workflow_src.config.experiment import removal
from workflow_src.config.plan.paths import Paths
from workflow_src.config.resolved import Decode, Loaded, System
from workflow_src.errors import ConfigError
from workflow_src.registry import followed, plain, searches, searches_of, settings_of
from workflow_src.spec import ALIGNED, BOUND, LATENT, SCORER, SOURCE_LATENT, TARGET_LATENT, VECTOR_FIELD, SearchSettings

# Every analysis with the rule that makes it, which is the stage's name too, and what it does.
RULES = {
    "marginal": ("estimate_marginal", "Estimating the marginal log-probability of every procedure's outputs"),
    "tokens": ("compare_tokens", "Counting what refinement changes, in subwords"),
    "lengths": ("measure_lengths", "Measuring how well lengths are predicted"),
    "samples": ("sample_translations", "Refining translations of samples from the prior"),
    "latent_space": ("map_latent_space", "Mapping the latent space of one sentence"),
    "energies": ("measure_energies", "Measuring energies of every row's outputs"),
    "convergence": ("measure_convergence", "Measuring bound, BLEU and standstill after every step"),
    "latent_paths": ("follow_latents", "Following latents from step to step"),
    "components": ("measure_components", "Counting the components of posterior means"),
    "reordering": ("measure_reordering", "Measuring how far posterior means follow another word order"),
}
# What an analysis that somebody switched on cannot do without.
NEEDED = {
    "energies": "it scores the translations of a decode",
    "convergence": "it follows refinement of latents that have a bound",
    "latent_paths": "it follows refinement of latents",
    "components": "it looks at latents",
    "reordering": "it looks at latents of source positions",
}
# Settings that bound memory and change no result.
LIMITS = ("chunk", "batch")
# Curves are drawn on dev; what stands beside the main table or shows sentences is of its split.
SPLITS: dict[str, Literal["dev", "test"]] = {
    "marginal": "dev",
    "tokens": "dev",
    "convergence": "dev",
    "latent_paths": "dev",
}


@dataclasses.dataclass(frozen=True)
class Analysis:
    """One analysis of an experiment: its file, the systems whose bundles it reads, and what changes its result.

    `enabled` also is False where the experiment has nothing to analyse. `limits` bound memory and change no result.
    `reads` are files of translations.
    """

    name: str
    rule: str
    message: str
    path: str
    split: Literal["dev", "test"]
    enabled: bool
    systems: tuple[str, ...]
    settings: str
    limits: Mapping[str, int] = dataclasses.field(compare=False)
    reads: tuple[str, ...] = ()


def analyses(loaded: Loaded) -> dict[str, Analysis]:
    """Every analysis by name, also those that are switched off; not those that nobody has switched on.

    Raises ConfigError when latent_space names a system that cannot be drawn, energies one that cannot score, or
    reordering one that does not translate; and for published figures at the references' lengths of no row.
    """
    _check_expected(loaded)
    found = {}
    for name, (rule, message) in RULES.items():
        config: Any = getattr(loaded.config.analyses, name)
        if not config.enabled and not type(config).model_fields["enabled"].default:
            continue
        entries = _entries(name, loaded)
        # Which systems and references are asked for is among the entries.
        asked = {"enabled", "system", "reference_lengths", *LIMITS}
        settings = config.model_dump(mode="json", exclude=asked) | entries
        if name in ("lengths", "convergence"):
            # Of outputs at given lengths, and of bounds: no alignments.
            settings["remove_repetitions"] = removal(False, False, loaded.config.report.remove_repetitions)
        if name in ("lengths", "convergence") or (name == "energies" and entries.get("searches")):
            settings["bleu_tokeniser"] = loaded.bleu_tokeniser
        systems = [entry["system"] for entry in entries.get("searches", ())]
        systems += scoring_systems(entries) if entries.get("rows") else ()
        if not systems and config.enabled is True:
            raise ConfigError(
                f"analyses.{name}.enabled",
                True,
                problem=f"nothing that the experiment decodes or trains fits it: {NEEDED[name]}",
                hint=f"add such a system or decode, or remove analyses.{name}",
            )
        found[name] = Analysis(
            name=name,
            rule=rule,
            message=message,
            path=f"results/{loaded.config.experiment}/analysis/{name.replace('_', '-')}.json",
            split=_main_split(loaded) if name == "energies" else SPLITS.get(name, "test"),
            enabled=bool(config.enabled and systems),
            systems=tuple(dict.fromkeys(systems)),
            settings=json.dumps(settings, sort_keys=True, ensure_ascii=False),
            limits={limit: getattr(config, limit) for limit in LIMITS if hasattr(config, limit)},
            reads=tuple(row["details"] for row in entries.get("rows", ())),
        )
    return found


def _entries(name: str, loaded: Loaded) -> dict[str, Any]:
    """Which searches an analysis follows; `model` is the system whose latents a search moves."""
    if name == "latent_space":
        system = _two_dimensional(loaded)
        return {"searches": [_entry(system, searches_of(loaded.systems[system].family)[0])] if system else []}
    if name == "energies":
        return _scored(loaded)
    if name == "components":
        return {"searches": [{"system": s.name} for s in loaded.systems.values() if LATENT in s.traits]}
    if name == "reordering":
        return _reordered(loaded)
    if name == "lengths":
        return {"searches": [*_models(loaded), *_searches(loaded), *_at_lengths(loaded)]}
    if name == "convergence":
        return {"searches": _searches(loaded, BOUND)}
    if name == "latent_paths":
        return {"searches": _searches(loaded, LATENT)}
    if name == "samples":
        # Trained networks before what the model does by itself.
        ranked = sorted(_searches(loaded), key=lambda entry: _rank(entry, loaded))
        return {"searches": ranked[:1]}
    return {"searches": _searches(loaded)}


def _main_split(loaded: Loaded) -> Literal["dev", "test"]:
    """The split of the main table: test, or dev where nothing else is decoded."""
    return "test" if any("test" in decode.splits for decode in loaded.decodes) else "dev"


def _scored(loaded: Loaded) -> dict[str, Any]:
    """The systems whose energy is measured, and of what: every row of the main table, as it is scored there.

    With `reference_lengths` also the searches whose outputs at the references' lengths are measured.
    """
    scorers = energy_scorers(loaded)
    if not scorers:
        return {"scorer": None, "rows": []}
    paths, split = Paths(loaded), _main_split(loaded)
    rows = [
        {
            "system": decode.system,
            "name": decode.name,
            "seed": seed,
            "repetitions_removed": loaded.removal(decode),
            "details": paths.translation_details(decode, seed, split),
        }
        for decode in loaded.decodes
        if split in decode.splits
        for seed in loaded.config.seeds
    ]
    content: dict[str, Any] = {"scorer": list(scorers), "rows": rows}
    if loaded.config.analyses.energies.reference_lengths:
        entries = at_reference_lengths(loaded)
        if not entries and loaded.config.analyses.energies.enabled is True:
            problem = f"no decode of {split} translates at given lengths"
            raise ConfigError(
                "analyses.energies.reference_lengths", True, problem=problem, hint="add one, or remove it"
            )
        # Who is given a length reads outputs off no alignment.
        removed = removal(False, False, loaded.config.report.remove_repetitions)
        content |= {"searches": [entry | {"repetitions_removed": removed} for entry in entries]} if entries else {}
    return content


def at_reference_lengths(loaded: Loaded) -> list[dict[str, Any]]:
    """Decodes of the main table that translate at given lengths: `system`, `name`, and `settings` as rules have them.

    Settings that decide lengths, or name systems that rank them, do nothing there. They are left out, and of decodes
    that differ in nothing else the first stands for all.
    """
    split, found = _main_split(loaded), {}
    for decode in loaded.decodes:
        free = {*decode.values.named("length"), *decode.values.named("role")}
        if split not in decode.splits or not decode.own_engine or not free.issuperset(decode.tune or ()):
            continue
        settings = {name: value for name, value in decode.settings.items() if name not in free}
        if searches()[decode.search].at_lengths or _keeps_lengths(decode, settings, loaded):
            entry = {"system": decode.system, "name": decode.name, "settings": settings}
            found.setdefault((decode.system, json.dumps(settings, sort_keys=True)), entry)
    return list(found.values())


def _keeps_lengths(decode: Decode, settings: dict[str, Any], loaded: Loaded) -> bool:
    """Whether a decode does nothing but refine latents of target positions, or leaves them as they are."""
    search = searches()[decode.search]
    starts = {one.baseline for one in searches().values() if one.step}
    if not (search.step and search.traceable) and search.name not in starts:
        return False
    return _model(loaded.systems[decode.system], loaded) is not None and plain(settings_of(settings))


def _check_expected(loaded: Loaded) -> None:
    """Published figures at the references' lengths name decodes that translate at them. Raises ConfigError."""
    expected = loaded.config.report.expected_reference_lengths
    known = [f"{entry['system']}/{entry['name']}" for entry in at_reference_lengths(loaded)] if expected else []
    for key in expected:
        if key not in known:
            raise ConfigError(
                "report.expected_reference_lengths", key, problem="no decode that translates at lengths", allowed=known
            )


def _reordered(loaded: Loaded) -> dict[str, Any]:
    """Systems whose latents are those of source positions, and the translations that stand beside the references.

    Raises ConfigError where there are none.
    """
    config, where = loaded.config.analyses.reordering, "analyses.reordering"
    systems = [one for one in loaded.systems.values() if SOURCE_LATENT in one.traits]
    searches = [{"system": one.name, "aligned": ALIGNED in one.traits} for one in systems]
    if not (config.enabled and searches):
        return {"searches": [], "rows": []}
    if config.system is not None and config.system not in loaded.systems:
        raise ConfigError(f"{where}.system", config.system, allowed=loaded.systems)
    decodes = [decode for decode in loaded.decodes if "test" in decode.splits]
    fits = [
        decode
        for decode in decodes
        if decode.system == config.system
        or (config.system is None and loaded.systems[decode.system].family.autoregressive)
    ]
    if not fits and config.enabled == "auto":
        return {"searches": [], "rows": []}
    if not fits:
        wanted = f"system {config.system}" if config.system else "an autoregressive system"
        names = ", ".join(dict.fromkeys(decode.system for decode in decodes)) or "none"
        raise ConfigError(
            f"{where}.system",
            config.system,
            problem=f"no decode translates test by {wanted}",
            hint=f"add one, or name a system that is decoded ({names})",
        )
    decode = fits[0]
    details = Paths(loaded).translation_details(decode, loaded.config.seeds[0], "test")
    return {"searches": searches, "rows": [{"system": decode.system, "name": decode.name, "details": details}]}


def energy_scorers(loaded: Loaded) -> tuple[str, ...]:
    """The systems that `analyses.energies` names, or the first that fits; none where it is off. Raises ConfigError."""
    config, where = loaded.config.analyses.energies, "analyses.energies"
    if not config.enabled:
        return ()
    # The first of each kind: sorting keeps the order of the configuration.
    ranked = sorted(loaded.systems.values(), key=lambda one: not one.family.autoregressive)
    fits = [one.name for one in ranked if SCORER in one.traits]
    named = scoring_systems({"scorer": config.scorer})
    if not named and not fits and config.enabled == "auto":
        return ()
    if not named and not fits:
        raise ConfigError(where, problem="no system of the experiment scores outputs", hint="add one, or remove it")
    for name in named:
        if name not in loaded.systems:
            raise ConfigError(f"{where}.scorer", name, allowed=loaded.systems)
        if name not in fits:
            problem = f"family {loaded.systems[name].family_name} scores no outputs"
            raise ConfigError(f"{where}.scorer", name, problem=problem, allowed=fits)
    return named or (fits[0],)


def _entry(system: str, search: str, values: SearchSettings | None = None) -> dict[str, Any]:
    """A search that is followed: its system, and what it keeps of its settings."""
    values = values or searches()[search].settings()
    return {"system": system, "search": search, **followed(values)}


def _rank(entry: dict[str, Any], loaded: Loaded) -> tuple[bool, int]:
    return searches()[entry["search"]].control is None, loaded.systems[entry["system"]].family.order


def _searches(loaded: Loaded, trait: str = TARGET_LATENT) -> list[dict[str, Any]]:
    """Every search that refines latents of a model that is `trait`, once.

    Not those with any setting that is neither followed nor the series.
    """
    found: dict[tuple, dict[str, Any]] = {}
    for decode in loaded.decodes:
        search, values = searches()[decode.search], decode.values
        if not (search.step and search.traceable) or decode.tune or not decode.own_engine:
            continue
        model = _model(loaded.systems[decode.system], loaded, trait)
        if model is None or not plain(values):
            continue
        entry = _entry(decode.system, decode.search, values)
        found[tuple(entry.values())] = entry | {"model": model.name}
    return list(found.values())


def _at_lengths(loaded: Loaded) -> list[dict[str, Any]]:
    """Every search that translates at given lengths, once for each value of its series."""
    found: dict[tuple, dict[str, Any]] = {}
    for decode in loaded.decodes:
        search, values = searches()[decode.search], decode.values
        if search.at_lengths and decode.own_engine:
            series = {search.series: getattr(values, search.series)} if search.series else {}
            entry = {"system": decode.system, "search": decode.search, "model": decode.system, **series}
            found[tuple(entry.values())] = entry
    return list(found.values())


def _models(loaded: Loaded) -> list[dict[str, Any]]:
    """Every model with latents that is decoded, with a system whose bundle holds it: its own where it has one."""
    found: dict[str, str] = {}
    for decode in loaded.decodes:
        model = _model(loaded.systems[decode.system], loaded)
        if model is not None:
            name = model.name
            found[name] = name if decode.system == name else found.get(name, decode.system)
    # Latents as they are before any step are those of the search that refining ones are compared with.
    plain = next(search.baseline for search in searches().values() if search.step and search.baseline)
    return [_entry(s, plain) | {"model": m} for m, s in found.items()]


def _model(system: System, loaded: Loaded, trait: str = TARGET_LATENT) -> System | None:
    """The system that is `trait`, such as having latents of target positions: itself or its base; None for neither."""
    candidates = [system, *([loaded.systems[system.base]] if system.base else [])]
    return next((one for one in candidates if trait in one.family.traits), None)


def _two_dimensional(loaded: Loaded) -> str | None:
    def fits(system: System) -> bool:
        wide = getattr(system.model, "latent_dim", None)
        return VECTOR_FIELD in system.family.traits and wide == 2 and _model(system, loaded) is not None

    there = [system.name for system in loaded.systems.values() if fits(system)]
    named = loaded.config.analyses.latent_space.system
    if named is None:
        return there[0] if there else None
    where = "analyses.latent_space.system"
    if named not in loaded.systems:
        raise ConfigError(where, named, allowed=loaded.systems)
    if named not in there:
        problem = "no network that predicts steps of latents with latent_dim 2"
        raise ConfigError(where, named, problem=problem, allowed=there)
    return named
