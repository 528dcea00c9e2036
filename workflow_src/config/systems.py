"""Systems of an experiment: presets applied, relations checked and followed."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from typing import Any

from workflow_src.config import texts
from workflow_src.config.datasets import NormalisationConfig
from workflow_src.config.experiment import (
    DistillationConfig,
    SystemConfig,
    SystemFields,
    TrainingConfig,
    WorkflowConfig,
)
from workflow_src.config.files import merge, read_preset
from workflow_src.config.resolved import Decode, System
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.errors import ConfigError
from workflow_src.registry import (
    carried,
    default_engine,
    distilling_engines,
    distilling_search,
    engines,
    families,
    named_systems,
)
from workflow_src.spec import AUTOREGRESSIVE, BASE, SCORER, UNKNOWN, Family, Frozen, SearchSettings, parse, phrase


def resolve_systems(config: WorkflowConfig) -> dict[str, System]:
    """The systems by name, in their order. Raises ConfigError."""
    names = list(config.systems)
    for name, system in config.systems.items():
        where = f"systems.{name}"
        if system.family not in families():
            raise ConfigError(f"{where}.family", system.family, allowed=families())
        for role in ("base", "init_from"):
            other = getattr(system, role)
            if other is not None and other not in names:
                raise ConfigError(f"{where}.{role}", other, allowed=names)
        _check_built_on(name, system, config)
        for text in texts.weights_of(system.data or texts.RAW):
            origin = texts.kind_and_system(text)
            if origin and text not in (allowed := [f"{origin.kind}-by-{name}" for name in names]):
                raise ConfigError(f"{where}.data", text, allowed=allowed)
        _check_roles(name, system, config)
    for name, system in config.systems.items():
        _check_carried(name, system, config)
    for name, distillation in config.distillation.items():
        if name not in names:
            raise ConfigError(f"distillation.{name}", problem="no system", allowed=names)
        settings = _distillation_settings(distillation, f"distillation.{name}")
        engine_names = ["auto", default_engine().name, *(engine.name for engine in distilling_engines())]
        if distillation.engine not in engine_names:
            raise ConfigError(f"distillation.{name}.engine", distillation.engine, allowed=engine_names)
        if distillation.seed is not None and distillation.seed not in config.seeds:
            raise ConfigError(f"distillation.{name}.seed", distillation.seed, allowed=config.seeds)
        declared, search = engines().get(distillation.engine), distilling_search()
        family = families()[config.systems[name].family]
        if not family.autoregressive:
            raise ConfigError(
                f"distillation.{name}",
                problem=f"a system of family {family.name} cannot teach",
                hint=f"name one of family {' or '.join(_families_with(AUTOREGRESSIVE))}, or remove it",
            )
        if family.engine and distillation.engine not in ("auto", family.engine):
            problem = f"it computes no models of family {family.name}"
            allowed = ["auto", family.engine]
            raise ConfigError(f"distillation.{name}.engine", distillation.engine, problem=problem, allowed=allowed)
        if declared and (reason := declared.serves(family, search, settings)):
            raise ConfigError(f"distillation.{name}.engine", declared.name, problem=f"it {reason}")
    _check_likelihood(config)
    _refuse_cycles(config.systems)
    return {name: _resolve(name, config) for name in names}


def _check_likelihood(config: WorkflowConfig) -> None:
    """Check the section `likelihood`: names of systems, seeds and settings. Raises ConfigError."""
    reversed_systems = [other for other, system in config.systems.items() if system.reversed]
    for name, section in config.likelihood.items():
        if name not in config.systems:
            raise ConfigError(f"likelihood.{name}", problem="no system", allowed=config.systems)
        if section.seed is not None and section.seed not in config.seeds:
            raise ConfigError(f"likelihood.{name}.seed", section.seed, allowed=config.seeds)
        unused = section.model_fields_set & {"keep", "maximum", "backward"} if name in reversed_systems else ()
        for setting in sorted(unused):
            hint = "set it for the system that this one is the backward of, or remove it"
            raise ConfigError(f"likelihood.{name}.{setting}", problem=f"{name} is reversed", hint=hint)
        if section.backward is not None and section.backward not in reversed_systems:
            hint = "name a system with reversed: true"
            raise ConfigError(f"likelihood.{name}.backward", section.backward, allowed=reversed_systems, hint=hint)


def _check_built_on(name: str, system: SystemConfig, config: WorkflowConfig) -> None:
    """Check that a system is built on none that was made elsewhere. Raises ConfigError."""
    built_on = {"base": system.base, "init_from": system.init_from}
    built_on |= {f"roles.{role}": other for role, other in system.roles.items()}
    for setting, other in built_on.items():
        family = families().get(config.systems[other].family) if other in config.systems else None
        if family and family.imported:
            problem = f"models of family {family.name} are made elsewhere: they have no network to build on"
            hint = "name a system that is trained"
            raise ConfigError(f"systems.{name}.{setting}", other, problem=problem, hint=hint)


def _distillation_settings(section: DistillationConfig, where: str) -> SearchSettings:
    """The settings of the search that distils. Raises ConfigError for an unknown one or a wrong value."""
    allowed = section.of_search()
    for name in section.model_extra or {}:
        if name not in allowed:
            raise ConfigError(f"{where}.{name}", problem=UNKNOWN, allowed=[*type(section).model_fields, *allowed])
    return section.search_settings(where)


def _families_with(*traits: str | None, imported: bool = True) -> list[str]:
    """Names of the families that have all traits; `imported` ones are models made elsewhere."""
    required = {trait for trait in traits if trait is not None}
    fits = [family for family in families().values() if required <= family.traits]
    return [family.name for family in fits if imported or not family.imported]


def _check_roles(name: str, system: SystemConfig, config: WorkflowConfig) -> None:
    """Check that each role of a family is filled by a system that fits it, and no other. Raises ConfigError."""
    needs = families()[system.family].needs
    if BASE in system.roles:
        raise ConfigError(f"systems.{name}.roles.{BASE}", problem="a setting of its own", hint=f"write {BASE}: SYSTEM")
    if system.base is not None and BASE not in needs:
        problem = f"family {system.family} has no base"
        raise ConfigError(f"systems.{name}.base", system.base, problem=problem, hint="remove it")
    roles = [role for role in needs if role != BASE]
    for role in system.roles:
        if role not in roles:
            raise ConfigError(
                f"systems.{name}.roles.{role}", problem=f"no role of family {system.family}", allowed=roles
            )
    for role, need in needs.items():
        where = f"systems.{name}.{role}" if role == BASE else f"systems.{name}.roles.{role}"
        other = system.base if role == BASE else system.roles.get(role)
        fitting = f"a system of family {' or '.join(_families_with(need.trait, imported=False))}"
        if other is None:
            if need.optional:
                continue
            raise ConfigError(where, problem="missing", hint=f"name {fitting}")
        if other not in config.systems:
            raise ConfigError(where, other, allowed=config.systems)
        family = config.systems[other].family
        if family not in families():
            raise ConfigError(f"systems.{other}.family", family, allowed=families())
        if need.trait is not None and need.trait not in families()[family].traits:
            raise ConfigError(where, other, allowed=fitting)


def _check_carried(name: str, system: SystemConfig, config: WorkflowConfig) -> None:
    """Check that searches of the family work with all systems that its bundle carries. Raises ConfigError."""
    options = carried(families()[system.family])
    for role, other in system.carries.items():
        where = f"systems.{name}.carries"
        if not options:
            raise ConfigError(where, problem=f"bundles of family {system.family} carry no system", hint="remove it")
        if role not in options:
            raise ConfigError(f"{where}.{role}", problem=f"no role of family {system.family}", allowed=options)
        trait = options[role].role.trait
        kinds = {candidate: families()[section.family] for candidate, section in config.systems.items()}
        fits = [candidate for candidate, family in kinds.items() if trait is None or trait in family.traits]
        if other not in fits:
            raise ConfigError(f"{where}.{role}", other, problem=f"no system that {phrase(trait)}", allowed=fits)


def _refuse_cycles(systems: Mapping[str, SystemFields]) -> None:
    try:
        graphlib.TopologicalSorter({name: system.built_on for name, system in systems.items()}).prepare()
    except graphlib.CycleError as failure:
        # From what is built on to what it is built on.
        circle = " -> ".join(reversed(failure.args[1]))
        raise ConfigError("systems", problem=f"a circle, {circle}", hint="break it") from None


def _check_continued(system: System, config: WorkflowConfig, where: str) -> None:
    """Check that a family that continues a trained system starts from the same network. Raises ConfigError."""
    family = system.family
    if family.continues is None or system.initial_weights:
        return
    alike = " or ".join(name for name, other in families().items() if other.build == family.build)
    if system.init_from is None:
        hint = f"name a system of family {alike}, or add initial_weights"
        raise ConfigError(f"{where}.init_from", problem="missing", hint=hint)
    started = _resolve(system.init_from, config)
    if started.family.build != family.build:
        raise ConfigError(f"{where}.init_from", started.name, allowed=f"a system of family {alike}")
    for setting in family.continues:
        _check_agree(system, started, setting)


def _check_started(system: System, config: WorkflowConfig) -> None:
    """Raises ConfigError where a Transformer and its start differ in `dim`: almost no tensor would be copied."""
    if system.init_from is None or system.family.continues is not None:
        return
    started = _resolve(system.init_from, config)
    # Other networks may share embeddings of one width and differ in dim.
    if not all("heads" in type(model).model_fields for model in (system.model, started.model)):
        return
    _check_agree(system, started, "dim")


def _check_agree(system: System, other: System, setting: str) -> None:
    """Raises ConfigError where two systems that work together differ in a setting of their models."""
    value: Any = getattr(system.model, setting, None)
    expected: Any = getattr(other.model, setting, None)
    if value != expected:
        problem = f"{other.name}, which it works with, has another"
        raise ConfigError(f"systems.{system.name}.model.{setting}", value, problem=problem, allowed=[expected])


def _training(system: SystemConfig, base: SystemConfig | None, family: Family, where: str) -> TrainingConfig:
    """Settings of a system's training; a system that learns from the text of its base has its `augment` too.

    No updates where its family is fitted by counting, or made elsewhere.
    """
    if not family.updated:
        settings, problem = ["training", "init_from"], f"family {family.name} is counted at once"
        if family.imported:
            settings += ["data", "preset", "initial_weights", "objective", "carries"]
            problem = f"models of family {family.name} are made elsewhere"
        for setting in settings:
            if getattr(system, setting):
                raise ConfigError(f"{where}.{setting}", problem=problem, hint="remove it")
        return TrainingConfig(max_steps=0)
    if system.training is None:
        raise ConfigError(f"{where}.training", problem="missing", hint="add it")
    if base and base.training and system.data is None and system.training.augment is None:
        return system.training.model_copy(update={"augment": base.training.augment})
    return system.training


def _check_text(text: str, config: WorkflowConfig, where: str) -> None:
    """Check that there is such a training text, and that a system can make it. Raises ConfigError."""
    origin = texts.kind_and_system(text)
    if origin is None and text != texts.RAW and text not in config.recipe.distilled:
        allowed = [texts.RAW, *(f"{kind}-by-SYSTEM" for kind in texts.MADE_BY_SYSTEMS), *config.recipe.distilled]
        raise ConfigError(where, text, allowed=allowed, hint="or add it to recipe.distilled")
    if origin and origin.kind == texts.MONOLINGUAL and not config.recipe.monolingual:
        problem = "recipe.monolingual names no text"
        raise ConfigError(where, text, problem=problem, hint="add it, such as monolingual: [{texts: {de: news.de}}]")
    # Likely pairs are chosen by scores of ids; models made elsewhere have ids of their own.
    likely = origin is not None and origin.kind == texts.LIKELY
    fits = _families_with(AUTOREGRESSIVE, SCORER if likely else None, imported=not likely)
    if origin and config.systems[origin.system].family not in fits:
        raise ConfigError(where, text, allowed=f"a system of family {' or '.join(fits)}")


def check_reversed(systems: dict[str, System], decodes: Iterable[Decode]) -> None:
    """Raises ConfigError for a reversed system that does anything but score raw pairs."""
    reversed_systems = [system for system in systems.values() if system.reversed]
    fits = _families_with(AUTOREGRESSIVE, SCORER, imported=False)
    for system in reversed_systems:
        where = f"systems.{system.name}"
        if system.family.name not in fits:
            raise ConfigError(f"{where}.family", system.family.name, problem="reversed is true", allowed=fits)
        if system.learnt_data != texts.RAW:
            data = texts.words(system.learnt_data)
            raise ConfigError(f"{where}.data", data, problem="reversed is true", allowed=[texts.RAW])
        if system.init_from:
            problem = "reversed is true, and that system reads the other language"
            raise ConfigError(f"{where}.init_from", system.init_from, problem=problem, hint="remove it")
    uses = {f"systems.{system.name}": system.needs for system in systems.values()}
    uses |= {f"decode {d.system}/{d.name}": [d.system, *named_systems(d.values).values()] for d in decodes}
    for where, names in uses.items():
        for name in names:
            if systems[name].reversed:
                hint = "name another system"
                raise ConfigError(
                    where, problem=f"{name} translates the other way round: it only scores pairs", hint=hint
                )


def check_augmented(systems: dict[str, System], normalisation: NormalisationConfig) -> None:
    """Raises ConfigError where likely pairs are augmented, or with capitals that normalisation removes."""
    for system in systems.values():
        where, augment = f"systems.{system.name}.training.augment", system.training.augment
        kinds = filter(None, map(texts.kind_and_system, texts.weights_of(system.data)))
        if augment and any(kind == texts.LIKELY for kind, _ in kinds):
            problem = "likely pairs are kept of encoded ones, which stay as they are"
            raise ConfigError(where, problem=problem, hint="name other texts in data, or remove it")
        for name in ("upper", "title") if normalisation.lowercase else ():
            if value := getattr(augment, name, 0):
                problem = "recipe.normalisation.lowercase is true, and models read no capitals"
                raise ConfigError(f"{where}.{name}", value, problem=problem, hint="remove one of the two")


def _bleu_tokeniser(system: SystemConfig, config: WorkflowConfig) -> str:
    """sacreBLEU's tokeniser of the language that a system writes."""
    recipe = config.recipe
    return bleu_tokeniser(recipe.source) if system.reversed else bleu_tokeniser(recipe.target, recipe.bleu_tokeniser)


def _model_name(family: Family, model: Frozen) -> str:
    """The name of the folder of a model that was made elsewhere: tables show it in place of a preset."""
    return next(iter(family.files(model).values())).absolute().parent.name if family.files else ""


def _resolve(name: str, config: WorkflowConfig) -> System:
    system = config.systems[name]
    family = families()[system.family]
    where = f"systems.{name}"
    base = config.systems[system.base] if system.base else None
    data = system.data or (base.data if base else None) or texts.RAW
    for text in texts.weights_of(data):
        _check_text(text, config, f"{where}.data")
    if family.fit and not isinstance(texts.canonical(data), str):
        problem = f"family {family.name} is counted at once"
        raise ConfigError(f"{where}.data", data, problem=problem, hint="name one text without a weight")
    if family.presets and system.preset is None:
        raise ConfigError(f"{where}.preset", problem="missing", hint="add it")
    preset = read_preset(family.presets, system.preset, f"systems.{name}") if family.presets else {}
    model = parse(family.model, merge(preset, system.model), f"{where}.model")
    resolved = System.model_validate(
        dict(system)
        | {
            "name": name,
            "preset": system.preset or _model_name(family, model),
            "data": {} if family.imported else texts.canonical(data),
            "model": model,
            "objective": parse(family.objective, system.objective, f"{where}.objective"),
            "training": _training(system, base, family, where),
            "bleu_tokeniser": _bleu_tokeniser(system, config),
        }
    )
    if reason := family.conflict(resolved.model, resolved.objective):
        raise ConfigError(where, problem=reason)
    for role, name in resolved.filled.items():
        built_on = _resolve(name, config)
        trait = family.needs[role].trait
        if trait in built_on.family.lacks(built_on.model):
            problem = f"with its model settings no system that {phrase(trait)}"
            raise ConfigError(f"{where}.{role}", name, problem=problem, hint="change one of the two")
        for setting in family.needs[role].agree:
            _check_agree(resolved, built_on, setting)
    _check_continued(resolved, config, where)
    _check_started(resolved, config)
    if family.updated and resolved.training.max_steps == 0 and not system.initial_weights:
        raise ConfigError(f"{where}.training.max_steps", 0, problem="without initial_weights", allowed="1 or more")
    return resolved
