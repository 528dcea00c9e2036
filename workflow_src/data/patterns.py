"""Regular expressions of addresses, tags, entities and variables in text."""

from __future__ import annotations

import itertools
import re
import unicodedata

# Letters and marks of languages that put no space between words (and of Korean), and signs that end an address.
UNSPACED_LETTERS = r"\u0e00-\u0fff\u1000-\u11ff\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef"
# Unspaced letters, and characters that stand for others in subword models (escapes.py, placeholders.py).
NEXT_WORD = rf"{UNSPACED_LETTERS}\uf8a0-\uf8bf"
_IN_URL = rf"[^\s<>\"'\u2018-\u201f\u00ab\u00bb{{}}|{NEXT_WORD}]"
# Where marks and punctuation are looked for: between these blocks are letters of Chinese and Korean, which are many,
# and scripts that are hardly in use.
_BLOCKS = range(0x80, 0x3100), range(0xA600, 0xAC00), range(0x11100, 0x11150), range(0x1E900, 0x1E960)


def _signs(category: str) -> str:
    """Characters of a category of Unicode, as they stand in a class of a regular expression."""
    return "".join(
        sign for sign in map(chr, itertools.chain(*_BLOCKS)) if unicodedata.category(sign).startswith(category)
    )


# Vowel signs, accents and other marks, which are parts of words, but not of Python's `\w`.
MARKS = _signs("M")
IN_WORD = rf"\w{MARKS}"
# Punctuation beside that of ASCII.
_PUNCTUATION = _signs("P")

TAG = r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>"
# Punctuation at the end belongs to the sentence around it.
URL = rf"(?<![A-Za-z0-9+.-])(?:[A-Za-z][A-Za-z0-9+.-]*://|www\.){_IN_URL}*(?<![.,;:!?)\]{_PUNCTUATION}])"
EMAIL = r"(?<![A-Za-z0-9.+_-])[A-Za-z0-9.+_-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
ENTITY = r"&(?:[A-Za-z][A-Za-z0-9.-]*|#[0-9]+|#[xX][0-9A-Fa-f]+);"
# printf's, Qt's (%1 to %9: `%50` is a number in Turkish), and those with braces.
VARIABLE = (
    r"%[0-9]+\$[-+#0]*[0-9]*[A-Za-z]"
    r"|(?<![0-9])%[-+#]*(?:0[0-9]+)?(?:\.[0-9]+)?(?:hh?|ll?|z)?[diufFeEgGxXoscn](?![A-Za-z])"
    r"|%\([A-Za-z_]\w*\)[A-Za-z]|%L?[1-9](?![.,]?[0-9])|\$\{[^\s{}]+\}"
    rf"|%\{{[{IN_WORD}]+\}}|\{{\{{ ?[{IN_WORD}.:!-]+ ?\}}\}}|\{{[{IN_WORD}.:!<>^+-]*\}}"
)
# Every web and e-mail address has one of these; a quick test.
ADDRESS_SIGN = re.compile(r"://|www\.|@", re.IGNORECASE)
ADDRESS = re.compile(f"{URL}|{EMAIL}", re.IGNORECASE)
