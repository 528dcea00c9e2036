"""Sections of a configuration, and errors of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import pydantic
from pydantic_core import PydanticKnownError

from workflow_src.errors import ABSENT, ConfigError

# Whole numbers have 64 bits in torch and NumPy.
HUGE = 2**63
UNKNOWN = "no such setting"
# Allowed values by pydantic's type of error; `{...}` are entries of its context.
REQUIRED = {
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list, such as [a, b]",
    "list_type": "a list, such as [a, b]",
    "dict_type": "a section of `name: value` lines",
    "model_type": "a section of `name: value` lines",
    "model_attributes_type": "a section of `name: value` lines",
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
        bound = "at least" if kind == "too_short" else "at most"
        return ConfigError(setting, value, allowed=f"{bound} {limit} {'entry' if limit == 1 else 'entries'}")
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

    def canonical(self) -> str:
        """JSON with sorted keys: equal sections give equal text, so that Snakemake can compare them."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
