"""Selection by trait of the searches that refine, models, systems and table rows that analyses look at.

Declarations of analyses use these functions in their `select`. Entries, as in the settings of rules, have `system`,
`search`, the settings that analyses keep of it, and `model`, the system whose latents it moves or which it decodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from workflow_src.config.experiment import removal
from workflow_src.config.plan.paths import Paths
from workflow_src.config.resolved import Decode, Loaded, System
from workflow_src.config.roles import followed, plain
from workflow_src.registry import searches
from workflow_src.spec import TARGET_LATENT, AnalysisSettings, SearchSettings, Selection

Entry = dict[str, Any]


def refining(trait: str) -> Callable[[AnalysisSettings, Loaded], Selection]:
    """A `select` of every search that refines latents of a model with the trait."""
    return lambda _, loaded: Selection.of(refinements(loaded, trait))


def entry(system: str, search: str, values: SearchSettings | None = None) -> Entry:
    """A search of a system, with the settings that analyses keep."""
    return {"system": system, "search": search, **followed(values or searches()[search].settings())}


def refinements(loaded: Loaded, trait: str) -> list[Entry]:
    """Every search that refines latents of a model with the trait, once.

    Searches with settings that are neither kept, nor the series, nor at their defaults are left out.
    """
    entries: dict[tuple, Entry] = {}
    for decode in loaded.decodes:
        search, values = searches()[decode.search], decode.values
        if not (search.refines and search.traceable) or decode.tune or not decode.own_engine:
            continue
        model = model_of(loaded.systems[decode.system], loaded, trait)
        if model is None or not plain(values):
            continue
        selected = entry(decode.system, decode.search, values)
        entries[tuple(selected.values())] = selected | {"model": model.name}
    return list(entries.values())


def translating_at_lengths(loaded: Loaded) -> list[Entry]:
    """Every search that translates at given lengths, once for each value of its series."""
    entries: dict[tuple, Entry] = {}
    for decode in loaded.decodes:
        search, values = searches()[decode.search], decode.values
        if search.at_lengths and decode.own_engine:
            series = {search.series: getattr(values, search.series)} if search.series else {}
            selected = {"system": decode.system, "search": decode.search, "model": decode.system, **series}
            entries[tuple(selected.values())] = selected
    return list(entries.values())


def latent_models(loaded: Loaded) -> list[Entry]:
    """Every decoded model with latents of target positions, as the search without refinement decodes it.

    `system` is one whose bundle holds the model: the model itself where it is decoded.
    """
    systems: dict[str, str] = {}
    for decode in loaded.decodes:
        model = model_of(loaded.systems[decode.system], loaded)
        if model is not None:
            name = model.name
            systems[name] = name if decode.system == name else systems.get(name, decode.system)
    # Latents before any step are those of the search that refining ones are compared with.
    start = next(search.baseline for search in searches().values() if search.refines and search.baseline)
    return [entry(system, start) | {"model": model} for model, system in systems.items()]


def model_of(system: System, loaded: Loaded, trait: str = TARGET_LATENT) -> System | None:
    """The system with the trait: this one or its base; None where neither has it."""
    return next((network for network in system.networks(loaded.systems) if trait in network.family.traits), None)


def main_split(loaded: Loaded) -> str:
    """The split of the main table: the main test set, or dev where nothing else is decoded."""
    test = loaded.test_sets[0]
    return test if any(test in decode.splits for decode in loaded.decodes) else "dev"


def rows(loaded: Loaded) -> list[Entry]:
    """Every row of the main table: `system`, `name`, `seed`, its translations (`details`), `repetitions_removed`."""
    paths, split = Paths(loaded), main_split(loaded)
    return [
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


def scoring(loaded: Loaded) -> dict[str, str]:
    """Settings of BLEU for outputs that do not mean repetitions."""
    return {
        "remove_repetitions": removal(False, False, loaded.config.report.remove_repetitions),
        "bleu_tokeniser": loaded.corpus.tokeniser,
    }


def at_reference_lengths(loaded: Loaded) -> list[Entry]:
    """Decodes of the main table that translate at given lengths: `system`, `name`, and `settings` as rules have them.

    Settings that decide lengths, or name systems that rank them, have no effect at given lengths and are left out. Of
    decodes that differ in these alone, the first is taken.
    """
    split = main_split(loaded)
    entries: dict[tuple[str, str], Entry] = {}
    for decode in loaded.decodes:
        values = searches()[decode.search].settings
        free = {*values.named("length"), *values.named("role")}
        if split not in decode.splits or not decode.own_engine or not free.issuperset(decode.tune):
            continue
        settings = {name: value for name, value in decode.settings.items() if name not in free}
        if searches()[decode.search].at_lengths or _keeps_lengths(decode, settings, loaded):
            selected = {"system": decode.system, "name": decode.name, "settings": settings}
            entries.setdefault((decode.system, json.dumps(settings, sort_keys=True)), selected)
    return list(entries.values())


def _keeps_lengths(decode: Decode, settings: dict[str, Any], loaded: Loaded) -> bool:
    """True for a decode that only refines latents of target positions, or decodes them unrefined."""
    search = searches()[decode.search]
    starts = {stepping.baseline for stepping in searches().values() if stepping.refines}
    if not (search.refines and search.traceable) and search.name not in starts:
        return False
    return model_of(loaded.systems[decode.system], loaded) is not None and plain(Decode.model_validate(settings).values)
