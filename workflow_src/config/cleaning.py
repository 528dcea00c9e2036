"""Settings of the filters that a recipe names, checked for its languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workflow_src.config.base import member_settings
from workflow_src.config.declared import reason
from workflow_src.errors import ConfigError
from workflow_src.registry import filters
from workflow_src.spec import Frozen


def filter_settings(sections: Iterable[tuple[str, Any]], languages: tuple[str, str]) -> dict[str, Frozen]:
    """Settings of filters by name, in their order. Raises ConfigError for filters that cannot be used."""
    cleaning = member_settings("filter", dict(sections), filters(), "recipe.clean")
    for name, settings in cleaning.items():
        if why := reason(filters()[name], "conflict", settings, languages):
            hint = "change its settings, or remove the filter"
            raise ConfigError(f"recipe.clean.{name}", problem=f"it {why}", hint=hint)
    return cleaning
