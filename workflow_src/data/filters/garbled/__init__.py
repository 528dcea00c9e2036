"""HTML entities and garbled characters ("mojibake"), which are repaired."""

from __future__ import annotations

from pydantic import Field

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    entities: bool = Field(True, description="&amp; and &#8211; become the characters that they stand for")
    mojibake: bool = Field(True, description="text that was read in a wrong encoding is read in the right one (ftfy)")
    lost: bool = Field(True, description="leave out pairs with U+FFFD, where characters were lost")


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return "repairs and leaves out nothing" if not (settings.entities or settings.mojibake or settings.lost) else None


FILTER = Filter(
    name="garbled",
    title="Entities and mojibake",
    settings=Settings,
    check="workflow_src.data.filters.garbled.filter:check",
    each_side=True,
    conflict=conflict,
)
