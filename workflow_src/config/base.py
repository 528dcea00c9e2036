"""Types of settings that are names, codes or lists."""

from __future__ import annotations

import re
from typing import Any

from pydantic import AfterValidator

from workflow_src.errors import ConfigError

# Names that users give become parts of names of files, which file systems limit to 255 bytes.
LONGEST_NAME = 100


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
        raise ConfigError("", allowed="each once")
    return values


def by_name(value: Any, example: str) -> Any:
    """A list of names, such as `example`, as a section of them without settings; other values as they are."""
    if not isinstance(value, list | tuple):
        return value
    if not all(isinstance(name, str) for name in value):
        raise ConfigError("", allowed=f"a list of names, such as {example}, or a section of settings by name")
    return {name: {} for name in distinct(tuple(value))}
