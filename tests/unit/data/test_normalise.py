"""Normalisation: properties on any text, and tables of what it does to known text."""

import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workflow_src.config.datasets import NormalisationConfig
from workflow_src.data.normalise import Normaliser, clean, drop_reason, romanian

# Any text a UTF-8 file can hold, with the characters that normalisation is about far more often than by chance.
SPECIAL = "\t\r\n\x00\x1f\x7f\x85\xa0\xad\u2028\u2029\u200b\u200d\ufeff\u3000\u0301\u0306\u0326\u0327aAsStTăâîșțŞşŢţİΣ ́"
TEXT = st.lists(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(SPECIAL)), max_size=30).map("".join)
VARIANTS = [
    {}, {"unicode": "NFKC"}, {"lowercase": True}, {"romanian": True}, {"moses_punctuation": True},
    {"romanian": True, "lowercase": True, "unicode": "NFKC"},
]  # fmt: skip
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
    kept = [c for c in unicodedata.normalize("NFC", clean(text)) if unicodedata.category(c)[0] in "LN"]
    assert kept == [c for c in clean(text) if unicodedata.category(c)[0] in "LN"]
    visible = "".join(c for c in text if unicodedata.category(c)[0] in "LNMPS")
    left = "".join(c for c in clean(text) if unicodedata.category(c)[0] in "LNMPS")
    assert unicodedata.normalize("NFD", visible) == unicodedata.normalize("NFD", left)


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
    ],
)
def test_cleaning(text, expected):
    assert clean(text) == expected


def test_nfkc_folds_widths():
    assert Normaliser(NormalisationConfig(unicode="NFKC"), "ja").line("ｆｕｌｌ　ﬁ　ｶﾞ") == "full fi ガ"


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
    ("given", "scored"),
    [
        ("Iaşi, str. 5 (azi)!", "iasi, str. 5 (azi)!"),
        ("  „Şi”  a ZIS: 3,5 %", '"si" a zis: 3,5%'),
        # The rules of Romanian put spaces at these apostrophes, in outputs too.
        ("It's 5 o'clock.", "it 's 5 o' clock."),
    ],
)
def test_normalised_references_are_outputs_without_an_error(given, scored):
    steps = {"romanian": True, "moses_punctuation": True, "moses_tokenise": True, "lowercase": True}
    side = Normaliser(NormalisationConfig(**steps, references="normalised"), "ro")
    # A model that puts out exactly its training target, and what decoding does with it.
    assert side.reference(given) == side.detokenise(side.line(given)) == scored
    assert Normaliser(NormalisationConfig(**steps), "ro").reference(given) == clean(given)


def test_rules_are_handed_what_they_were_before_references_could_be_normalised():
    assert "references" not in NormalisationConfig().model_dump(mode="json")
    assert NormalisationConfig(references="normalised").model_dump(mode="json")["references"] == "normalised"


def test_news_of_the_wmt16_kind():
    text = "„Nu putem şti dacă a fost ucis în luptă”, spune  Dowd,\u00a0remarcând că trupul..."
    everything = NormalisationConfig(romanian=True, moses_punctuation=True, moses_tokenise=True, lowercase=True)
    assert Normaliser(NormalisationConfig(romanian=True), "ro").line(text) == (
        "„Nu putem sti daca a fost ucis in lupta”, spune Dowd, remarcand ca trupul..."
    )
    assert Normaliser(everything, "ro").line(text) == (
        '" nu putem sti daca a fost ucis in lupta " , spune dowd , remarcand ca trupul ...'
    )


def test_moses_tokens_are_put_together_again():
    german = Normaliser(NormalisationConfig(moses_tokenise=True), "de")
    text = "Er sagte, dass z.B. 3,5 % & mehr (viel mehr!) möglich <seien>."
    tokens = german.line(text)
    assert tokens == "Er sagte , dass z.B. 3,5 % & mehr ( viel mehr ! ) möglich < seien > ."
    assert german.detokenise(tokens) == "Er sagte, dass z.B. 3,5% & mehr (viel mehr!) möglich < seien >."
    english = Normaliser(NormalisationConfig(moses_tokenise=True), "en")
    assert english.line("It's &amp; isn't") == "It 's & amp ; isn 't"
    assert english.detokenise("It 's fine , isn 't it ?") == "It's fine, isn't it?"
    assert english.detokenise("") == ""


@given(TEXT)
def test_without_moses_there_is_nothing_to_undo(text):
    assert NORMALISERS[0].detokenise(text) == text


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
    assert drop_reason(source, target, settings, training) == expected


def test_plain_text_is_fast():
    lines = [
        "Ein ganz gewöhnlicher Satz mit Umlauten, wie sie überall stehen.",
        "An ordinary sentence in English.",
    ] * 10_000
    normalise = NORMALISERS[0].line
    began = time.process_time()
    for line in lines:
        normalise(line)
    assert len(lines) / (time.process_time() - began) > 50_000
