"""Leaves out pairs with a web or e-mail address that the other side does not have."""

from __future__ import annotations

import re
from collections.abc import Callable

from workflow_src.data.filters.addresses import Settings
from workflow_src.data.texts import each
from workflow_src.spec import Pair, Verdict

SIGN = re.compile(r"://|www\.|@")
# An address begins where no character of one stands before it, so that long words are searched once.
ADDRESS = re.compile(
    r"(?<![a-z0-9+.-])(?:[a-z][a-z0-9+.-]*://|www\.)[^\s<>\"\u201d]+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    re.IGNORECASE,
)
# Punctuation of the sentence around it.
END = ".,;:!?)]}'\u2019\u00bb\u3002\uff0c"


def addresses(text: str) -> set[str]:
    return {match.rstrip(END).rstrip("/").casefold() for match in ADDRESS.findall(text)} if SIGN.search(text) else set()


def check(_settings: Settings, _languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    return each(lambda pair: None if addresses(pair.source) == addresses(pair.target) else "different")
