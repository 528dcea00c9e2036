"""Systems with a list in place of a setting: one system for each value."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from workflow_src.config.experiment import setting_words
from workflow_src.config.files import merge
from workflow_src.config.relations import relations
from workflow_src.config.training import TrainingConfig
from workflow_src.errors import ConfigError
from workflow_src.registry import families

# Settings of systems by name; None for one that is removed.
Systems = dict[str, Any]


def swept(raw: dict[str, Any]) -> dict[str, Any]:
    """An experiment with one system for each value of the lists in `systems`; its form is checked, and no more.

    Decodes and grids that name such an entry of `systems` then name all systems that it stands for. Raises ConfigError.
    """
    members = members_of(raw.get("systems", {}))
    return naming(raw, members) | ({"systems": everyone(members)} if "systems" in raw else {})


def everyone(members: Mapping[str, Systems]) -> Systems:
    """All systems of `members_of`."""
    return {name: system for group in members.values() for name, system in group.items()}


def members_of(systems: Systems) -> dict[str, Systems]:
    """The systems that each entry of `systems` stands for: itself, or one for each combination of listed values.

    An entry with the name of one of these has settings of its own for it, or removes it by null. Raises ConfigError for
    a list without values, for two systems of one name, and where a setting means one system and names an entry with
    lists.
    """
    members = {name: _members(name, section) for name, section in systems.items() if section is not None}
    owners = {member: name for name, group in members.items() for member in group if member != name}
    for member in owners.keys() & systems.keys():
        own, group = systems[member], members[owners[member]]
        members.pop(member, None)
        if own is None:
            del group[member]
            continue
        if "family" in own:
            problem = f"the lists of systems.{owners[member]} give a system of this name"
            raise ConfigError(f"systems.{member}", problem=problem, hint="rename one of the two")
        group[member] = merge(group[member], own)
    _refuse_several(members)
    return members


def _refuse_several(members: Mapping[str, Systems]) -> None:
    """Raises ConfigError for a system that is built on an entry with lists, learns from its text or carries it."""
    several = {name: list(group) for name, group in members.items() if name not in group}
    for name, system in everyone(members).items() if several else ():
        for setting, value, other in relations(name, system).references:
            if other in several:
                problem = f"the lists of systems.{other} stand for several systems"
                allowed = [value.replace(other, member) for member in several[other]]
                raise ConfigError(f"systems.{name}.{setting}", value, problem=problem, allowed=allowed)


def naming(raw: dict[str, Any], members: Mapping[str, Systems]) -> dict[str, Any]:
    """`raw` with all members in place of an entry of `systems` that its decodes and grids name."""

    def named(section: dict[str, Any], setting: str) -> dict[str, Any]:
        value = section.get(setting, [])
        listed = value if isinstance(value, list) else [value]
        every = listing(listed, members)
        return section if every == listed else section | {setting: every}

    changed = dict(raw)
    # The word none may stand in place of a section or a list.
    if isinstance(decodes := raw.get("decodes"), list):
        changed["decodes"] = [named(decode, "system") for decode in decodes]
    report = raw.get("report")
    if isinstance(report, dict) and isinstance(grids := report.get("grids"), list):
        changed["report"] = report | {"grids": [named(grid, "systems") for grid in grids]}
    return changed


def listing(names: Iterable[str], members: Mapping[str, Systems]) -> list[str]:
    """`names` of systems with all members in place of an entry of `systems`."""
    return [member for name in names for member in members.get(name, [name])]


def _members(name: str, section: dict[str, Any]) -> Systems:
    """The systems of one entry, by name; an entry without lists is its own member."""
    lists = {place: values for place, values in _settings(section) if isinstance(values, list)}
    if not lists:
        return {name: section}
    members: Systems = {}
    for values in itertools.product(*lists.values()):
        member, parts = dict(section), [name]
        for (group, setting), value in zip(lists, values, strict=True):
            member |= {group: member[group] | {setting: value}} if group else {setting: value}
            parts.append(_part(setting, value))
        if "-".join(parts) in members:
            raise ConfigError(f"systems.{name}", problem=f"its lists give two systems named {'-'.join(parts)}")
        members["-".join(parts)] = member
    if not members:
        group, setting = next(place for place, values in lists.items() if not values)
        where = ".".join(filter(None, ["systems", name, group, setting]))
        raise ConfigError(where, [], allowed="one value or more")
    return members


def _settings(section: dict[str, Any]) -> Iterable[tuple[tuple[str, str], Any]]:
    """Settings of a system that may be listed, by group and name: its preset, and those of its groups.

    A setting whose value is a list by itself is listed where its first entry is a list too.
    """
    family = families().get(section.get("family", ""))
    if family is None:
        return
    yield ("", "preset"), section.get("preset")
    for group, kind in (("model", family.model), ("objective", family.objective), ("training", TrainingConfig)):
        settings = section.get(group)
        for setting, value in settings.items() if isinstance(settings, dict) else ():
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
