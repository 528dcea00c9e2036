"""Calls of functions that declarations have, which may be a plug-in's."""

from __future__ import annotations

from typing import Any

from workflow_src.errors import DeclarationError, InputError, reason_of, short_repr
from workflow_src.registry import members


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
