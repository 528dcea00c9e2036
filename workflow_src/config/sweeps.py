"""Systems with a list in place of a setting: one system for each value."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from workflow_src.config.experiment import TrainingConfig, setting_words
from workflow_src.config.files import merge
from workflow_src.config.texts import system_behind
from workflow_src.errors import ConfigError
from workflow_src.registry import families

Systems = dict[Any, Any]


def swept(raw: dict[str, Any]) -> dict[str, Any]:
    """An experiment that is not checked yet, with one system for each value of the lists in `systems`.

    Decodes and grids that name such an entry of `systems` then name all systems that it stands for. Raises ConfigError.
    """
    members = members_of(raw.get("systems"))
    return naming(raw, members) | {"systems": everyone(members)} if members else raw


def everyone(members: Mapping[Any, Systems]) -> Systems:
    """All systems of `members_of`."""
    return {name: system for group in members.values() for name, system in group.items()}


def members_of(systems: Any) -> dict[Any, Systems]:
    """The systems that each entry of `systems` stands for: itself, or one for each combination of listed values.

    An entry with the name of one of these has settings of its own for it, or removes it by null. Raises ConfigError for
    a list without values, for two systems of one name, and where a setting means one system and names an entry with
    lists.
    """
    if not isinstance(systems, dict):
        return {}
    members = {name: _members(name, section) for name, section in systems.items()}
    owners = {member: name for name, group in members.items() for member in group if member != name}
    for member in owners.keys() & systems.keys():
        own, group = systems[member], members[owners[member]]
        del members[member]
        if own is None:
            del group[member]
            continue
        if not isinstance(own, dict) or "family" in own:
            problem = f"the lists of systems.{owners[member]} give a system of this name"
            raise ConfigError(f"systems.{member}", problem=problem, hint="rename one of the two")
        group[member] = merge(group[member], own)
    _refuse_several(members)
    return members


def _refuse_several(members: Mapping[Any, Systems]) -> None:
    """Raises ConfigError for a system that is built on an entry with lists, learns from its text or carries it."""
    several = {name: list(group) for name, group in members.items() if name not in group}
    for name, system in everyone(members).items():
        for setting, value, other in _references(system):
            if other in several:
                problem = f"the lists of systems.{other} stand for several systems"
                allowed = [value.replace(other, member) for member in several[other]]
                raise ConfigError(f"systems.{name}.{setting}", value, problem=problem, allowed=allowed)


def _references(system: Any) -> Iterable[tuple[str, str, str]]:
    """Settings of a system that is not checked yet and that name another one: the setting, its value, this system."""
    section = system if isinstance(system, dict) else {}
    named = {setting: section.get(setting) for setting in ("base", "init_from")}
    for group in ("roles", "carries"):
        if isinstance(roles := section.get(group), dict):
            named |= {f"{group}.{role}": other for role, other in roles.items()}
    yield from ((setting, other, other) for setting, other in named.items() if isinstance(other, str))
    data = section.get("data")
    for text in data if isinstance(data, dict) else [data]:
        if isinstance(text, str) and (other := system_behind(text)):
            yield "data", text, other


def naming(raw: dict[str, Any], members: Mapping[Any, Systems]) -> dict[str, Any]:
    """`raw` with all members in place of an entry of `systems` that its decodes and grids name."""

    def named(section: Any, setting: str) -> Any:
        value = section.get(setting) if isinstance(section, dict) else None
        listed = value if isinstance(value, list) else [value]
        every = listing(listed, members)
        return section if every == listed else section | {setting: every}

    changed = dict(raw)
    if isinstance(decodes := raw.get("decodes"), list):
        changed["decodes"] = [named(decode, "system") for decode in decodes]
    if isinstance(report := raw.get("report"), dict) and isinstance(grids := report.get("grids"), list):
        changed["report"] = report | {"grids": [named(grid, "systems") for grid in grids]}
    return changed


def listing(names: Iterable[Any], members: Mapping[Any, Systems]) -> list[Any]:
    """`names` of systems with all members in place of an entry of `systems`."""
    return [member for name in names for member in (members.get(name, [name]) if isinstance(name, str) else [name])]


def _members(name: Any, section: Any) -> Systems:
    """The systems of one entry, by name; an entry without lists is its own member."""
    lists = {place: values for place, values in _settings(section) if isinstance(values, list)}
    if not lists:
        return {name: section}
    members: Systems = {}
    for values in itertools.product(*lists.values()):
        member, parts = dict(section), [str(name)]
        for (group, setting), value in zip(lists, values, strict=True):
            member |= {group: member[group] | {setting: value}} if group else {setting: value}
            parts.append(_part(setting, value))
        if "-".join(parts) in members:
            raise ConfigError(f"systems.{name}", problem=f"its lists give two systems named {'-'.join(parts)}")
        members["-".join(parts)] = member
    if not members:
        group, setting = next(place for place, values in lists.items() if not values)
        where = ".".join(filter(None, ["systems", str(name), group, setting]))
        raise ConfigError(where, [], allowed="one value or more")
    return members


def _settings(section: Any) -> Iterable[tuple[tuple[str, str], Any]]:
    """Settings of a system that may be listed, by group and name: its preset, and those of its groups.

    A setting whose value is a list by itself is listed where its first entry is a list too.
    """
    family = families().get(str(section.get("family"))) if isinstance(section, dict) else None
    if family is None:
        return
    yield ("", "preset"), section.get("preset")
    for group, kind in (("model", family.model), ("objective", family.objective), ("training", TrainingConfig)):
        for setting, value in (section.get(group) or {}).items() if isinstance(section.get(group), dict) else ():
            field = kind.model_fields.get(setting)
            nested = isinstance(value, list) and value and isinstance(value[0], list)
            if field is not None and (nested or not _holds_lists(field.annotation)):
                yield (group, setting), value


def _holds_lists(annotation: Any) -> bool:
    return get_origin(annotation) in (tuple, list) or any(map(_holds_lists, get_args(annotation)))


def _part(setting: str, value: Any) -> str:
    """The part of a system's name for a value: a word by itself, anything else behind its setting."""
    words = value if isinstance(value, str) else f"{setting}{setting_words(value)}".replace("_", "-").replace(".", "_")
    return re.sub(r"[^a-z0-9_-]+", "-", words.lower())
