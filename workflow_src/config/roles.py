"""Which systems a search works with, by role, and which of its settings decide that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from workflow_src.errors import ConfigError
from workflow_src.registry import search_of, searches, searches_of
from workflow_src.spec import MODEL, Family, Role, Search, SearchSettings, phrase


def named_systems(settings: SearchSettings) -> dict[str, str]:
    """Names of the systems that settings name, by the role they fill."""
    return {role: system for name, role in settings.roles().items() if (system := getattr(settings, name))}


def of_the_family(settings: SearchSettings, filled: Mapping[str, Any]) -> dict[str, Any]:
    """Roles of the family that the search's settings do not name."""
    in_settings = settings.roles().values()
    return {role: member for role, member in filled.items() if role not in in_settings}


@dataclasses.dataclass(frozen=True)
class Carried:
    """A system that a bundle may carry for a search: the setting that names it, and the trait that it must have."""

    setting: str
    trait: str | None


def carried(family: Family) -> dict[str, Carried]:
    """Optional systems that bundles of a family may carry for its searches, by role."""
    return {
        role: Carried(name, search.needs[role].trait)
        for search in (searches()[name] for name in searches_of(family))
        for name, role in search.settings.roles().items()
        if search.settings.option(name).carried
    }


def roles() -> tuple[str, ...]:
    """Roles that settings of any search may name systems for."""
    return tuple(dict.fromkeys(role for search in searches().values() for role in search.settings.roles().values()))


def followed(settings: SearchSettings) -> dict[str, Any]:
    """Settings of a search that analyses keep when they follow it step by step."""
    names = dict.fromkeys(name for search in searches().values() for name in search.settings.named("follow"))
    values = settings.model_dump()
    return {name: values[name] for name in names if name in values}


def plain(settings: SearchSettings) -> bool:
    """True for settings at their defaults, apart from the series and those that analyses keep."""
    free = {search_of(settings).series, *settings.named("follow")}
    names = [name for name in type(settings).model_fields if name not in free]
    return all(getattr(settings, name) == settings.default(name) for name in names)


def refinement(settings: SearchSettings) -> Search | None:
    """The search whose steps a search takes: its own, or the one that a setting names; None where it takes none."""
    search = search_of(settings)
    if search.refines:
        return search
    borrowed = [getattr(settings, name) for name in settings.named("steps")]
    return searches()[borrowed[0]] if borrowed and borrowed[0] else None


def needs(settings: SearchSettings) -> dict[str, Role]:
    """Roles of networks that a search needs with these settings: its own, and those of the steps it takes."""
    stepping = refinement(settings)
    return {**(stepping.needs if stepping else {}), **search_of(settings).needs}


def fill(needed: Mapping[str, Role], own: Iterable[tuple[Any, Family]], named: Mapping[str, Any]) -> dict[str, Any]:
    """Members by role: the one that is `named` for it, or else the first of a system's `own` whose family fits.

    Optional roles may stay empty. Raises ConfigError for any other empty role.
    """
    filled, own = {role: network for role, network in named.items() if role in needed}, list(own)
    for name, role in needed.items():
        if name not in filled:
            fits = [network for network, family in own if role.trait is None or role.trait in family.traits]
            if fits and not (role.optional and role.trait):
                filled[name] = fits[0]
            elif not role.optional:
                problem = f"needs a network that {phrase(role.trait)}, and this system has none"
                raise ConfigError(name, problem=problem, hint=f"name one as {name}")
    return filled


def decoded(settings: SearchSettings, own: Iterable[tuple[Any, Family]]) -> Any:
    """The first network of `own` (a system's, then its base's) that a search decodes; None where none fits."""
    trait = needs(settings)[MODEL].trait
    return next((network for network, family in own if trait is None or trait in family.traits), None)
