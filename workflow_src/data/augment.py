"""Training pairs in capitals, as titles, with typing errors or without accents, so that models can read such text."""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from workflow_src.config.languages import DOTTED_I, two_letters
from workflow_src.config.training import MODIFIERS, AugmentConfig
from workflow_src.data.patterns import IN_WORD
from workflow_src.data.placeholders import Placeholders, put_back

# Letters of a row of keys, from left to right.
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
# Probability of a typing error in a word (a sentence has at least one), and letters of the shortest such word; vowel
# signs are typed as letters are.
TYPO_RATE, SHORTEST = 0.2, 3
WORD = re.compile(rf"(?:(?![\d_])[{IN_WORD}]){{{SHORTEST},}}")
# Pairs that a share amounts to, from which it is no chance that none was changed.
LEAST = 20


class Augmented(NamedTuple):
    """A training pair, and which modifier has changed it, if any."""

    source: str
    target: str
    modifier: str | None


def augmented(
    source: str,
    target: str,
    settings: AugmentConfig,
    languages: tuple[str, str],
    placeholders: Placeholders | None,
) -> Augmented:
    """A training pair, changed with the probability of the shares; it depends on its text and on `settings` alone.

    Upper and title change both sides, typos and no_accents the source. A pair whose source would not change stays.
    Spans of `placeholders` stay.
    """
    # Random numbers of a pair, the same wherever it stands.
    text = f"{settings.seed}\n{source}\n{target}"
    draw = random.Random(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest())
    modifier = _drawn(settings, draw.random())
    changed_source, changed_target = source, target
    if modifier is not None and modifier in CASES:
        change = CASES[modifier]
        # A span of the source stays in the target too, where it may be an ordinary word.
        spans = placeholders.spans(source) if placeholders else []
        of_target = placeholders.target if placeholders else None
        changed_source = _change_around_spans(source, placeholders, lambda text: change(text, languages[0]))
        changed_target = _change_around_spans(target, of_target, lambda text: change(text, languages[1]), spans)
    elif modifier == "typos":
        changed_source = _change_around_spans(source, placeholders, lambda text: typos(text, draw))
    elif modifier == "no_accents":
        changed_source = _change_around_spans(source, placeholders, no_accents)
    # A model cannot read off a source without case that its translation should be in capitals.
    if changed_source == source:
        return Augmented(source, target, None)
    return Augmented(changed_source, changed_target, modifier)


def _drawn(settings: AugmentConfig, number: float) -> str | None:
    """The modifier of a uniform number in [0, 1), each with the probability of its share."""
    bound = 0.0
    for name in MODIFIERS:
        bound += getattr(settings, name)
        if number < bound:
            return name
    return None


def _change_around_spans(
    text: str, placeholders: Placeholders | None, change: Callable[[str], str], others: Iterable[str] = ()
) -> str:
    """`text` changed outside of its placeholders, and of `others`."""
    if placeholders is None:
        return change(text)
    text, spans = placeholders.mask(text, others)
    return put_back(change(text), spans)


def upper(text: str, language: str) -> str:
    dotted = text.replace("i", "İ") if two_letters(language) in DOTTED_I else text
    return unicodedata.normalize("NFC", dotted.upper())


def title(text: str, language: str) -> str:
    """`text` with a capital as the first letter of every word; other letters stay."""
    return " ".join(_capitalised(word, language) for word in text.split(" "))


def _capitalised(word: str, language: str) -> str:
    for place, character in enumerate(word):
        if character.isalpha():
            # Signs that belong to the letter before them follow it.
            first = "İ" if character == "i" and two_letters(language) in DOTTED_I else character.title()
            return unicodedata.normalize("NFC", word[:place] + first + word[place + 1 :])
    return word


CASES: Mapping[str, Callable[[str, str], str]] = {"upper": upper, "title": title}


def no_accents(text: str) -> str:
    """`text` without the accents of Latin and Greek letters."""
    characters: list[str] = []
    base = False
    for character in unicodedata.normalize("NFD", text):
        if unicodedata.combining(character):
            if not base:
                characters.append(character)
            continue
        base = unicodedata.name(character, "").startswith(("LATIN", "GREEK"))
        characters.append(character)
    return unicodedata.normalize("NFC", "".join(characters))


def typos(text: str, draw: random.Random) -> str:
    """`text` with an error in one of five words, and in one at least, where it has words of three letters or more."""
    words = list(WORD.finditer(text))
    if not words:
        return text
    certain = draw.randrange(len(words))
    pieces, place = [], 0
    for number, word in enumerate(words):
        if number == certain or draw.random() < TYPO_RATE:
            pieces += [text[place : word.start()], _mistyped(word.group(), draw)]
            place = word.end()
    return unicodedata.normalize("NFC", "".join([*pieces, text[place:]]))


def _mistyped(word: str, draw: random.Random) -> str:
    """A word with two neighbours swapped, a letter left out, doubled, or replaced by that of a neighbouring key."""
    place = draw.randrange(len(word) - 1)
    letter, following = word[place], word[place + 1]
    near = _near(letter)
    kind = draw.choice(("swap", "drop", "double", "near") if near else ("swap", "drop", "double"))
    swapped = word[:place] + following + letter + word[place + 2 :]
    # Two equal letters are as they were, and so are some marks in the order of Unicode.
    if kind == "swap" and unicodedata.normalize("NFC", swapped) != unicodedata.normalize("NFC", word):
        return swapped
    if kind == "drop":
        return word[:place] + word[place + 1 :]
    if kind == "near":
        return word[:place] + draw.choice(near) + word[place + 1 :]
    return word[: place + 1] + word[place:]


def _near(letter: str) -> str:
    """Letters of the keys beside that of a letter, as capitals where it is one."""
    for row in ROWS:
        if (place := row.find(letter.lower())) >= 0 and len(letter.lower()) == 1:
            near = row[max(place - 1, 0) : place] + row[place + 1 : place + 2]
            return near.upper() if letter.isupper() else near
    return ""


def without_effect(settings: AugmentConfig, counts: Mapping[str, int], pairs: int) -> list[str]:
    """The modifiers that have changed none of so many pairs, such as capitals where the source has no case."""
    return [name for name in MODIFIERS if getattr(settings, name) * pairs >= LEAST and not counts.get(name)]


def words(counts: Mapping[str, int]) -> str:
    """Counts of augmented pairs, such as "upper 12, typos 30; 2 stay, which would be too long"."""
    changed = ", ".join(f"{name} {counts[name]:,}" for name in MODIFIERS if counts.get(name)) or "none"
    return changed + (f"; {counts['too_long']:,} stay, which would be too long" if counts.get("too_long") else "")
