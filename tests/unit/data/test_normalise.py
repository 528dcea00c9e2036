"""Normalisation: properties on any text, and tables of what it does to known text."""

import functools
import re
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workflow_src.config.preparation import NormalisationConfig
from workflow_src.data.characters import BLANK
from workflow_src.data.normalise import JOINER, LIKE_JOINER, Normaliser, clean, drop_reason, romanian

# Any text a UTF-8 file can hold, with the characters that normalisation is about far more often than by chance.
BLANKS = "\u3164\u2800\U000e0061\ufe0f\uffa0"
SPECIAL = "\t\r\n\x00\x1f\x7f\x85\xa0\xad\u2028\u2029\u200b\u200d\ufeff\u3000\u0301\u0306\u0326\u0327aAsStTăâîșțŞşŢţİΣ ́"
TEXT = st.lists(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(SPECIAL + BLANKS)), max_size=30
).map("".join)
VARIANTS = [
    {},
    {"unicode": "NFKC"},
    {"lowercase": True},
    {"romanian": True},
    {"moses_punctuation": True},
    {"romanian": True, "lowercase": True, "unicode": "NFKC"},
]
# Of England: a black flag and tag characters.
FLAG = "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
NORMALISERS = [Normaliser(NormalisationConfig(**settings), "ro") for settings in VARIANTS]


@pytest.mark.parametrize("normaliser", NORMALISERS, ids=[str(settings) for settings in VARIANTS])
@given(text=TEXT)
@example(text="s\u0327\u0301 a\u0306\u0302\u0302")
def test_lines_are_normal_clean_and_stay_as_they_are(normaliser, text):
    line = normaliser.line(text)
    assert unicodedata.is_normalized(normaliser.settings.unicode, line)
    assert not any(unicodedata.category(character) == "Cc" for character in line)
    assert line == " ".join(line.split()) and len(line.splitlines()) <= 1
    assert normaliser.reference(line) == line
    if not normaliser.settings.moses_punctuation:
        assert normaliser.line(line) == line


@given(TEXT)
def test_cleaning_keeps_every_letter_digit_and_mark(text):
    assert visible(text) == visible(clean(text))


def visible(text: str) -> str:
    """Letters, numbers, marks, punctuation and symbols that can be seen, decomposed: what cleaning may not change."""
    shown = "".join(c for c in text if unicodedata.category(c)[0] in "LNMPS")
    return re.sub(f"[{BLANK}]", "", unicodedata.normalize("NFD", shown))


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_the_short_way_for_ascii_agrees_with_the_long_one(text):
    assert clean(text) == clean(text + " \u200b")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("  a \t b\u00a0c\r", "a b c"),
        ("u\u0308ber", "über"),
        ("\ufeffStart", "Start"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
        ("line\u2028break\x0bfeed\x85next", "line break feed next"),
        ("bell\x07 esc\x1b[0m", "bell esc [0m"),
        ("one\x00two\x01three\x1f\x7ffour\x9ffive", "one two three four five"),
        ("ｆｕｌｌ ﬁ ½", "ｆｕｌｌ ﬁ ½"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\x00\u200b \t", ""),
        ("سلام\u061c دنیا", "سلام دنیا"),
        ("a \u3164 b \u2800\u2800", "a b"),
        ("क्\u200dष", "क्\u200dष"),
        ("👩\u200d🚀 ☺\ufe0f", "👩\u200d🚀 ☺\ufe0f"),
        (FLAG, FLAG),
        ("ᠬᠠ\u180eᠠ", "ᠬᠠ\u180eᠠ"),
    ],
)
def test_cleaning(text, expected):
    assert clean(text) == expected


def test_text_in_which_nothing_can_be_seen_is_empty():
    regex = pytest.importorskip("regex", reason="needs regex, which sacremoses and sacrebleu bring")
    unicode_data = regex.compile(r"\p{Default_Ignorable_Code_Point}")
    assigned = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    ignorable = [character for character in assigned if unicode_data.match(character)]
    assert len(ignorable) > 4000
    for character in [*ignorable, "\u2800", "\U0001d159"]:
        for form in ("NFC", "NFKC"):
            assert clean(character, form) == clean(f" {character}{character} \u200d", form) == ""
    # What the table has beyond Unicode's property is blank for another reason, and nothing else is taken away.
    listed = {c for c in map(chr, range(sys.maxunicode + 1)) if re.match(f"[{BLANK}]", c)} - {*ignorable}
    assert listed == {"\u2800", "\U0001d159"}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ĂăÂâÎîȘșȚț", "AaAaIiSsTt"),
        ("ŞşŢţ", "SsTt"),
        ("s\u0326 s\u0327 t\u0326 t\u0327 a\u0306 i\u0302", "s s t t a i"),
        ("Şeful ţării şi-a încălcat mâna", "Seful tarii si-a incalcat mana"),
        ("Ș\u0301 é ü ñ č", "Ś é ü ñ č"),
    ],
)
def test_romanian_letters(text, expected):
    assert romanian(unicodedata.normalize("NFC", text)) == expected


def test_romanian_is_for_romanian_text_and_not_for_references():
    settings = NormalisationConfig(romanian=True)
    assert Normaliser(settings, "ro").line("Iași") == "Iasi"
    assert Normaliser(settings, "ro").reference("Iaşi ") == "Iaşi"
    assert Normaliser(settings, "en").line("Iași") == "Iași"
    assert Normaliser(NormalisationConfig(), "ro").line("Iaşi") == "Iaşi"


@pytest.mark.parametrize(
    ("text", "scored"),
    [
        ("Iaşi, str. 5 (azi)!", "iasi, str. 5 (azi)!"),
        ("  „Şi”  a ZIS: 3,5 %", '"si" a zis: 3,5%'),
        ("It's 5 o'clock.", "it's 5 o'clock."),
    ],
)
def test_normalised_references_are_outputs_without_an_error(text, scored):
    steps = {"romanian": True, "moses_punctuation": True, "moses_tokenise": True, "lowercase": True}
    side = Normaliser(NormalisationConfig(**steps, references="normalised"), "ro")
    # A model that puts out exactly its training target, and what decoding does with it.
    assert side.reference(text) == side.detokenise(side.line(text)) == scored
    assert Normaliser(NormalisationConfig(**steps), "ro").reference(text) == clean(text)


def test_news_of_the_wmt16_kind():
    text = "„Nu putem şti dacă a fost ucis în luptă”, spune  Dowd,\u00a0remarcând că trupul..."
    everything = NormalisationConfig(romanian=True, moses_punctuation=True, moses_tokenise=True, lowercase=True)
    assert Normaliser(NormalisationConfig(romanian=True), "ro").line(text) == (
        "„Nu putem sti daca a fost ucis in lupta”, spune Dowd, remarcand ca trupul..."
    )
    assert Normaliser(everything, "ro").line(text) == (
        '"￭ nu putem sti daca a fost ucis in lupta ￭" ￭, spune dowd ￭, remarcand ca trupul ￭...'
    )


LANGUAGES = ("en", "de", "fr", "fi", "zh")


@functools.cache
def moses(language):
    return Normaliser(NormalisationConfig(moses_tokenise=True), language)


TYPED = [
    " ",
    *""". , : ' ’ " “ ” „ « ( ) - – ... … % € $5 10:30 a@b.c http://x.example/a?b=1&c l' isn't it's U.S. Mr. z.B. क्या
    日本 ½ DOTMULTI @-@ | &amp;""".split(),
]


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=st.one_of(TEXT, st.lists(st.sampled_from(TYPED), max_size=12).map("".join)))
@example(text="DOTMULTI and . DOTMULTI")
@example(text="\u0301 a")
def test_moses_tokens_come_back_as_the_text_that_they_are_of(language, text):
    side = moses(language)
    line = side.line(text)
    assert side.detokenise(line) == clean(text).replace(JOINER, LIKE_JOINER)
    assert line == " ".join(line.split())


@pytest.mark.parametrize("unicode", ["NFC", "NFKC"])
@given(text=TEXT)
@example(text="(ＡＢ)￭ İ.")
def test_moses_tokens_in_lower_case_come_back_in_the_normal_form(unicode, text):
    settings = NormalisationConfig(moses_tokenise=True, lowercase=True, unicode=unicode)
    side = Normaliser(settings, "en")
    # Letter by letter, as a sigma at the end of a token would not be at the end of a word of the text.
    expected = unicodedata.normalize(unicode, clean(text, unicode).replace(JOINER, LIKE_JOINER).lower())
    assert side.detokenise(side.line(text)).replace("ς", "σ") == expected.replace("ς", "σ")


def test_moses_tokens_are_marked_where_the_text_has_no_space():
    german = moses("de").line("Er sagte, dass z.B. 3,5 % & mehr (viel mehr!) möglich <seien>.")
    assert german == "Er sagte ￭, dass z.B. 3,5 % & mehr (￭ viel mehr ￭! ￭) möglich <￭ seien ￭> ￭."
    # The tokens themselves are those of Moses.
    tokens = "Er sagte , dass z.B. 3,5 % & mehr ( viel mehr ! ) möglich < seien > ."
    assert german.replace(JOINER, "") == tokens
    assert moses("en").line("It's 10:30, isn't it?") == "It ￭'s 10 ￭:￭ 30 ￭, isn ￭'t it ￭?"
    assert moses("fr").line("l'homme") == "l'￭ homme"


@pytest.mark.parametrize(
    ("output", "text"),
    [("", ""), ("￭", ""), ("a ￭", "a"), ("￭ a", "a"), ("a￭ ￭, ￭ b", "a,b"), ("a ￭￭ b", "ab"), ("a , b", "a , b")],
)
def test_any_output_of_a_model_is_put_together(output, text):
    assert moses("en").detokenise(output) == text
    # Without Moses tokenisation there is nothing to undo.
    assert NORMALISERS[0].detokenise(output) == output


@pytest.mark.parametrize(
    "source, target, training, expected",
    [
        ("a", "b", True, None),
        ("", "b", True, "empty"),
        ("a", "", False, "empty"),
        ("a b c d e f", "a b c", True, "max_words"),
        ("a b c d e f", "a b c", False, None),
        ("a b c d", "a b", True, None),
        ("a b", "a b c d e", True, "length_ratio"),
        ("a b", "a b c d e", False, None),
        ("x" * 30, "y" * 30, False, None),
        ("x" * 31, "y", False, "max_characters"),
        ("x", "y" * 31, True, "max_characters"),
        ("x" * 31, "", True, "empty"),
    ],
)
def test_reasons_to_drop(source, target, training, expected):
    settings = NormalisationConfig(max_words=5, max_length_ratio=2.0, max_characters=30)
    assert drop_reason(source, target, settings, ("de", "en"), training) == expected


def test_words_are_estimated_from_characters_where_they_have_no_spaces():
    ratio = NormalisationConfig(max_length_ratio=3.0)
    chinese, english = "我今天早上去学校上课。", "I went to class at school this morning ."
    assert drop_reason(chinese, english, ratio, ("zh", "en"), True) is None
    assert drop_reason(english, chinese, ratio, ("en", "zh"), True) is None
    assert drop_reason(chinese * 4, english, ratio, ("zh", "en"), True) == "length_ratio"
    assert drop_reason(chinese, english, NormalisationConfig(max_words=7), ("zh", "en"), True) == "max_words"
