"""What every configuration class shares: frozen, strict, and errors of one sentence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic
from pydantic import AfterValidator

from workflow_src.spec import Frozen, place, problem, shown

__all__ = ["ConfigError", "Frozen", "distinct", "named", "nearest", "parse", "unknown", "shown", "written"]

# Names that users give become parts of names of files, which file systems limit to 255 bytes.
LONGEST_NAME = 100

ALTERNATIVE = re.compile(r"^(str|int|float|tuple\[.*|literal\[.*|constrained-\w+|[A-Z]\w*Config|function-.*)$")


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
    return ConfigError(f'unknown {kind} "{_cut(str(name))}"{place}; allowed: {choices}.{nearest(name, allowed)}')


def written(pattern: str, rule: str) -> AfterValidator:
    """Checks text that is a code, an address or the like; `rule` says what all of it must look like."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(rule)
        return value

    return AfterValidator(check)


def named(pattern: str, rule: str) -> AfterValidator:
    """`written`, for names: they are not longer than names of files can bear."""
    form = written(pattern, rule)

    def check(value: str) -> str:
        if len(value) > LONGEST_NAME:
            raise ValueError(f"a name has at most {LONGEST_NAME} characters, and this one has {len(value)}")
        return form.func(value)

    return AfterValidator(check)


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A list without anything twice, as a validator."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"it has {value} twice; name every one once")
    return values


def parse(model: type[Frozen], raw: Any, where: str) -> Any:
    """`raw` as a validated `model`.

    Raises ConfigError for the first thing wrong: the key, its value, what is allowed, the nearest valid key.
    `where` is the place in the configuration, such as `systems.teacher.training`.
    """
    try:
        return model.model_validate(raw)
    except pydantic.ValidationError as failure:
        errors = failure.errors()
        # Of a setting that is a name, or a number, or a section, a section was meant where one is given.
        meant = [e for e in errors if not (e["type"] in ("string_type", "int_type") and isinstance(e["input"], dict))]
        raise ConfigError(_sentence(model, (meant or errors)[0], where, raw)) from None


def _sentence(model: type[Frozen], error: dict[str, Any], where: str, raw: Any) -> str:
    location = _location(error["loc"], raw)
    *above, last = location or [""]
    path = _path(where, location)
    if error["type"] == "extra_forbidden":
        allowed = _fields_at(model, error["loc"][:-1])
        section = _path(where, above) or "the configuration"
        return f'unknown setting "{last}" in {section}; allowed: {", ".join(sorted(allowed))}.{nearest(last, allowed)}'
    if error["type"] == "missing" and isinstance(last, int):
        return f"setting {_path(where, above)} has too few entries: entry {last + 1} is missing; add it."
    if error["type"] == "missing" and (misspelt := _nearly(last, error["input"], _fields_at(model, error["loc"][:-1]))):
        section = _path(where, above) or "the configuration"
        return f'unknown setting "{_cut(misspelt)}" in {section}. Did you mean "{last}"?'
    if error["type"] == "missing":
        return f"missing setting {path}: add it to the configuration."
    if error["type"] == "invalid_key":
        section = _path(where, above) or "the configuration"
        return f"{section}: the name {shown(error['input'])} is no text; write it in quotes, or choose another."
    if last == "[key]":
        # Of a mapping's name. YAML reads 5 and yes as a number and as true.
        section, value = _path(where, above[:-1]), error["input"]
        if isinstance(value, str):
            return f'{section}: the name "{_cut(value)}" cannot be used: {problem(error)}.'
        return f"{section}: the name {shown(value)} is no text; write it in quotes, or choose another."
    if error["type"] == "value_error" and (not path or isinstance(error["input"], dict)):
        # Of several settings together: the sentence names those that it is about.
        return f"setting {path}: {problem(error)}." if path else f"{problem(error)}."
    return f"setting {path} has the value {shown(error['input'])}: {problem(error)}; change it in the configuration."


def _nearly(name: str, section: Any, fields: list[str]) -> str | None:
    """The setting of a section that is most like the missing `name` and none of its fields, or None."""
    others = [key for key in section if isinstance(key, str) and key not in fields] if isinstance(section, dict) else []
    return next(iter(difflib.get_close_matches(name, others, n=1, cutoff=0.6)), None)


def _location(parts: Sequence[str | int], raw: Any) -> list[str | int]:
    """Where in `raw` an error is: between names that a user wrote, pydantic tells the tried alternative of a union."""
    found = []
    for part in parts:
        if isinstance(raw, Mapping) and part in raw:
            raw = raw[part]
        elif isinstance(raw, list | tuple) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        elif ALTERNATIVE.match(str(part)):
            continue
        found.append(part)
    return found


def _cut(name: str) -> str:
    printable = name.encode("unicode_escape").decode("ascii") if not name.isprintable() else name
    return printable if len(printable) <= 40 else printable[:37] + "..."


def _path(where: str, location: Sequence[str | int]) -> str:
    return ".".join(filter(None, [where, place(location)]))


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
