"""What every configuration class shares: frozen, strict, and errors of one sentence."""

from __future__ import annotations

import difflib
import re
from typing import Any

import pydantic

from workflow_src.spec import Frozen

__all__ = ["ConfigError", "Frozen", "nearest", "parse", "unknown"]

ALTERNATIVE = re.compile(r"^(str|int|float|tuple\[.*|[A-Z]\w*Config|function-.*)$")


class ConfigError(ValueError):
    """A setting that cannot be used: the message names it, its value, what is allowed and the fix."""


def nearest(name: str, allowed: list[str]) -> str:
    """A hint such as ' Did you mean "seeds"?', or nothing when no name is close."""
    match = difflib.get_close_matches(str(name), allowed, n=1, cutoff=0.6)
    return f' Did you mean "{match[0]}"?' if match else ""


def unknown(kind: str, name: str, allowed: list[str], where: str = "") -> ConfigError:
    """The error for a name that is none of `allowed`."""
    place = f" in {where}" if where else ""
    choices = ", ".join(sorted(allowed)) or "none are defined"
    return ConfigError(f'unknown {kind} "{name}"{place}; allowed: {choices}.{nearest(name, allowed)}')


def parse(model: type[Frozen], raw: Any, where: str) -> Any:
    """`raw` as a validated `model`.

    Raises ConfigError for the first thing wrong: the key, its value, what is allowed, the nearest valid key.
    `where` is the place in the configuration, such as `systems.teacher.training`.
    """
    try:
        return model.model_validate(raw)
    except pydantic.ValidationError as failure:
        errors = failure.errors()
        # Of a setting that is a name or a section, a section was meant where one is given.
        meant = [e for e in errors if not (e["type"] == "string_type" and isinstance(e["input"], dict))]
        raise ConfigError(_sentence(model, (meant or errors)[0], where)) from None


def _sentence(model: type[Frozen], error: dict[str, Any], where: str) -> str:
    # Pydantic names the tried alternative of a union in between: no user wrote that.
    location = [str(part) for part in error["loc"] if not ALTERNATIVE.match(str(part))]
    path = ".".join(filter(None, [where, *location]))
    if error["type"] == "extra_forbidden":
        allowed = _fields_at(model, error["loc"][:-1])
        place = ".".join(filter(None, [where, *location[:-1]])) or "the configuration"
        return (
            f'unknown setting "{location[-1]}" in {place}; allowed: {", ".join(sorted(allowed))}.'
            f"{nearest(location[-1], allowed)}"
        )
    if error["type"] == "missing":
        return f"missing setting {path}: add it to the configuration."
    problem = error["msg"].removeprefix("Value error, ")
    problem = problem[0].lower() + problem[1:]
    return f"setting {path} has the value {error['input']!r}: {problem}; change it in the configuration."


def _fields_at(model: type[Frozen], location: tuple[Any, ...]) -> list[str]:
    """Names of the fields of the section that `location` points to (lists, mappings and unions looked through)."""
    found: list[str] = []

    def models_in(annotation: Any) -> list[type]:
        if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
            return [annotation]
        return [inner for part in getattr(annotation, "__args__", ()) for inner in models_in(part)]

    current: list[type] = [model]
    for part in location:
        following = []
        for candidate in current:
            field = candidate.model_fields.get(part) if isinstance(part, str) else None
            if field is not None:
                following += models_in(field.annotation)
        # An index, a mapping's key or a union's tag names no field: stay where we are.
        current = following or current
    for candidate in current:
        found += list(candidate.model_fields)
    return found
