"""Counts of a line for filters of training text: words, letters, and letters of a script."""

from __future__ import annotations

import functools
import string
import sys
import unicodedata
from collections.abc import Callable

from workflow_src.config.languages import LATIN, spaced
from workflow_src.spec import Pair, Verdict

# Letters that belong to every script: ª º and letters of full width, among others, are Latin by their names or none's.
OTHERS = ("FEMININE", "MASCULINE", "MODIFIER", "FULLWIDTH", "HALFWIDTH", "MICRO", "IDEOGRAPHIC")
_NO_LETTERS = bytes(code for code in range(128) if chr(code) not in string.ascii_letters)


def each(judge: Callable[[Pair], Verdict]) -> Callable[[list[Pair]], list[Verdict]]:
    """The function of a list of pairs that judges every pair by itself."""
    return lambda pairs: [judge(pair) for pair in pairs]


@functools.cache
def script_names() -> frozenset[str]:
    """Names of scripts: words that the Unicode names of letters begin with."""
    characters = map(chr, range(sys.maxunicode + 1))
    names = {unicodedata.name(character, "").partition(" ")[0] for character in characters if character.isalpha()}
    return frozenset(names.difference(OTHERS, {""}))


def word_counter(language: str) -> Callable[[str], int]:
    """A function of a line: its words, or its characters where the language does not separate words by spaces."""
    if spaced(language):
        return lambda line: len(line.split())
    return lambda line: len("".join(line.split()))


def letters(line: str) -> int:
    """Letters of a line."""
    if line.isascii():
        return len(line.encode().translate(None, _NO_LETTERS))
    return len(line.translate(_KEPT_LETTERS))


def visible(line: str) -> int:
    """Characters of a line without white space, and without marks, which stand on letters."""
    if line.isascii():
        return len("".join(line.split()))
    return len(line.translate(_KEPT_VISIBLE))


class _Kept(dict):
    """For `str.translate`: characters that fit `keep` stay, others go."""

    def __init__(self, keep: Callable[[str], bool]):
        super().__init__()
        self._keep = keep

    def __missing__(self, code: int) -> int | None:
        self[code] = code if self._keep(chr(code)) else None
        return self[code]


_KEPT_LETTERS = _Kept(str.isalpha)
_KEPT_VISIBLE = _Kept(lambda character: not character.isspace() and unicodedata.category(character)[0] != "M")


@functools.cache
def letters_outside(scripts: tuple[str, ...]) -> Callable[[str], int]:
    """A function of a line: its letters that are of none of the scripts."""
    inside = (*scripts, *OTHERS)

    def is_outside(character: str) -> bool:
        return character.isalpha() and not unicodedata.name(character, "").startswith(inside)

    outside = _Kept(is_outside)
    if LATIN in scripts:
        return lambda line: 0 if line.isascii() else len(line.translate(outside))
    return lambda line: len(line.translate(outside))
