"""Control and zero-width characters, which are taken out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    action: Literal["repair", "drop"] = Field("repair", description="repair: take them out; drop: leave out such pairs")


FILTER = Filter(
    name="invisible",
    title="Invisible characters",
    settings=Settings,
    check="workflow_src.data.filters.invisible.filter:check",
    each_side=True,
)
