"""Text that is tokenised, with spaces that nobody writes: how to notice it, and ordinary text from it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping

from workflow_src.config.languages import scripts_of, spaced, two_letters
from workflow_src.config.recipe import TokenisedKind
from workflow_src.data.patterns import UNSPACED_LETTERS

# Lines of a text that are looked at, and those with signs of either kind that it takes to judge.
SAMPLE, LEAST = 10_000, 20
# The share of these lines from which a text counts as tokenised.
MOST = 0.5
# Full stops of Indic scripts: some writers put a space before them.
DANDAS = "\u0964\u0965"
# Full stops, commas and question marks of Arabic, Ethiopic and Armenian scripts, which Moses does not know.
OTHER_MARKS = "\u061f\u060c\u061b\u06d4\u1362-\u1367\u0589\u055d"
# Marks behind a word and a space, and right behind a word.
APART = re.compile(rf"(?<=\S) [.,{OTHER_MARKS}](?= |$)")
JOINED = re.compile(rf"[^\s\d.,?!{OTHER_MARKS}{DANDAS}][.,?!{OTHER_MARKS}{DANDAS}](?= |$)")
# French has a space before these, and some writers of Indic scripts have.
QUESTION_APART = re.compile(r"(?<=\S) [?!](?= |$)")
INDIC = {"BENGALI", "DEVANAGARI", "GUJARATI", "GURMUKHI", "ORIYA"}
SPACE_BEFORE_MARK = re.compile(rf" (?=[{OTHER_MARKS}{DANDAS}](?!\w))")
LETTER = re.compile(f"[{UNSPACED_LETTERS}]")
# Without punctuation of full width, which ordinary text may have a space behind.
MARKS = r"\u3000-\u3004\u3008-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
LETTERS_APART = re.compile(f"(?<=[{UNSPACED_LETTERS}])(?<![{MARKS}]) (?![{MARKS}])(?=[{UNSPACED_LETTERS}])")
# Where words are not separated, Thai has a space after 20 letters or more, and tokenised text after 2 to 6.
FEWEST_LETTERS, SPACES_PER_LETTER = 6, 0.1
# What a space stands before or behind in a language without spaces.
SPACE_BESIDE_LETTERS = re.compile(f"(?<=[{UNSPACED_LETTERS}]) +| +(?=[{UNSPACED_LETTERS}])")
# The Penn Treebank's and Stanford's names of brackets and quotes, and their and Moses' parts of English contractions.
TREEBANK = {
    **{"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"},
    **{"``": '"', "''": '"'},
}
NOT = re.compile(r"(?i)n't|'t")


def tokenised_share(lines: Iterable[str], language: str) -> float:
    """The share of lines with spaces that only tokenised text has, of the first lines that have signs of either kind.

    0 for text that has few such lines.
    """
    if not spaced(language):
        judge = _unspaced_line
    elif two_letters(language) == "fr" or INDIC.intersection(scripts_of(language) or ()):
        judge = _line_by_commas
    else:
        judge = _spaced_line
    verdicts = [verdict for line in itertools.islice(lines, SAMPLE) if (verdict := judge(line)) is not None]
    return sum(verdicts) / len(verdicts) if len(verdicts) >= LEAST else 0.0


def _spaced_line(line: str) -> bool | None:
    verdict = _line_by_commas(line)
    return True if verdict is None and QUESTION_APART.search(line) else verdict


def _line_by_commas(line: str) -> bool | None:
    if APART.search(line):
        return True
    return False if JOINED.search(line) else None


def _unspaced_line(line: str) -> bool | None:
    letters = len(LETTER.findall(line))
    if letters < FEWEST_LETTERS:
        return None
    return len(LETTERS_APART.findall(line)) >= SPACES_PER_LETTER * letters


def kind_for(language: str) -> TokenisedKind:
    """The kind of tokenisation that a language may have."""
    return "moses" if spaced(language) else "words"


def warning(shares: Mapping[str, Mapping[str, float]]) -> str:
    """A sentence about the texts that look tokenised, {split: {language: share of lines}}; "" without any."""
    languages = dict.fromkeys(code for by_language in shares.values() for code in by_language)
    if not languages:
        return ""
    texts = "; ".join(
        f"{code} in {', '.join(f'{split} ({by[code]:.0%})' for split, by in shares.items() if code in by)}"
        for code in languages
    )
    kinds = ", ".join(f"{code}: {kind_for(code)}" for code in languages)
    return (
        f"Text looks tokenised: {texts}, of the lines that can show it. Systems that learn from it read ordinary text "
        f"badly, and scores are those of tokenised text; set recipe.tokenised: {{{kinds}}} to learn from ordinary text."
    )


def shares_of(texts: Iterable[tuple[str, str, Iterable[str]]]) -> dict[str, dict[str, float]]:
    """{split: {language: `tokenised_share`}} of the texts (split, language, lines) that look tokenised."""
    shares: dict[str, dict[str, float]] = {}
    for split, language, lines in texts:
        if (share := tokenised_share(lines, language)) >= MOST:
            shares.setdefault(split, {})[language] = round(share, 4)
    return shares


def detokeniser(kind: TokenisedKind, language: str) -> Callable[[str], str]:
    """A function of a tokenised line, with single spaces, that returns ordinary text."""
    if kind == "words":
        return lambda line: SPACE_BESIDE_LETTERS.sub("", line)
    from sacremoses import MosesDetokenizer

    detokenise = MosesDetokenizer(lang=two_letters(language)).detokenize

    def moses(line: str) -> str:
        words: list[str] = []
        for word in line.split():
            # "do n't", and "can 't" as other tokenisers have it.
            if words and NOT.fullmatch(word):
                words[-1] += word
            else:
                words.append(TREEBANK.get(word.lower(), word))
        return SPACE_BEFORE_MARK.sub("", detokenise(words))

    return moses
