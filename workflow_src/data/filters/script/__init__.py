"""Pairs with a side in another script than that of its language."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    min_share: float = Field(0.7, ge=0, le=1, description="of the letters of each side")
    scripts: dict[str, tuple[str, ...]] = Field(
        {}, description="by language, as Unicode names letters: {sr: [LATIN]}; default: those of the language"
    )


FILTER = Filter(name="script", title="Script", settings=Settings, check="workflow_src.data.filters.script.filter:check")
