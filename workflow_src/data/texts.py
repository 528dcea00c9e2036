"""Counts of a line for filters of training text: words, letters, and letters of a script."""

from __future__ import annotations

import functools
import string
import sys
import unicodedata
from collections.abc import Callable

from workflow_src.config.tokenisers import spaced
from workflow_src.spec import Pair, Verdict

# Scripts by language (ISO 639-1), as the Unicode names of letters begin; other languages are written in Latin script.
LATIN, CYRILLIC, ARABIC = "LATIN", "CYRILLIC", "ARABIC"
SCRIPTS = {
    **dict.fromkeys("ru uk be bg mk ky tg ba cv tt os ce av ab cu kv".split(), (CYRILLIC,)),
    **dict.fromkeys("sr sh bs uz az kk".split(), (CYRILLIC, LATIN)),
    "mn": (CYRILLIC, LATIN, "MONGOLIAN"),
    **dict.fromkeys("ar fa ur ps ug sd".split(), (ARABIC,)),
    **dict.fromkeys("ku ks".split(), (ARABIC, LATIN, "DEVANAGARI")),
    **dict.fromkeys("hi mr ne sa".split(), ("DEVANAGARI",)),
    **dict.fromkeys("bn as".split(), ("BENGALI",)),
    **dict.fromkeys("he yi".split(), ("HEBREW",)),
    **dict.fromkeys("am ti".split(), ("ETHIOPIC",)),
    **dict.fromkeys("bo dz".split(), ("TIBETAN",)),
    **dict.fromkeys("iu".split(), ("CANADIAN", LATIN)),
    "el": ("GREEK",),
    "hy": ("ARMENIAN",),
    "ka": ("GEORGIAN",),
    "dv": ("THAANA",),
    "gu": ("GUJARATI",),
    "pa": ("GURMUKHI", ARABIC),
    "or": ("ORIYA",),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "kn": ("KANNADA",),
    "ml": ("MALAYALAM",),
    "si": ("SINHALA",),
    "th": ("THAI",),
    "lo": ("LAO",),
    "km": ("KHMER",),
    "my": ("MYANMAR",),
    "zh": ("CJK",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "ko": ("HANGUL", "CJK"),
}
# Letters that belong to every script: ª º and letters of full width, among others, are Latin by their names or none's.
OTHERS = ("FEMININE", "MASCULINE", "MODIFIER", "FULLWIDTH", "HALFWIDTH", "MICRO", "IDEOGRAPHIC")
_NO_LETTERS = bytes(code for code in range(128) if chr(code) not in string.ascii_letters)


def each(judge: Callable[[Pair], Verdict]) -> Callable[[list[Pair]], list[Verdict]]:
    """The function of a list of pairs that judges every pair by itself."""
    return lambda pairs: [judge(pair) for pair in pairs]


def two_letters(language: str) -> str:
    """The code of two letters (ISO 639-1) of a language, else of the macrolanguage that it is part of (cmn: zh).

    A code without either stays as it is.
    """
    if len(language) <= 2:
        return language
    # The import takes a quarter of a second.
    from iso639 import Language, LanguageNotFoundError

    try:
        match = Language.match(language)
        if match.macrolanguage and not match.part1:
            match = Language.match(match.macrolanguage)
    except LanguageNotFoundError:
        return language
    return match.part1 or language


@functools.cache
def script_names() -> frozenset[str]:
    """Names of scripts: words that the Unicode names of letters begin with."""
    characters = map(chr, range(sys.maxunicode + 1))
    names = {unicodedata.name(character, "").partition(" ")[0] for character in characters if character.isalpha()}
    return frozenset(names.difference(OTHERS, {""}))


def scripts_of(language: str) -> tuple[str, ...]:
    """The scripts that a language is written in, as the Unicode names of their letters begin."""
    return SCRIPTS.get(two_letters(language), (LATIN,))


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
