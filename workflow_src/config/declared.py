"""Members that a configuration names: their settings, and calls of their functions, which may be a plug-in's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workflow_src.errors import ConfigError, DeclarationError, InputError, reason_of, short_repr
from workflow_src.registry import filters, members
from workflow_src.spec import Frozen, parse


def subject(member: Any) -> str:
    """A member in words, with the plug-in that declares it."""
    kind = type(member).__name__.lower()
    owner = members().owners.get((kind, member.name))
    return f'{kind} "{member.name}"' + (f" of plug-in {owner.plugin.name}" if owner else "")


def called(member: Any, function: str, *arguments: Any) -> Any:
    """The result of a function of a declaration. Raises InputError as it does, and DeclarationError where it fails."""
    try:
        return getattr(member, function)(*arguments)
    except InputError:
        raise
    except Exception as failure:
        problem = f"has a {function} that fails: {reason_of(failure)}"
        raise DeclarationError(subject(member), problem, "correct it") from failure


def reason(member: Any, function: str, *arguments: Any) -> str | None:
    """Why not, as a function of a declaration says, or None. Raises DeclarationError where it says anything else."""
    result = called(member, function, *arguments)
    if result is None or isinstance(result, str):
        return result
    problem = f"has a {function} whose result is {short_repr(result)}"
    raise DeclarationError(subject(member), problem, "return None, or text that says why not")


def member_settings(kind: str, sections: Mapping[str, Any], members: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings of declared `members` of a kind, such as metrics, by name. Raises ConfigError, in section `where`."""
    for name in sections:
        if name not in members:
            raise ConfigError(f"{where}.{name}", problem=f"no {kind}", allowed=members)
    return {name: parse(members[name].settings, section, f"{where}.{name}") for name, section in sections.items()}


def filter_settings(sections: Iterable[tuple[str, Any]], languages: tuple[str, str]) -> dict[str, Frozen]:
    """Settings of filters by name, in their order. Raises ConfigError for filters that cannot be used."""
    cleaning = member_settings("filter", dict(sections), filters(), "recipe.clean")
    for name, settings in cleaning.items():
        if why := reason(filters()[name], "conflict", settings, languages):
            hint = "change its settings, or remove the filter"
            raise ConfigError(f"recipe.clean.{name}", problem=f"it {why}", hint=hint)
    return cleaning
