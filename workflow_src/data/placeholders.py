"""Placeholders: spans of text, such as URLs, tags and `%1`, that translations must have as the source has them.

In ids a span is a symbol of the subword models, numbered by its first place in the source. Translations get the spans
of their source back in place of symbols.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

from workflow_src.config.recipe import PlaceholderKind
from workflow_src.data.patterns import EMAIL, ENTITY, IN_WORD, MARKS, NEXT_WORD, TAG, UNSPACED_LETTERS, URL, VARIABLE

# Characters of Unicode's private use area, after the nibbles of escapes.py. Spans of a sentence beyond these are text.
SYMBOLS = tuple(chr(0xF8B0 + number) for number in range(10))
# Key of the counts of a sentence's placeholders, in the details of a decode and in its scores.
PLACEHOLDERS = "placeholders"
SYMBOL = re.compile(f"[{SYMBOLS[0]}-{SYMBOLS[-1]}]")
# Symbols as they are shown.
NUMBERS = {f"<{number}>": symbol for number, symbol in enumerate(SYMBOLS, 1)}

# A character of a word that may lie beside unknown ones. Words without spaces between them end at each other.
_BESIDE = rf"(?![{NEXT_WORD}])[{IN_WORD}]"
WORD = re.compile(rf"[{IN_WORD}]+(?:['\u2019-][{IN_WORD}]+)*")
_BEGIN, _END = re.compile(rf"(?<![{IN_WORD}])"), re.compile(rf"(?![{IN_WORD}])")
# One in so many training pairs without spans has a word that both sides share in place of one, or else a sign at the
# end of both, so that models learn where symbols stand: few texts have spans, and none has characters outside of its
# vocabulary.
COPIES = 10
SHORTEST_COPY = 4
# A character of the private use area after the symbols, which no vocabulary has.
SIGN = "\uf8ba"
PATTERNS: Mapping[PlaceholderKind, str] = {
    "tags": TAG,
    "urls": URL,
    "emails": EMAIL,
    "entities": ENTITY,
    "variables": VARIABLE,
}


class Placeholders:
    """Spans of the kinds that a recipe names, in the source language; `target` finds those of the target language.

    `unknown` matches a character outside of the vocabulary. Without it, as where text is not subwords yet, the kind of
    this name has no spans. `unknown_in_target` is that of another vocabulary of the target language.
    """

    def __init__(
        self,
        kinds: Iterable[PlaceholderKind] = get_args(PlaceholderKind),
        unknown: re.Pattern[str] | None = None,
        unknown_in_target: re.Pattern[str] | None = None,
    ):
        self.kinds = [kind for kind in get_args(PlaceholderKind) if kind in set(kinds)]
        # Tags first, which may hold all others.
        patterns = [PATTERNS[kind] for kind in self.kinds if kind in PATTERNS]
        self._copies = unknown is not None and "unknown" in self.kinds
        if unknown is not None and self._copies:
            character = unknown.pattern
            # A mark belongs to the letter before it, also where words have no spaces between them.
            beginning = rf"(?:(?<!{_BESIDE})(?:{_BESIDE})*(?=[{IN_WORD}])|[{UNSPACED_LETTERS}][{MARKS}]*(?=[{MARKS}]))"
            # A word is one span, a run of emoji another.
            patterns += [rf"{beginning}{character}(?:{_BESIDE}|{character}|[{MARKS}])*", f"{character}+"]
        # Without patterns it matches nothing.
        self._pattern = re.compile("|".join(patterns) or "(?!)")
        self.target = self if unknown_in_target in (None, unknown) else Placeholders(self.kinds, unknown_in_target)

    def places(self, text: str) -> list[tuple[int, int]]:
        """Where spans begin and end, in their order."""
        return [match.span() for match in self._pattern.finditer(text)]

    def spans(self, text: str, others: Iterable[str] = ()) -> list[str]:
        """Spans in their order; none overlap, and of two that do, the one that begins first counts.

        `others` are spans of the other language, which count where they are ordinary words of this one.
        """
        return [text[start:end] for start, end in self._places_with(others, text)]

    def _places_with(self, words: Iterable[str], text: str) -> Iterator[tuple[int, int]]:
        """Where spans begin and end, and words that are none by themselves."""
        # A pattern of both would be compiled for every text, which takes long where the alphabet is large.
        finders = [self._next_span, *(_finder(word) for word in words if not self._pattern.fullmatch(word))]
        places = [find(text, 0) for find in finders]
        while following := [place for place in places if place is not None]:
            start, end = min(following, key=lambda place: place[0])
            yield start, end
            for number, place in enumerate(places):
                if place is not None and place[0] < end:
                    places[number] = finders[number](text, end)

    def _next_span(self, text: str, place: int) -> tuple[int, int] | None:
        match = self._pattern.search(text, place)
        return match.span() if match else None

    def symbols(self, source: str, target: str | None = None) -> dict[str, str]:
        """A symbol for each distinct span of the source; with a target, for those that it has too.

        Spans are numbered by their first places in the source. Those beyond the last symbol have none.
        """
        spans = dict.fromkeys(self.spans(source))
        if spans and target is not None:
            partners = set(self.target.spans(target, spans))
            spans = {span: None for span in spans if span in partners}
        return dict(zip(spans, SYMBOLS, strict=False))

    def training_pair(self, source: str, target: str) -> tuple[str, str, dict[str, str]]:
        """A training pair and its `symbols`. Some pairs without any get one, where characters are copied.

        It stands for a word that both sides have, with a capital or a digit, as names and numbers do, or long where a
        text has no capitals. Pairs of two scripts share no words: their sides get a sign at the end, as emoji stand,
        before the closing punctuation in half of them.
        """
        symbols = self.symbols(source, target)
        number = zlib.crc32(source.encode("utf-8"))
        if symbols or not self._copies or number % COPIES:
            return source, target, symbols
        words, words_of_target = (WORD.findall(self._pattern.sub(" ", text)) for text in (source, target))
        shared, caseless = set(words).intersection(words_of_target), source == source.lower()
        copied = [
            word
            for word in dict.fromkeys(words)
            if word in shared
            and (word != word.lower() or word[0].isdecimal() or (caseless and len(word) >= SHORTEST_COPY))
        ]
        number //= COPIES
        if copied:
            word = copied[number % len(copied)]
            # The target's vocabulary may lack characters of it, and a part of it be a span there.
            whole = self.target is self or word in self.target.spans(target, [word])
            return source, target, {word: SYMBOLS[0]} if whole else symbols
        # A span of one side could become one with the sign beside it.
        if self.spans(source) or self.target.spans(target):
            return source, target, symbols
        before_closing = number % 2 == 1
        return _with_sign(source, before_closing), _with_sign(target, before_closing), {SIGN: SYMBOLS[0]}

    def replace(self, text: str, symbols: Mapping[str, str], escape: Callable[[str], str]) -> str:
        """`text` with symbols in place of their spans, and all else through `escape`."""
        parts, place = [], 0
        if symbols:
            # Words that training pairs share are no spans.
            for start, end in self._places_with(symbols, text):
                if (symbol := symbols.get(text[start:end])) is not None:
                    parts += [escape(text[place:start]), symbol]
                    place = end
        return "".join([*parts, escape(text[place:])])

    def without(self, text: str, symbols: Mapping[str, str]) -> str:
        """`text` without the spans that have symbols."""
        spaces = dict.fromkeys(symbols, " ")
        return " ".join(self.replace(text, spaces, str).split())

    def mask(self, text: str, others: Iterable[str] = ()) -> tuple[str, list[str]]:
        """`text` with the same sign in place of every span, and the spans, which later steps must not change.

        Signs that the text itself has count as spans, and so do `others`, as in `spans`. `put_back` undoes it.
        """
        spans: list[str] = []
        parts, place = [], 0
        for start, end in self._places_with(others, text):
            spans += [SYMBOLS[0]] * text.count(SYMBOLS[0], place, start)
            spans.append(text[start:end])
            parts += [text[place:start], SYMBOLS[0]]
            place = end
        spans += [SYMBOLS[0]] * text.count(SYMBOLS[0], place)
        return "".join([*parts, text[place:]]), spans

    def count(self, source: str, target: str) -> Counter[str]:
        """Distinct spans of a pair: `pairs` (1 if it shares any), `spans` that it shares, `without_partner`.

        `without_partner` are spans of one side alone, and shared ones beyond the number of symbols. `copies` is 1 for a
        pair that has another symbol in training.
        """
        spans = set(self.spans(source))
        sides = spans, set(self.target.spans(target, spans))
        shared = min(len(sides[0] & sides[1]), len(SYMBOLS))
        counts = Counter(pairs=int(shared > 0), spans=shared, without_partner=len(sides[0] | sides[1]) - shared)
        if not shared and self.training_pair(source, target)[2]:
            counts["copies"] = 1
        return counts

    def outcomes(self, text: str, source: str) -> dict[str, int]:
        """Counts of the spans of a source in its translation, which still has symbols. Repeated spans count each time.

        `spans` of the source that have symbols, how many are `missing`, how many more there are than in the source
        (`surplus`), and how many symbols are `dropped` because the source has no such span.
        """
        symbols, in_text = self.symbols(source), Counter(SYMBOL.findall(text))
        in_source = Counter(symbols[span] for span in self.spans(source) if span in symbols)
        dropped = sum(count for symbol, count in in_text.items() if symbol not in in_source)
        return {
            "spans": in_source.total(),
            "missing": (in_source - in_text).total(),
            "surplus": (in_text - in_source).total() - dropped,
            "dropped": dropped,
        }


def _finder(word: str) -> Callable[[str, int], tuple[int, int] | None]:
    """A function of a text and a place: where the word begins and ends next, which is no part of a longer one."""

    def find(text: str, place: int) -> tuple[int, int] | None:
        start = text.find(word, place)
        while start >= 0:
            end = start + len(word)
            if _BEGIN.match(text, start) and _END.match(text, end):
                return start, end
            start = text.find(word, start + 1)
        return None

    return find


def _with_sign(text: str, before_closing: bool) -> str:
    """A text with `SIGN` at its end, or before its closing punctuation; with a space where the text has spaces."""
    place = len(text)
    while before_closing and place and text[place - 1] != "_" and unicodedata.category(text[place - 1])[0] in "PZ":
        place -= 1
    space = " " if " " in text else ""
    return f"{text[:place]}{space}{SIGN}{text[place:]}"


def put_back(text: str, spans: Iterable[str]) -> str:
    """Spans in place of the signs that `Placeholders.mask` put for them."""
    following = iter(spans)
    return re.sub(SYMBOLS[0], lambda _: next(following), text)


def restore(text: str, symbols: Mapping[str, str], unescape: Callable[[str], str]) -> str:
    """`text` with spans in place of their symbols, and all else through `unescape`.

    A symbol that `symbols` does not have is dropped.
    """
    if not SYMBOL.search(text):
        return unescape(text)
    spans = {symbol: span for span, symbol in symbols.items()}
    parts = re.split(f"({SYMBOL.pattern})", text)
    restored = "".join(spans.get(part, "") if place % 2 else unescape(part) for place, part in enumerate(parts))
    if all(symbol in spans for symbol in parts[1::2]):
        return restored
    return " ".join(restored.split())


def numbered(pieces: Iterable[str]) -> list[str]:
    """Subwords to show: `<1>`, `<2>`, … in place of symbols."""
    return [restore(piece, NUMBERS, str) for piece in pieces]


def outcome_words(counts: Mapping[str, int]) -> str:
    """Sums of `Placeholders.outcomes` in words.

    For example: "of 20 placeholders, 1 missing, 3 surplus, 2 dropped (without text)".
    """
    spans, missing, surplus, dropped = (counts.get(name, 0) for name in ("spans", "missing", "surplus", "dropped"))
    sentence = f"of {spans:,} placeholders, {missing:,} missing"
    if surplus:
        sentence += f", {surplus:,} surplus"
    if dropped:
        sentence += f", {dropped:,} dropped (without text)"
    return sentence


def words(counts: Mapping[str, int]) -> str:
    """`Placeholders.count` in words, such as "3 pairs with 4 placeholders on both sides, 1 without partner"."""
    return (
        f"{counts.get('pairs', 0):,} pairs with {counts.get('spans', 0):,} placeholders on both sides, "
        f"{counts.get('without_partner', 0):,} without partner"
        + (f", and {count:,} pairs with a shared word or a sign as one" if (count := counts.get("copies", 0)) else "")
    )
