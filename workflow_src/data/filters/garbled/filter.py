"""Repairs HTML entities and text that was read in a wrong encoding."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import ftfy

from workflow_src.data.filters.garbled import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict

ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]+);")
LOST = "\ufffd"
# An ampersand that was escaped twice, and once more.
MOST_TIMES = 3


def without_entities(text: str) -> str:
    for _ in range(MOST_TIMES):
        if not ENTITY.search(text):
            break
        text = ENTITY.sub(lambda match: html.unescape(match[0]), text)
    # A line stays a line.
    return " ".join(text.split())


def check(settings: Settings, languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    def repaired(text: str) -> str:
        if settings.entities and "&" in text and ENTITY.search(text):
            text = without_entities(text)
        if settings.mojibake and not text.isascii():
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
