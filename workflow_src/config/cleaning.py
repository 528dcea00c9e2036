"""Settings of the filters that a recipe names, checked for its languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workflow_src.errors import ConfigError
from workflow_src.registry import filters
from workflow_src.spec import Frozen, parse


def filter_settings(sections: Iterable[tuple[str, Any]], languages: tuple[str, str]) -> dict[str, Frozen]:
    """Settings of filters by name, in their order. Raises ConfigError for filters that cannot be used."""
    cleaning: dict[str, Frozen] = {}
    for name, section in sections:
        where = f"recipe.clean.{name}"
        if name not in filters():
            raise ConfigError(where, problem="no such filter", allowed=filters())
        settings = parse(filters()[name].settings, section, where)
        if reason := filters()[name].conflict(settings, languages):
            raise ConfigError(where, problem=f"it {reason}", hint="change its settings, or remove the filter")
        cleaning[name] = settings
    return cleaning
