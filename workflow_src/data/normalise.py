"""Text normalisation of the texts of models and of references; reasons to leave training pairs out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from workflow_src.config.languages import DOTTED_I, two_letters
from workflow_src.config.preparation import NormalisationConfig, UnicodeForm
from workflow_src.config.recipe import PlaceholderKind, TextRules, TokenisedKind
from workflow_src.data.characters import BLANK_WORD, CONTROL, INVISIBLE, word_counter
from workflow_src.data.placeholders import SYMBOLS, Placeholders, put_back
from workflow_src.data.tokenised import detokeniser

# Marks the side of a token that no space separates from its neighbour, as OpenNMT's tokeniser does (U+FFED). A text
# that has this character gets the full-width one, to which Unicode declares it compatible.
JOINER, LIKE_JOINER = "\uffed", "\u25a0"
JOINED = re.compile(f" ?{JOINER} ?")
# Old fonts had cedillas (U+015E/F, U+0162/3) where Romanian has commas (U+0218/9, U+021A/B).
CEDILLA_TO_COMMA = str.maketrans("ŞşŢţ", "ȘșȚț")
# I, J and Į below an accent, in NFD.
ACCENTED_I = re.compile("[IJ]\u0328?(?=[\u0300\u0301\u0303])")
# Removed because writers leave them out as often as not (Sennrich et al. 2016, WMT'16 Romanian-English).
WITHOUT_DIACRITICS = str.maketrans("ĂăÂâÎîȘșȚț", "AaAaIiSsTt")


def clean(text: str, form: UnicodeForm = "NFC") -> str:
    """Unicode normal form, no invisible characters, runs of whitespace and control characters as one space, none at
    the ends.

    A word in which nothing can be seen counts as whitespace, so that text without a visible character becomes "".
    Idempotent. Line separators of any kind become spaces, so that a line stays a line.
    """
    if not (text.isascii() and text.isprintable()):
        text = INVISIBLE.sub("", CONTROL.sub(" ", text))
        if not unicodedata.is_normalized(form, text):
            text = unicodedata.normalize(form, text)
        text = BLANK_WORD.sub("", text)
    return " ".join(text.split())


def romanian(text: str) -> str:
    """Cedilla letters as comma letters, then ă â î ș ț (and capitals) without marks; idempotent, NFC in and out."""
    while not text.isascii():
        plain = text.translate(CEDILLA_TO_COMMA).translate(WITHOUT_DIACRITICS)
        if plain == text:
            break
        # A letter that had one mark more composes anew, perhaps to a letter of the table: look again.
        text = unicodedata.normalize("NFC", plain)
    return text


def lowercase(text: str, language: str) -> str:
    """`text` in small letters by the rules of a language (ISO 639-1), which Unicode's SpecialCasing lists.

    Turkish and Azerbaijani: I becomes ı, and İ i. Lithuanian: i and j keep their dot below an accent. A Greek sigma at
    the end of a word becomes ς in every language.
    """
    if language in DOTTED_I:
        text = text.replace("I\u0307", "i").replace("İ", "i").replace("I", "ı")
    elif language == "lt" and not text.isascii():
        text = ACCENTED_I.sub(lambda match: match[0].lower() + "\u0307", unicodedata.normalize("NFD", text))
    return text.lower()


def mark_joins(text: str, tokens: list[str]) -> str:
    """`tokens` of `text` with spaces between them, and JOINER where the text itself has no space.

    The mark is on the side of the punctuation, so that a word is the same token with and without it: `(see 10:30)`
    becomes `(￭ see 10 ￭:￭ 30 ￭)`. `text` has single spaces and no JOINER; it is returned as it is where the tokens
    are not its characters.
    """
    marked: list[str] = []
    place = 0
    for token in tokens:
        spaced = text.startswith(" ", place)
        place += spaced
        if not text.startswith(token, place):
            return text
        place += len(token)
        if marked and not spaced:
            if token[0].isalnum() and not marked[-1][-1].isalnum():
                marked[-1] += JOINER
            else:
                token = JOINER + token
        marked.append(token)
    return " ".join(marked) if place == len(text) else text


class Normaliser:
    """Normalisation of one language's text.

    The order is that of the WMT'16 Romanian scripts: Unicode and whitespace, punctuation, Romanian letters,
    tokenisation, lowercasing. Without Moses tokenisation, normalising twice is normalising once; with it,
    `detokenise` gives back the text that was tokenised. Spans of the kinds `placeholders` stay as they are after the
    first step. Text of a corpus that is `tokenised` becomes ordinary text first.
    """

    def __init__(
        self,
        settings: NormalisationConfig,
        language: str,
        placeholders: Sequence[PlaceholderKind] = (),
        tokenised: TokenisedKind | None = None,
    ):
        self.settings = settings
        self.language = language
        # The code that rules of languages, ours and sacremoses', are named by.
        self._rules = two_letters(language)
        self._placeholders = Placeholders(placeholders) if placeholders else None
        self._untokenised = detokeniser(tokenised, language) if tokenised else None
        self._steps: list[Callable[[str], str]] = []
        self._tokenise: Callable[[str], list[str]] | None = None
        if settings.moses_punctuation:
            self._steps.append(self._punctuation())
        if settings.romanian and self._rules == "ro":
            self._steps.append(romanian)
        if settings.moses_tokenise:
            self._tokenise = self._tokenisation()

    def _punctuation(self) -> Callable[[str], str]:
        from sacremoses import MosesPunctNormalizer

        normalise = MosesPunctNormalizer(lang=self._rules).normalize

        def settled(text: str) -> str:
            # One replacement can make room for another (spaces before quotes, say); a few rounds settle it.
            for _ in range(4):
                previous, text = text, clean(normalise(text), self.settings.unicode)
                if text == previous:
                    break
            return text

        return settled

    def _tokenisation(self) -> Callable[[str], list[str]]:
        from sacremoses import MosesTokenizer

        tokenise = MosesTokenizer(lang=self._rules).tokenize
        # Without escapes such as &apos;, which subwords do not need.
        return lambda text: tokenise(text, escape=False)

    def reference(self, text: str) -> str:
        """A reference for scoring: `ordinary` as it is given, or normalised and detokenised as outputs are.

        Outputs of models that learned from lowercased text, say, have no capitals to be right or wrong.
        """
        if self.settings.references == "normalised":
            return self.detokenise(self.line(text))
        return self.ordinary(text)

    def ordinary(self, text: str) -> str:
        """A raw line in NFC with clean whitespace, and without the spaces of its tokenisation.

        NFKC would make ！ and １２ of a reference ASCII, and scores on it could not be compared with published ones.
        """
        return self._ordinary(text, "NFC")

    def _ordinary(self, text: str, form: UnicodeForm) -> str:
        text = clean(text, form)
        return text if self._untokenised is None else clean(self._untokenised(text), form)

    def line(self, text: str) -> str:
        """The normalised line, which may be empty. It holds no line breaks, tabs or double spaces."""
        text = self._ordinary(text, self.settings.unicode)
        if self._placeholders is None:
            return self._stepped(text)
        text, spans = self._placeholders.mask(text)
        stepped = self._stepped(text)
        assert stepped.count(SYMBOLS[0]) == len(spans), "steps keep signs of the private use area"
        return put_back(stepped, spans)

    def _stepped(self, text: str) -> str:
        """Clean text after all further steps."""
        for step in self._steps:
            text = clean(step(text), self.settings.unicode)
        if self._tokenise is not None:
            text = text.replace(JOINER, LIKE_JOINER)
            text = mark_joins(text, self._tokenise(text))
        if self.settings.lowercase:
            # NFC suffices for text in NFKC, whose small letters are in NFKC; NFKC would replace the joiner.
            text = unicodedata.normalize("NFC", lowercase(text, self._rules))
        return text

    def detokenise(self, text: str) -> str:
        """Undoes Moses tokenisation of a normalised line or of a translation; other text stays as it is."""
        if self._tokenise is None:
            return text
        # Marks of one letter may have been tokens of their own, and then have an order when they meet again.
        return unicodedata.normalize(self.settings.unicode, JOINED.sub("", text))


def normaliser_of(language: str, settings: NormalisationConfig, rules: TextRules) -> Normaliser:
    """The normalisation of a recipe's text in a language."""
    return Normaliser(settings, language, rules.placeholders, rules.tokenised.get(language))


def drop_reason(
    source: str, target: str, settings: NormalisationConfig, languages: tuple[str, str], training: bool
) -> str | None:
    """Why a normalised pair is left out, or None: `empty` or `max_characters`, and of pairs to train on `max_words` or
    `length_ratio` (see `word_counter`).
    """
    if not source or not target:
        return "empty"
    if settings.max_characters is not None and max(len(source), len(target)) > settings.max_characters:
        return "max_characters"
    if not training or (settings.max_words is None and settings.max_length_ratio is None):
        return None
    lengths = word_counter(languages[0])(source), word_counter(languages[1])(target)
    if settings.max_words is not None and max(lengths) > settings.max_words:
        return "max_words"
    if settings.max_length_ratio is not None and max(lengths) > settings.max_length_ratio * min(lengths):
        return "length_ratio"
    return None
