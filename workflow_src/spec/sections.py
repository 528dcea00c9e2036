"""Sections of a configuration, and what is wrong with one in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import pydantic
from pydantic_core import PydanticKnownError

# The longest value that a message shows.
SHOWN = 100
# Whole numbers have 64 bits in torch and NumPy.
HUGE = 2**63
# What a value must be, by pydantic's type of error; `{...}` are entries of its context.
REQUIRED = {
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list, such as [a, b]",
    "list_type": "a list, such as [a, b]",
    "dict_type": "a section of `name: value` lines",
    "model_type": "a section of `name: value` lines",
    "model_attributes_type": "a section of `name: value` lines",
}


def shown(value: Any) -> str:
    """A value as messages show it: as Python writes it, and not longer than a line."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 4] + " ..."


def place(location: Sequence[str | int]) -> str:
    """Where a setting is, as YAML is read: `decodes[0].beam`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def problem(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, from one of pydantic's errors: `it must be above 0`."""
    kind = error["type"]
    context = {name: f"{v:g}" if isinstance(v, float) else v for name, v in error.get("ctx", {}).items()}
    if kind in REQUIRED:
        return "it must be " + REQUIRED[kind].format(**context)
    if kind in ("too_short", "too_long"):
        limit = context.get("min_length", context.get("max_length"))
        if not error["input"]:
            return f"it is empty; it must have at least {limit} {'entry' if limit == 1 else 'entries'}"
        return f"it must have {'at least' if kind == 'too_short' else 'at most'} {limit} entries"
    if kind == "extra_forbidden":
        return "there is no such setting"
    if kind == "string_too_short":
        return "it must not be empty"
    said = error["msg"].removeprefix("Value error, ")
    return said[0].lower() + said[1:]


@cache
def _leaves(section: type[pydantic.BaseModel], name: str) -> frozenset[Any]:
    """The types that a field's values can have, inside lists and unions too."""
    found, left = set(), [section.model_fields[name].annotation]
    while left:
        annotation = left.pop()
        inner = get_args(annotation)
        left += inner
        if not inner:
            found.add(type(annotation) if isinstance(annotation, bool) else annotation)
    return frozenset(found)


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
