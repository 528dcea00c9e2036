"""Repairs HTML entities and text that was read in a wrong encoding."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.entities import html5

import ftfy
from ftfy.badness import is_bad

from workflow_src.data.filters.garbled import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict

ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]+);")
LOST = "\ufffd"
# An ampersand that was escaped twice, and once more.
MOST_TIMES = 3


def _character(match: re.Match[str]) -> str:
    """The text of an HTML entity, white space as a space; an unknown name, such as &kde;, stays."""
    text = match[0]
    # `html.unescape` would take &notes; for &not; and es;
    character = html.unescape(text) if text[1] == "#" else html5.get(text[1:], text)
    return " " if character.isspace() else character


def without_entities(text: str) -> str:
    for _ in range(MOST_TIMES):
        before, text = text, ENTITY.sub(_character, text)
        if text == before:
            break
    return text


def check(settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    def repaired(text: str) -> str:
        if settings.entities and "&" in text:
            text = without_entities(text)
        # The first test of fix_encoding itself, which is quick: most text is clean.
        if settings.mojibake and not text.isascii() and is_bad(text):
            text = ftfy.fix_encoding(text)
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
