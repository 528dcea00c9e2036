"""Configurations as the commands of `continuum` read them, and changes of them."""

from __future__ import annotations

from typing import Any

from workflow_src.cli import PARSER
from workflow_src.cli.configuration import configuration_of
from workflow_src.config.resolved import Loaded


def read_configuration(*words: str) -> Loaded:
    """The configuration that `continuum check` would check with these words."""
    return configuration_of(PARSER.parse_args(["check", *words]))


def changes_at(place: str, value: Any) -> dict[str, Any]:
    """Settings with a value at one place, such as `systems.teacher.preset`."""
    for name in reversed(place.split(".")):
        value = {name: value}
    return value
