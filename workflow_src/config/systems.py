"""Systems of an experiment: presets applied, relations checked and followed."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from typing import Any

from workflow_src.config import texts
from workflow_src.config.declared import reason
from workflow_src.config.experiment import SystemConfig, WorkflowConfig
from workflow_src.config.files import merge, read_preset
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.relations import Reference
from workflow_src.config.resolved import System
from workflow_src.config.roles import carried
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.config.training import TrainingConfig
from workflow_src.errors import ConfigError
from workflow_src.registry import default_engine, distilling_engines, distilling_search, engines, families
from workflow_src.spec import AUTOREGRESSIVE, BASE, REFINER, SCORER, Family, Frozen, parse, phrase


def resolve_systems(config: WorkflowConfig) -> dict[str, System]:
    """The systems by name, in their order. Raises ConfigError."""
    for name, system in config.systems.items():
        if system.family not in families():
            raise ConfigError(f"systems.{name}.family", system.family, allowed=families())
    for name, system in config.systems.items():
        _check_relations(name, system, config)
    _check_distillation(config)
    _check_likelihood(config)
    resolved: dict[str, System] = {}
    for name in _order(config.systems):
        resolved[name] = _resolve(name, config, resolved)
    return {name: resolved[name] for name in config.systems}


def _check_relations(name: str, system: SystemConfig, config: WorkflowConfig) -> None:
    """Check that the systems and texts that a system names exist and fit what it does with them. Raises ConfigError."""
    family, where = families()[system.family], f"systems.{name}"
    for text in texts.weights_of(system.data or texts.RAW):
        _check_text(text, config, f"{where}.data")
    for other in system.references:
        _check_reference(other, family, config, where)
    for role, need in family.needs.items():
        if role not in system.filled and not need.optional:
            setting = role if role == BASE else f"roles.{role}"
            fitting = " or ".join(_families_with(need.trait, imported=False))
            raise ConfigError(f"{where}.{setting}", problem="missing", hint=f"name a system of family {fitting}")


def _check_text(text: str, config: WorkflowConfig, where: str) -> None:
    """Check that a training text is known, or of a kind that systems make. Raises ConfigError."""
    origin = texts.kind_and_system(text)
    if origin is None and text not in (texts.RAW, *config.recipe.distilled):
        allowed = [texts.RAW, *(f"{kind}-by-SYSTEM" for kind in texts.TEXT_KINDS), *config.recipe.distilled]
        raise ConfigError(where, text, allowed=allowed, hint="or add it to recipe.distilled")
    if text != texts.base_of(text):
        raise ConfigError(where, text, allowed=[texts.base_of(text)], hint="set training.augment beside it")
    if origin and origin.kind == texts.MONOLINGUAL and not config.recipe.monolingual:
        problem = "recipe.monolingual names no text"
        raise ConfigError(where, text, problem=problem, hint="add it, such as monolingual: [{texts: {de: news.de}}]")


def _check_reference(other: Reference, family: Family, config: WorkflowConfig, where: str) -> None:
    """Check that a system that another one names exists and fits. Raises ConfigError."""
    setting, _, role = other.setting.partition(".")
    where = f"{where}.{other.setting}"
    if setting == "init_from":
        _check_fits(where, other, config, imported=False)
        _check_start(where, other, family, config)
    elif setting == "data":
        # Likely pairs are chosen by scores of ids; models made elsewhere have ids of their own.
        likely = other.value.startswith(texts.LIKELY)
        _check_fits(where, other, config, AUTOREGRESSIVE, SCORER if likely else None, imported=not likely)
    elif setting == "carries":
        options = carried(family)
        if role not in options:
            problem = f"no system that bundles of family {family.name} carry"
            raise ConfigError(where, problem=problem, allowed=options, hint="" if options else "remove it")
        _check_fits(where, other, config, options[role].trait)
    else:
        need = family.needs.get(role or BASE)
        if need is None and not role:
            raise ConfigError(where, other.value, problem=f"family {family.name} has no base", hint="remove it")
        if need is None:
            raise ConfigError(where, problem=f"no role of family {family.name}", allowed=family.needs.keys() - {BASE})
        _check_fits(where, other, config, need.trait, imported=False)


def _check_fits(
    where: str, other: Reference, config: WorkflowConfig, *traits: str | None, imported: bool = True
) -> None:
    """Check that a system exists, reads the source, and that its family has all traits. Raises ConfigError.

    `imported`: models that are made elsewhere fit, too.
    """
    fits = _systems_with(config, *traits, imported=imported)
    if other.system in fits:
        return
    allowed = [other.value.removesuffix(other.system) + name for name in fits]
    system, problem = config.systems.get(other.system), ""
    if system and system.reversed:
        problem = "it translates the other way round: it only scores pairs"
    elif system and families()[system.family].imported and not imported:
        problem = "it is made elsewhere, and only a system that is trained here fits"
    elif system:
        problem = f"no system that {' and '.join(phrase(trait) for trait in traits if trait)}"
    names = " or ".join(_families_with(*traits, imported=imported))
    raise ConfigError(where, other.value, problem=problem, allowed=allowed, hint="" if fits else f"add one of {names}")


def _check_start(where: str, other: Reference, family: Family, config: WorkflowConfig) -> None:
    """Check that networks of a family have parts in common with that of a system. Raises ConfigError."""
    fits = [name for name in _systems_with(config, imported=False) if _fits_network(config.systems[name], family)]
    if other.system not in fits:
        problem = f"no weights of family {config.systems[other.system].family} fit family {family.name}"
        raise ConfigError(where, other.value, problem=problem, allowed=fits, hint="" if fits else "remove it")


def _fits_network(system: SystemConfig, family: Family) -> bool:
    """Whether the network of a system has parts in common with networks of a family.

    Refiners have layers over latents and no words: their parts are those of refiners and of what their base may be.
    """
    other = families()[system.family]
    if other.fit:
        return False
    if REFINER in family.traits:
        base = family.needs.get(BASE)
        return REFINER in other.traits or (base is not None and base.trait in other.traits)
    return REFINER not in other.traits


def _systems_with(config: WorkflowConfig, *traits: str | None, imported: bool = True) -> list[str]:
    """Names of the systems that read the source and whose families have all traits."""
    fitting = _families_with(*traits, imported=imported)
    return [name for name, system in config.systems.items() if system.family in fitting and not system.reversed]


def _families_with(*traits: str | None, imported: bool = True) -> list[str]:
    """Names of the families that have all traits; `imported` ones are models made elsewhere."""
    required = {trait for trait in traits if trait is not None}
    fits = [family for family in families().values() if required <= family.traits]
    return [family.name for family in fits if imported or not family.imported]


def _check_distillation(config: WorkflowConfig) -> None:
    """Check the section `distillation`: names of systems, seeds, engines and settings. Raises ConfigError."""
    teachers = _systems_with(config, AUTOREGRESSIVE)
    for name, section in config.distillation.items():
        where = f"distillation.{name}"
        if name not in teachers:
            raise ConfigError(where, problem=f"no system that {phrase(AUTOREGRESSIVE)}", allowed=teachers)
        settings = section.search_settings(where)
        _check_seed(section.seed, config, where)
        family = families()[config.systems[name].family]
        own = [family.engine] if family.engine else [default_engine().name, *(e.name for e in distilling_engines())]
        if section.engine not in ("auto", *own):
            raise ConfigError(f"{where}.engine", section.engine, allowed=["auto", *own])
        engine = engines().get(section.engine)
        if engine and (why := reason(engine, "serves", family, distilling_search(), settings)):
            raise ConfigError(f"{where}.engine", engine.name, problem=f"it {why}")


def _check_likelihood(config: WorkflowConfig) -> None:
    """Check the section `likelihood`, and systems that are reversed to score pairs. Raises ConfigError."""
    reversed_systems = {name: system for name, system in config.systems.items() if system.reversed}
    fits = _families_with(AUTOREGRESSIVE, SCORER, imported=False)
    for name, system in reversed_systems.items():
        where = f"systems.{name}"
        if system.family not in fits:
            raise ConfigError(f"{where}.family", system.family, problem="reversed is true", allowed=fits)
        if system.init_from:
            problem = "reversed is true, and that system reads the other language"
            raise ConfigError(f"{where}.init_from", system.init_from, problem=problem, hint="remove it")
    for name, section in config.likelihood.items():
        where = f"likelihood.{name}"
        if name not in config.systems:
            raise ConfigError(where, problem="no system", allowed=config.systems)
        _check_seed(section.seed, config, where)
        unused = section.model_fields_set & {"keep", "maximum", "backward"} if name in reversed_systems else ()
        for setting in sorted(unused):
            hint = "set it for the system that this one is the backward of, or remove it"
            raise ConfigError(f"{where}.{setting}", problem=f"{name} is reversed", hint=hint)
        if section.backward is not None and section.backward not in reversed_systems:
            hint = "name a system with reversed: true"
            raise ConfigError(f"{where}.backward", section.backward, allowed=reversed_systems, hint=hint)


def _check_seed(seed: int | None, config: WorkflowConfig, where: str) -> None:
    if seed is not None and seed not in config.seeds:
        raise ConfigError(f"{where}.seed", seed, allowed=config.seeds)


def _order(systems: Mapping[str, SystemConfig]) -> list[str]:
    """Names of the systems, each behind those that it is built on. Raises ConfigError for a circle."""
    graph = graphlib.TopologicalSorter({name: system.built_on for name, system in systems.items()})
    try:
        return list(graph.static_order())
    except graphlib.CycleError as failure:
        # From what is built on to what it is built on.
        circle = " -> ".join(reversed(failure.args[1]))
        raise ConfigError("systems", problem=f"a circle, {circle}", hint="break it") from None


def _resolve(name: str, config: WorkflowConfig, resolved: Mapping[str, System]) -> System:
    """A system; `resolved` has those that it is built on. Raises ConfigError."""
    section, where = config.systems[name], f"systems.{name}"
    family = families()[section.family]
    base = resolved[section.base] if section.base else None
    data = texts.canonical(section.data or (base.data if base else texts.RAW))
    if family.fit and not isinstance(data, str):
        problem = f"family {family.name} is counted at once"
        raise ConfigError(f"{where}.data", data, problem=problem, hint="name one text without a weight")
    if family.presets and section.preset is None:
        raise ConfigError(f"{where}.preset", problem="missing", hint="add it")
    preset = read_preset(family.presets, section.preset, where) if family.presets else {}
    model = parse(family.model, merge(preset, section.model, null_removes=False), f"{where}.model")
    system = System.model_validate(
        dict(section)
        | {
            "name": name,
            "preset": section.preset or _model_name(family, model),
            "data": {} if family.imported else data,
            "model": model,
            "objective": parse(family.objective, section.objective, f"{where}.objective"),
            "training": _training(section, base, family, where),
            "bleu_tokeniser": _bleu_tokeniser(section, config),
        }
    )
    if why := reason(family, "conflict", system.model, system.objective):
        raise ConfigError(where, problem=why)
    if system.reversed and system.learnt_data != texts.RAW:
        words = texts.words(system.learnt_data)
        raise ConfigError(f"{where}.data", words, problem="reversed is true", allowed=[texts.RAW])
    _check_works_with(system, resolved, where)
    if family.updated and system.training.max_steps == 0 and not section.initial_weights:
        raise ConfigError(f"{where}.training.max_steps", 0, problem="without initial_weights", allowed="1 or more")
    return system


def _model_name(family: Family, model: Frozen) -> str:
    """The name of the folder of a model that was made elsewhere: tables show it in place of a preset."""
    return next(iter(family.files(model).values())).absolute().parent.name if family.files else ""


def _bleu_tokeniser(system: SystemConfig, config: WorkflowConfig) -> str:
    """sacreBLEU's tokeniser of the language that a system writes."""
    recipe = config.recipe
    return bleu_tokeniser(recipe.source) if system.reversed else bleu_tokeniser(recipe.target, recipe.bleu_tokeniser)


def _training(system: SystemConfig, base: System | None, family: Family, where: str) -> TrainingConfig:
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
    if base and system.data is None and system.training.augment is None:
        return system.training.model_copy(update={"augment": base.training.augment})
    return system.training


def _check_works_with(system: System, resolved: Mapping[str, System], where: str) -> None:
    """Check that the models of systems that a system is built on agree with its own. Raises ConfigError."""
    family = system.family
    for setting in ("init_from", "initial_weights"):
        if getattr(system.model, "start", None) == "random" and (weights := getattr(system, setting)):
            hint = "remove one of the two"
            raise ConfigError(f"{where}.{setting}", weights, problem="model.start is random", hint=hint)
    for role, name in system.filled.items():
        need, other = family.needs[role], resolved[name]
        if need.trait in other.family.lacks(other.model):
            problem = f"with its model settings no system that {phrase(need.trait)}"
            raise ConfigError(f"{where}.{role}", name, problem=problem, hint="change one of the two")
        for setting in need.agree:
            _check_agree(system, other, setting)
    started = resolved[system.init_from] if system.init_from else None
    why = reason(family, "continues", system.objective)
    if why and not system.initial_weights:
        alike = " or ".join(name for name, other in families().items() if other.build == family.build)
        if started is None:
            hint = f"name a system of family {alike}, or add initial_weights"
            raise ConfigError(f"{where}.init_from", problem=why, hint=hint)
        if started.family.build != family.build:
            raise ConfigError(f"{where}.init_from", started.name, allowed=f"a system of family {alike}")
        # Parts of other settings would be untrained.
        for setting in type(system.model).model_fields:
            if setting != "dropout":
                _check_agree(system, started, setting)
    # Transformers of different widths have almost no tensors of equal shape, and with other heads or norms the same
    # weights are another function. Other networks may share embeddings of one width and differ in dim.
    elif started:
        shared = type(system.model).model_fields.keys() & type(started.model).model_fields.keys()
        for setting in ("dim", "heads", "norm") if "heads" in shared else ():
            if setting in shared:
                _check_agree(system, started, setting)


def _check_agree(system: System, other: System, setting: str) -> None:
    """Raises ConfigError where two systems that work together differ in a setting of their models."""
    value: Any = getattr(system.model, setting, None)
    expected: Any = getattr(other.model, setting, None)
    if value != expected:
        problem = f"{other.name}, which it works with, has another"
        raise ConfigError(f"systems.{system.name}.model.{setting}", value, problem=problem, allowed=[expected])


def check_augmented(systems: Mapping[str, System], normalisation: NormalisationConfig) -> None:
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
