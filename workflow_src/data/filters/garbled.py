"""Repairs HTML entities and text that was read in a wrong encoding."""

from __future__ import annotations

import re
from html.entities import html5

from pydantic import Field

from workflow_src.data.characters import each, without_html_entities
from workflow_src.data.patterns import ENTITY
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    entities: bool = Field(True, description="&amp; and &#8211; become the characters that they stand for")
    mojibake: bool = Field(True, description="text that was read in a wrong encoding is read in the right one (ftfy)")
    lost: bool = Field(True, description="leave out pairs with U+FFFD, where characters were lost")


def conflict(settings: Settings, _languages: tuple[str, str]) -> str | None:
    return "repairs and leaves out nothing" if not (settings.entities or settings.mojibake or settings.lost) else None


_ENTITY = re.compile(ENTITY)
LOST = "\ufffd"
# The first byte of a character in UTF-8 and its others, read as Latin-1, with spaces between them: tokenisers of single
# characters write such text.
SPACED_BYTES = re.compile("[\xc2-\xf4](?: [\x80-\xbf]){1,3}")
# What ftfy makes of some such bytes, taking a space for one of them.
BRAILLE_BLANK = "\u2800"
# An ampersand that was escaped twice, and once more.
MOST_TIMES = 3


def _character(match: re.Match[str]) -> str:
    """The text of an HTML entity, white space as a space; an unknown name, such as &kde;, stays."""
    text = match[0]
    # HTML would take &notes; for &not; and es;
    character = without_html_entities(text) if text[1] == "#" else html5.get(text[1:], text)
    return " " if character.isspace() else character


def without_entities(text: str) -> str:
    for _ in range(MOST_TIMES):
        before, text = text, _ENTITY.sub(_character, text)
        if text == before:
            break
    return text


def _joined(match: re.Match[str]) -> str:
    """The character of spaced bytes. Without a control character among them, they may be letters and signs."""
    data = match[0].replace(" ", "").encode("latin-1")
    if not any(0x80 <= byte < 0xA0 for byte in data[1:]):
        return match[0]
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return match[0]


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    from ftfy import fix_encoding
    from ftfy.badness import is_bad

    def without_mojibake(text: str) -> str:
        """`text` in its right encoding; LOST in place of characters that are unknown."""
        text = SPACED_BYTES.sub(_joined, text)
        fixed = fix_encoding(text)
        return fixed if BRAILLE_BLANK in text else fixed.replace(BRAILLE_BLANK, LOST)

    def repaired(text: str) -> str:
        if settings.entities and "&" in text:
            text = without_entities(text)
        # The first test of fix_encoding itself, which is quick: most text is clean.
        if settings.mojibake and not text.isascii() and is_bad(text):
            text = without_mojibake(text)
        return text

    def judge(pair: Pair) -> Verdict:
        source, target, score = pair
        if source.isascii() and target.isascii() and "&" not in source and "&" not in target:
            return None
        fixed = Pair(repaired(source), repaired(target), score)
        if settings.lost and (LOST in fixed.source or LOST in fixed.target):
            return "lost"
        return None if fixed == pair else fixed

    return each(judge)


FILTER = Filter(
    name="garbled", title="Entities and mojibake", settings=Settings, check=check, each_side=True, conflict=conflict
)
