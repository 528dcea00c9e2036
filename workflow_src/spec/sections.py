"""Sections of a configuration, and errors of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, get_args

import pydantic
from pydantic_core import PydanticKnownError

from workflow_src.errors import ABSENT, ConfigError

# Whole numbers have 64 bits in torch and NumPy.
HUGE = 2**63
UNKNOWN = "no such setting"
WHOLE = "a whole number"
FINITE = "a finite number"
EACH_ONCE = "each once"
SECTION = "a section of `name: value` lines"


def above(bound: object) -> str:
    return f"above {bound}"


def at_least(bound: object) -> str:
    return f"{bound} or more"


def below(bound: object) -> str:
    return f"below {bound}"


def at_most(bound: object) -> str:
    return f"{bound} or less"


def all_of(bounds: Iterable[str]) -> str:
    """Bounds as a range: `above 0 and below 1`."""
    return " and ".join(bounds)


def entries(number: object, bound: str = "at least") -> str:
    """The allowed length of a list, in words."""
    return f"{bound} {number} {'entry' if number == 1 else 'entries'}"


# Allowed values by pydantic's type of error; `{...}` are entries of its context.
REQUIRED = {
    "greater_than": above("{gt}"),
    "greater_than_equal": at_least("{ge}"),
    "less_than": below("{lt}"),
    "less_than_equal": at_most("{le}"),
    "finite_number": FINITE,
    "int_type": WHOLE,
    "int_parsing": WHOLE,
    "int_parsing_size": "a smaller number",
    "int_from_float": WHOLE,
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list, such as [a, b]",
    "list_type": "a list, such as [a, b]",
    "dict_type": SECTION,
    "model_type": SECTION,
    "model_attributes_type": SECTION,
}


def place(location: Sequence[str | int]) -> str:
    """The path of a setting: `decodes[0].beam`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def refused(error: Mapping[str, Any], setting: str) -> ConfigError:
    """One of pydantic's errors as that of a setting."""
    kind, value = error["type"], error["input"]
    context = {name: f"{v:g}" if isinstance(v, float) else v for name, v in error.get("ctx", {}).items()}
    if isinstance(inner := context.get("error"), ConfigError):
        return inner.within(setting, value)
    if kind == "literal_error":
        return ConfigError(setting, value, allowed=re.findall("'([^']*)'", context["expected"]))
    if kind in REQUIRED:
        return ConfigError(setting, value, allowed=REQUIRED[kind].format(**context))
    if kind in ("too_short", "too_long"):
        limit = context.get("min_length", context.get("max_length"))
        allowed = entries(limit) if kind == "too_short" else entries(limit, "at most")
        return ConfigError(setting, value, allowed=allowed)
    if kind in ("missing", "extra_forbidden"):
        return ConfigError(setting, problem="missing" if kind == "missing" else UNKNOWN)
    problem = error["msg"].removeprefix("Value error, ")
    return ConfigError(setting, ABSENT if isinstance(value, Mapping) else value, problem=problem)


@cache
def _leaves(section: type[pydantic.BaseModel], name: str) -> frozenset[Any]:
    """The types that a field's values can have, inside lists and unions too."""
    types: set[Any] = set()
    waiting: list[Any] = [section.model_fields[name].annotation]
    while waiting:
        annotation = waiting.pop()
        inner = get_args(annotation)
        waiting += inner
        if not inner:
            types.add(type(annotation) if isinstance(annotation, bool) else annotation)
    return frozenset(types)


class Frozen(pydantic.BaseModel):
    """A configuration section: immutable, unknown keys refused."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _refuse_flags(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        """Refuses true and false where a number is meant: pydantic takes them for 1 and 0."""
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        types = _leaves(cls, info.field_name)
        if any(isinstance(entry, bool) for entry in entries) and bool not in types:
            if int in types:
                raise PydanticKnownError("int_type")
            if float in types:
                raise PydanticKnownError("float_type")
        return value

    @pydantic.field_validator("*", mode="after")
    @classmethod
    def _refuse_huge(cls, value: Any) -> Any:
        """Refuses whole numbers that nothing can count to, and that fit into no number of a library."""
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        if any(isinstance(entry, int) and abs(entry) >= HUGE for entry in entries):
            raise PydanticKnownError("int_parsing_size")
        return value
