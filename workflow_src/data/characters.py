"""Characters of a line: which of them count as letters, of a script, as visible, and in comparisons; HTML entities."""

from __future__ import annotations

import functools
import html
import math
import re
import string
import sys
import unicodedata
from collections.abc import Callable

from workflow_src.config.languages import LATIN, characters_a_word, spaced
from workflow_src.spec import Pair, Verdict

# Letters that belong to every script: ª º and letters of full width, among others, are Latin by their names or none's.
OTHERS = ("FEMININE", "MASCULINE", "MODIFIER", "FULLWIDTH", "HALFWIDTH", "MICRO", "IDEOGRAPHIC")
# Control characters (Cc) that `str.split` does not take for whitespace. They become spaces: a NUL separates words.
CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
# Invisible format characters that carry no text: soft hyphen, zero-width space, word joiner, byte order mark, marks of
# writing direction, interlinear annotation. Joiners (U+200C, U+200D), variation selectors, fillers and tags stay inside
# words: Persian, Indic, Mongolian and Korean words and emoji need them.
INVISIBLE = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]")
# Unicode's Default_Ignorable_Code_Point, which Python's unicodedata lacks, and two symbols that are blank: the Braille
# pattern without dots and the null note head.
BLANK = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2800\U0001d159"
)
BLANK_WORD = re.compile(rf"(?<!\S)[{BLANK}]+(?!\S)")
# Invisible marks: the grapheme joiner, and selectors of the form of the character before.
SELECTORS = frozenset(map(chr, [0x034F, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
# An entity of so many digits that it is beyond Unicode. Python refuses to read one of more than 4,300.
TOO_LONG_ENTITY = re.compile("&#[0-9]{50,};?")
_NO_LETTERS = bytes(code for code in range(128) if chr(code) not in string.ascii_letters)


class _Kept(dict):
    """For `str.translate`: characters that fit `keep` stay, others go."""

    def __init__(self, keep: Callable[[str], bool]):
        super().__init__()
        self._keep = keep

    def __missing__(self, code: int) -> int | None:
        self[code] = code if self._keep(chr(code)) else None
        return self[code]


_LETTERS = _Kept(str.isalpha)
_VISIBLE = _Kept(lambda character: not character.isspace() and unicodedata.category(character)[0] != "M")
_COMPARED = _Kept(lambda character: unicodedata.category(character)[0] in "LMN" and character not in SELECTORS)


def each(judge: Callable[[Pair], Verdict]) -> Callable[[list[Pair]], list[Verdict]]:
    """The function of a list of pairs that judges every pair by itself."""
    return lambda pairs: [judge(pair) for pair in pairs]


@functools.cache
def script_names() -> frozenset[str]:
    """Names of scripts: words that the Unicode names of letters begin with."""
    characters = map(chr, range(sys.maxunicode + 1))
    names = {unicodedata.name(character, "").partition(" ")[0] for character in characters if character.isalpha()}
    return frozenset(names.difference(OTHERS, {""}))


@functools.cache
def word_counter(language: str) -> Callable[[str], int]:
    """A function of a line: its words, estimated from its characters where the language does not separate them by
    spaces."""
    if spaced(language):
        return lambda line: len(line.split())
    characters = characters_a_word(language)
    return lambda line: math.ceil(len("".join(line.split())) / characters)


def letters(line: str) -> int:
    if line.isascii():
        return len(line.encode().translate(None, _NO_LETTERS))
    return len(line.translate(_LETTERS))


def visible(line: str) -> int:
    """Characters of a line without white space, and without marks, which stand on letters."""
    if line.isascii():
        return len("".join(line.split()))
    return len(line.translate(_VISIBLE))


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


def without_html_entities(text: str) -> str:
    """A text with characters in place of HTML entities; U+FFFD is that of a number beyond Unicode."""
    return html.unescape(TOO_LONG_ENTITY.sub("\ufffd", text))


def bare(sentence: str) -> str:
    """Case folded, only letters, marks and numbers; a sentence without any of these stays as it is.

    Marks stay because vowel signs and tones are marks: words of Hindi or Thai may differ in nothing else.
    """
    return sentence.casefold().translate(_COMPARED) or sentence


def key(sentence: str) -> str:
    """Key for comparing sentences: `bare`, compatibility forms (full width, ligatures, superscripts) folded."""
    if sentence.isascii():
        return bare(sentence)
    return bare(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", sentence).casefold()))
