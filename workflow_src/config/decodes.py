"""The decodes of an experiment: lists written out, settings checked by searches and engines, names formed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

from workflow_src.config.datasets import TEST
from workflow_src.config.declared import reason
from workflow_src.config.experiment import DecodeConfig, DecodeDefaults, WorkflowConfig
from workflow_src.config.resolved import Decode, System
from workflow_src.config.roles import carried, named_systems
from workflow_src.errors import ConfigError
from workflow_src.registry import default_engine, engines, search_of, searches, searches_of
from workflow_src.spec import NONE, SCORER, UNKNOWN, Engine, Search, SearchSettings, parse, phrase


def resolve_decodes(
    config: WorkflowConfig, systems: dict[str, System], test_sets: tuple[str, ...]
) -> tuple[Decode, ...]:
    """Every decode of an experiment, one for each combination of listed values. Raises ConfigError."""
    for word in _as_tuple(config.decode_defaults.engine or ()):
        if word not in _engine_words():
            raise ConfigError("decode_defaults.engine", word, allowed=_engine_words())
    decodes: list[Decode] = []
    for number, own in enumerate(config.decodes):
        section, where = _with_defaults(own, config.decode_defaults), f"decodes[{number}]"
        is_shared = config.decode_defaults.engine is not None and "engine" not in own.model_fields_set
        engine_place = "decode_defaults.engine" if is_shared else f"{where}.engine"
        for name in _as_tuple(section.system):
            _check_system(name, systems, None, f"{where}.system")
            decodes += _decodes(section, systems[name], systems, test_sets, where, engine_place)
    for (system, name), count in Counter((decode.system, decode.name) for decode in decodes).items():
        if count > 1:
            raise ConfigError("decodes", problem=f"{system} has two named {name}", hint="give one of them a name")
    for decode in decodes:
        if config.runtime.device == "cpu" and not decode.runs_on("cpu"):
            problem = f"engine {decode.engine_word} of decode {decode.name} needs a GPU"
            raise ConfigError("runtime.device", "cpu", problem=problem, hint="change it, or remove the engine")
    return tuple(decodes)


def _with_defaults(section: DecodeConfig, defaults: DecodeDefaults) -> DecodeConfig:
    """A decode with the fields of `defaults` that it does not set; only one that tunes is chosen by a metric."""
    unused = section.model_fields_set | (set() if section.tune else {"tune_by"})
    return section.model_copy(update={name: getattr(defaults, name) for name in defaults.model_fields_set - unused})


def _check_system(name: str, systems: dict[str, System], trait: str | None, where: str) -> None:
    """Check that a system that a decode names exists, has the trait and reads the source. Raises ConfigError."""
    fits = [other for other, s in systems.items() if not s.reversed and (trait is None or trait in s.traits)]
    if name in fits:
        return
    problem = "" if name not in systems else f"no system that {phrase(trait)}"
    if name in systems and systems[name].reversed:
        problem = "it translates the other way round: it only scores pairs"
    raise ConfigError(where, name, problem=problem, allowed=fits)


def _decodes(
    section: DecodeConfig,
    system: System,
    systems: dict[str, System],
    test_sets: tuple[str, ...],
    where: str,
    engine_place: str,
) -> list[Decode]:
    """The decodes of one system that an entry of `decodes` stands for.

    `where` is the place of the entry, and `engine_place` that of its engine. Raises ConfigError.
    """
    names = searches_of(system.family)
    if section.search not in names:
        raise ConfigError(f"{where}.search", section.search, problem=f"not of system {system.name}", allowed=names)
    search = searches()[section.search]
    fields = _search_fields(section, search, where)
    listed = [name for name, value in fields.items() if isinstance(value, (list, tuple))]
    for name in listed:
        if not fields[name]:
            raise ConfigError(f"{where}.{name}", [], allowed="one value or more")
    tune = _tune(section, search, where)
    if section.tune_by and not tune:
        hint = "add tune, or remove it"
        raise ConfigError(f"{where}.tune_by", section.tune_by, problem="tune lists no settings", hint=hint)
    decodes, all_tried = [], []
    for combination in itertools.product(*(fields[name] for name in listed)):
        raw = fields | dict(zip(listed, combination, strict=True))
        settings = _filled(parse(search.settings, raw, where), system, systems, where)
        tried = _tried(search, settings, tune, where)
        _check_served(search, tried, system, systems, where)
        settings.check_used(tune, where)
        all_tried += tried
        for word in _as_tuple(section.engine or system.family.engine or default_engine().name):
            engine, compute_type = _engine(word, system, search, tried, engine_place, where)
            part = "" if engine is default_engine() else f"-{engine.word(compute_type)}"
            try:
                decode_name = _name(section, settings, listed, part)
            except ConfigError as error:
                raise error.within(where) from error
            fields_of_decode = {
                "system": system.name,
                "search": search.name,
                "name": decode_name,
                "values": settings,
                "engine": engine.name,
                "compute_type": compute_type,
                # `test` stands for all test sets.
                "splits": tuple(name for s in section.splits for name in (test_sets if s == TEST else (s,))),
                "batch": section.batch,
                "shards": section.shards,
                "tune": {name: list(dict.fromkeys(getattr(s, name) for s in tried[1:])) for name in tune},
                "tune_by": section.tune_by,
            }
            # Settings and systems may make a name that is too long for names of files.
            decodes.append(parse(Decode, fields_of_decode, where))
    _check_candidates(search, all_tried, where)
    return decodes


def check_search_defaults(system: System, systems: dict[str, System]) -> None:
    """Check `search_defaults` of a system, with the systems that its bundle carries. Raises ConfigError."""
    allowed = list(searches_of(system.family))
    for name, fields in system.search_defaults.items():
        where = f"systems.{system.name}.search_defaults"
        if name not in allowed:
            raise ConfigError(f"{where}.{name}", problem=f"no search of family {system.family.name}", allowed=allowed)
        search = searches()[name]
        where = f"{where}.{name}"
        for field in search.settings.named("role"):
            if field in fields:
                problem = "bundles carry the systems that `carries` names"
                raise ConfigError(f"{where}.{field}", fields[field], problem=problem, hint="remove it")
        carried_systems = {
            option.setting: system.carries[role]
            for role, option in carried(system.family).items()
            if role in system.carries and option.setting in search.settings.model_fields
        }
        settings = _filled(parse(search.settings, carried_systems | fields, where), system, systems, where)
        settings.check_used(section=where)
        _check_served(search, [settings], system, systems, where)


def _tried(
    search: Search, settings: SearchSettings, tune: dict[str, tuple[Any, ...]], where: str
) -> list[SearchSettings]:
    """Settings as they are, and with every combination of the values that dev chooses from, those without effect too:
    each value is checked."""
    fields = settings.model_dump()
    products = (dict(zip(tune, chosen, strict=True)) for chosen in itertools.product(*tune.values()))
    return [settings, *(parse(search.settings, fields | chosen, f"{where}.tune") for chosen in products if chosen)]


def _check_served(
    search: Search, tried: list[SearchSettings], system: System, systems: dict[str, System], where: str
) -> None:
    """Raises ConfigError where a search cannot decode a system, or its base, with some of the settings `tried`, or not
    with the systems that these name."""
    for settings in tried:
        named = {role: systems[name] for role, name in named_systems(settings).items()}
        try:
            search.check(settings, {role: (other.family, other.model) for role, other in named.items()})
        except ConfigError as error:
            raise error.within(where) from error
    for network in system.networks(systems):
        for settings in tried:
            if why := reason(network.family, "refuses", network.model, search, settings):
                subject = system.name if network is system else f"{system.name}, whose base is {network.name},"
                raise ConfigError(where, problem=f"search {search.name} of system {subject} {why}")


def _check_candidates(search: Search, tried: list[SearchSettings], where: str) -> None:
    """Raises ConfigError where candidates are ranked and no settings give more than one."""
    if not tried:
        return
    first = tried[0]
    names = [name for name, role in first.roles().items() if search.needs[role].trait == SCORER]
    ranked = next((name for name in names if getattr(first, name)), None)
    if ranked and all(search.width(settings) == 1 for settings in tried):
        raise ConfigError(
            f"{where}.{ranked}",
            getattr(first, ranked),
            problem=f"with these settings search {search.name} has one candidate",
            hint="remove it, or ask for more candidates",
        )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _search_fields(section: DecodeConfig, search: Search, where: str) -> dict[str, Any]:
    """Settings of the search in a decode, with lists as they are."""
    fields = dict(section.model_extra or {})
    for name in fields:
        if name not in search.settings.model_fields:
            allowed = [*DecodeConfig.model_fields, *search.settings.model_fields]
            raise _unknown(name, search, allowed, f"{where}.{name}")
    for name in search.settings.named("required"):
        if name not in fields:
            raise ConfigError(f"{where}.{name}", problem="missing", hint="add it")
    return fields


def _unknown(name: str, search: Search, allowed: Iterable[str], where: str) -> ConfigError:
    """The error of a setting that a search has not, but others may have."""
    owners = [other.name for other in searches().values() if name in other.settings.model_fields]
    if not owners:
        return ConfigError(where, problem=UNKNOWN, allowed=allowed)
    if search.name in owners:
        return ConfigError(where, problem="dev cannot choose it", allowed=allowed)
    return ConfigError(
        where, problem=f"no setting of search {search.name} but of {', '.join(owners)}", hint="remove it"
    )


def _filled(settings: SearchSettings, system: System, systems: dict[str, System], where: str) -> SearchSettings:
    """Settings with a default for the search whose steps are taken; names of systems and searches are checked."""
    for name in settings.named("steps"):
        candidates = [search for network in system.networks(systems) for search in searches_of(network.family)]
        stepping = [search for search in candidates if searches()[search].refines]
        value = getattr(settings, name)
        if value is not None and value not in stepping:
            raise ConfigError(f"{where}.{name}", value, problem="no search that takes steps", allowed=stepping)
        if value is None and stepping:
            settings = settings.model_copy(update={name: stepping[0]})
    for name, filled in settings.roles().items():
        role, value = search_of(settings).needs[filled], getattr(settings, name)
        if value is not None:
            _check_system(value, systems, role.trait, f"{where}.{name}")
        elif not role.optional:
            raise ConfigError(f"{where}.{name}", problem="missing", hint=f"name a system that {phrase(role.trait)}")
    return settings


def _tune(section: DecodeConfig, search: Search, where: str) -> dict[str, tuple[Any, ...]]:
    """Values to choose from on dev by setting: those that the decode lists, or the usual ones of the setting."""
    allowed = search.settings.named("tune")
    for name in section.tune:
        if name not in allowed:
            raise _unknown(name, search, allowed, f"{where}.tune.{name}")
        if (value := (section.model_extra or {}).get(name)) is not None:
            raise ConfigError(f"{where}.{name}", value, problem="dev chooses it (tune)", hint="remove one of the two")
    if isinstance(section.tune, dict):
        return section.tune
    return {name: search.settings.option(name).tune for name in section.tune}


def _name(section: DecodeConfig, settings: SearchSettings, listed: list[str], engine: str) -> str:
    """The name of a decode in files: its `name`, or that of the search with the parts of its settings."""
    if section.name:
        several = "".join(settings.name_part(name) for name in listed)
        return section.name + several + (engine if isinstance(section.engine, tuple) else "")
    parts = settings.name_parts()
    # A search whose steps are taken has no part where it is the system's own.
    written = section.model_extra or {}
    stated = [name for name in settings.named("steps") if written.get(name) not in (None, *NONE)]
    without_part = [name for name in (*listed, *stated) if settings.option(name).part is None]
    parts += "".join(map(settings.name_part, dict.fromkeys(without_part)))
    return section.search + parts + ("-tuned" if section.tune else "") + engine


def _engine_words() -> dict[str, tuple[Engine, str | None]]:
    return {word: (engine, kind) for engine in engines().values() for word, kind in engine.words.items()}


def _engine(
    word: str, system: System, search: Search, tried: list[SearchSettings], where: str, decode: str
) -> tuple[Engine, str | None]:
    """The engine and the precision that a word such as `ctranslate2-int8` names; its first where it names none.

    Raises ConfigError where the engine cannot run the decode, whose place is `decode`.
    """
    is_shared = not where.startswith(decode)
    of_decode = f"{decode} (system {system.name}, search {search.name}) uses it, and " if is_shared else ""
    hint = f"or set engine in {decode}" if is_shared else ""
    words = _engine_words()
    if word not in words:
        raise ConfigError(where, word, allowed=words)
    engine, compute_type = words[word]
    only = system.family.engine
    if only and engine.name != only:
        problem = f"{of_decode}it computes no models of family {system.family.name}"
        raise ConfigError(where, word, problem=problem, allowed=engines()[only].words, hint=hint)
    for settings in tried:
        why = reason(engine, "serves", system.family, search, settings)
        if why:
            raise ConfigError(where, word, problem=f"{of_decode}it {why}", hint=hint)
    return engine, compute_type
