"""Leaves out pairs with a side whose letters are of another script than its language is written in."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from workflow_src.config.languages import scripts_of_sides, two_letters
from workflow_src.data.characters import each, letters, letters_outside, script_names
from workflow_src.errors import ConfigError
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    min_share: float = Field(0.7, gt=0, le=1, description="of the letters of each side")
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
    of_sides = zip(languages, scripts_of_sides(languages, settings.scripts), strict=True)
    unknown = [code for code, names in of_sides if names is None]
    return (
        f"does not know the script of {unknown[0]} (scripts: {{{unknown[0]}: [LATIN]}} names one)" if unknown else None
    )


def check(settings: Settings, languages: tuple[str, str]) -> Check:
    most = 1 - settings.min_share
    # Snakemake's settings were checked by `conflict`: a script of each language is known.
    source_outside, target_outside = (
        letters_outside(names or ()) for names in scripts_of_sides(languages, settings.scripts)
    )

    def judge(pair: Pair) -> Verdict:
        for text, outside in ((pair.source, source_outside), (pair.target, target_outside)):
            count = outside(text)
            if count and count > most * letters(text):
                return f"min_share: {count} letters of another script, of {letters(text)}"
        return None

    return each(judge)


FILTER = Filter(name="script", title="Script", settings=Settings, check=check, each_side=True, conflict=conflict)
