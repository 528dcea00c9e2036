"""Escapes for characters outside of a subword model's alphabet, written with characters of every model.

An unknown character becomes its UTF-8 bytes, each as two of sixteen reserved characters ("nibbles", in Unicode's
private use area) that every vocabulary holds. They cost sixteen entries, instead of the 256 of byte fallback, and serve
both kinds of subword models; a text without unknown characters is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

FIRST_NIBBLE = 0xF8A0
NIBBLES = tuple(chr(FIRST_NIBBLE + value) for value in range(16))
_RUN = re.compile(f"[{NIBBLES[0]}-{NIBBLES[-1]}]+")
# Characters always escaped: nibbles, control characters (they separate pieces and lines in model files), and the two
# characters that SentencePiece writes for a space and for an unknown.
RESERVED = frozenset(NIBBLES) | frozenset(map(chr, range(32))) | {"\x7f", "\u2581", "\u2585"}

# Words with the signs that subword-nmt writes between subwords and at the end of a word.
BPE_SIGNS = "@@+|</w>"


def _spelled(match: re.Match[str]) -> str:
    return "".join(NIBBLES[byte >> 4] + NIBBLES[byte & 15] for byte in match.group().encode("utf-8"))


class Escape:
    """Escapes characters outside `alphabet` (None: only `reserved`), and every match of the regular expression `also`.

    `reserved` are never part of the alphabet.
    """

    def __init__(
        self, alphabet: Iterable[str] | None = None, also: str | None = None, reserved: frozenset[str] = RESERVED
    ):
        if alphabet is None:
            characters = f"[{_set(reserved)}]"
        else:
            characters = f"[^{_set((set(alphabet) | {' '}) - reserved)}]"
        # One character that is escaped.
        self.unknown = re.compile(characters)
        self.pattern = re.compile(f"{also}|{characters}" if also else characters)

    def __call__(self, text: str) -> str:
        return self.pattern.sub(_spelled, text)


def _set(characters: Iterable[str]) -> str:
    return "".join(map(re.escape, sorted(characters)))


def _unspelled(match: re.Match[str]) -> str:
    values = [ord(character) - FIRST_NIBBLE for character in match.group()]
    # A model may write half a byte or half a character: the half byte is dropped, the rest becomes U+FFFD.
    pairs = zip(values[::2], values[1::2], strict=False)
    return bytes(high << 4 | low for high, low in pairs).decode("utf-8", errors="replace")


def unescape(text: str) -> str:
    """Undo `Escape`; never fails on any output of a model."""
    return _RUN.sub(_unspelled, text)
