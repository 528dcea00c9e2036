"""Pairs with a side that is too short or too long."""

from __future__ import annotations

from pydantic import Field, model_validator

from workflow_src.errors import ConfigError
from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    min_words: int = Field(1, ge=0, description="characters, where words are not separated by spaces; so too max_words")
    max_words: int | None = Field(100, gt=0)
    min_characters: int = Field(1, ge=0)
    max_characters: int | None = Field(1000, gt=0)

    @model_validator(mode="after")
    def _ranges(self):
        for unit in ("words", "characters"):
            least, most = getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}")
            if most is not None and least > most:
                raise ConfigError(f"min_{unit}", least, allowed=f"{most} or less (max_{unit})")
        return self


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return (
        "leaves out nothing"
        if settings.max_words is settings.max_characters is None and not (settings.min_words or settings.min_characters)
        else None
    )


FILTER = Filter(
    name="length",
    title="Length",
    settings=Settings,
    check="workflow_src.data.filters.length.filter:check",
    each_side=True,
    conflict=conflict,
)
