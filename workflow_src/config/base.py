"""Types of settings, and reading a section with errors of one sentence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pydantic
from pydantic import AfterValidator

from workflow_src.errors import ConfigError, short_repr
from workflow_src.spec import UNKNOWN, Frozen, place, refused
from workflow_src.spec.sections import EACH_ONCE

__all__ = ["Frozen", "distinct", "matching", "named", "parse"]

Section = TypeVar("Section", bound=Frozen)
# Names that users give become parts of names of files, which file systems limit to 255 bytes.
LONGEST_NAME = 100
CONFIGURATION = "the configuration"
# Places in pydantic's errors that name an alternative of a union, which no user wrote.
ALTERNATIVE = re.compile(r"^(str|int|float|(dict|tuple)\[.*|literal\[.*|constrained-\w+|[A-Z]\w*Config|function-.*)$")


def matching(pattern: str, rule: str | tuple[str, ...]) -> AfterValidator:
    """Checks text that is a code, an address or the like; `rule` describes what is allowed."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ConfigError("", allowed=rule)
        return value

    return AfterValidator(check)


def named(pattern: str, rule: str) -> AfterValidator:
    """`matching` for names, which are short enough for names of files."""
    return matching(rf"(?=.{{1,{LONGEST_NAME}}}\Z){pattern}", f"{rule}, at most {LONGEST_NAME}")


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Checks that no value of a list occurs twice."""
    if len(set(values)) < len(values):
        raise ConfigError("", allowed=EACH_ONCE)
    return values


def parse(model: type[Section], raw: Any, where: str) -> Section:
    """`raw` as a validated `model`. Raises ConfigError for the first setting that is wrong.

    `where` is the place in the configuration, such as `systems.teacher.training`.
    """
    try:
        return model.model_validate(raw)
    except pydantic.ValidationError as failure:
        errors = failure.errors()
        # A setting may be a name, a number or a section: given a section, only errors of the section count.
        likely = [e for e in errors if not (e["type"] in ("string_type", "int_type") and isinstance(e["input"], dict))]
        raise _error(model, (likely or errors)[0], where, raw) from None


def _error(model: type[Frozen], error: Mapping[str, Any], where: str, raw: Any) -> ConfigError:
    location = _location(error["loc"], raw)
    *above, last = location or [""]
    section, value = _path(where, above), error["input"]
    fields = _fields_at(model, error["loc"][:-1])
    if error["type"] == "extra_forbidden":
        return ConfigError(_path(where, location), problem=UNKNOWN, allowed=fields)
    if error["type"] == "missing" and isinstance(last, str) and (misspelt := _nearly(last, value, fields)):
        return ConfigError(_path(section, [misspelt]), problem=UNKNOWN, allowed=[last])
    if error["type"] == "missing":
        return ConfigError(_path(where, location), problem="missing", hint="add it")
    # A mapping's name. YAML reads 5 and yes as a number and as true.
    if error["type"] == "invalid_key" or (last == "[key]" and not isinstance(value, str)):
        names = section if last != "[key]" else _path(where, above[:-1])
        return ConfigError(
            names or CONFIGURATION, problem=f"the name {short_repr(value)} is no text", hint="write it in quotes"
        )
    if error["type"] == "string_type" and isinstance(value, bool):
        hint = "write it in quotes: YAML reads no and off as false, yes and on as true"
        return ConfigError(_path(where, location), value, problem="it must be text", hint=hint)
    if last == "[key]":
        return refused(error, name_in(_path(where, above[:-1])))
    return refused(error, _path(where, location) or CONFIGURATION)


def _nearly(name: str, section: Any, fields: list[str]) -> str | None:
    """The name in a section that is most like the missing field `name` and is no field itself, or None."""
    extra = [key for key in section if isinstance(key, str) and key not in fields] if isinstance(section, dict) else []
    return next(iter(difflib.get_close_matches(name, extra, n=1, cutoff=0.6)), None)


def _location(parts: Sequence[str | int], raw: Any) -> list[str | int]:
    """The place of an error in `raw`, without the alternatives of unions that pydantic tried."""
    location = []
    for part in parts:
        if isinstance(raw, Mapping) and part in raw:
            raw = raw[part]
        elif isinstance(raw, list | tuple) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        elif ALTERNATIVE.match(str(part)):
            continue
        # One text where a list is read, and a list where lists by name are.
        elif part != "[key]" and (isinstance(raw, str) or (isinstance(raw, list) and isinstance(part, str))):
            continue
        location.append(part)
    return location


def name_in(section: str) -> str:
    """The setting that errors name for a key of a section that is no valid name."""
    return f"a name in {section}"


def _path(where: str, location: Sequence[str | int]) -> str:
    """The place of a setting as one line of printable text."""
    return ".".join(filter(None, [where, place([_cut(part) for part in location])]))


def _cut(part: str | int) -> str | int:
    if isinstance(part, int):
        return part
    printable = part if part.isprintable() else part.encode("unicode_escape").decode("ascii")
    return printable if len(printable) <= 40 else printable[:37] + "..."


def _fields_at(model: type[Frozen], location: tuple[Any, ...]) -> list[str]:
    """Names of the fields of the section that `location` points to (lists, mappings and unions looked through)."""
    names: list[str] = []

    def models_in(annotation: Any) -> list[type[pydantic.BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
            return [annotation]
        return [inner for part in getattr(annotation, "__args__", ()) for inner in models_in(part)]

    current: list[type[pydantic.BaseModel]] = [model]
    for part in location:
        following = []
        for candidate in current:
            field = candidate.model_fields.get(part) if isinstance(part, str) else None
            if field is not None:
                following += models_in(field.annotation)
        # An index, a mapping's key or a union's tag names no field: stay where we are.
        current = following or current
    for candidate in current:
        names += list(candidate.model_fields)
    return names
