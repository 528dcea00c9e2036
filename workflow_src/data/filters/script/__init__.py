"""Pairs with a side in another script than that of its language."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from workflow_src.config.languages import scripts_of, two_letters
from workflow_src.data.texts import script_names
from workflow_src.errors import ConfigError
from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    min_share: float = Field(0.7, ge=0, le=1, description="of the letters of each side")
    scripts: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(
        {}, description="by language, as Unicode names letters: {sr: [LATIN]}; default: those of the language"
    )

    @field_validator("scripts")
    @classmethod
    def _names(cls, scripts: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for language, names in scripts.items():
            for name in names:
                if name.upper() not in script_names():
                    raise ConfigError(language, name.upper(), problem="no script", allowed=script_names())
        return scripts


def conflict(settings: Settings, languages: tuple[str, str]) -> str | None:
    sides = set(map(two_letters, languages))
    others = [language for language in settings.scripts if two_letters(language) not in sides]
    if others:
        return f"has scripts of {others[0]}, which is neither source nor target"
    configured = set(map(two_letters, settings.scripts))
    unknown = [code for code in languages if two_letters(code) not in configured and scripts_of(code) is None]
    return (
        f"does not know the script of {unknown[0]} (scripts: {{{unknown[0]}: [LATIN]}} names one)" if unknown else None
    )


FILTER = Filter(
    name="script",
    title="Script",
    settings=Settings,
    check="workflow_src.data.filters.script.filter:check",
    each_side=True,
    conflict=conflict,
)
