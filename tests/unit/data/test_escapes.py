from hypothesis import given
from hypothesis import strategies as st

from workflow_src.data.escapes import NIBBLES, RESERVED, Escape, unescape

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, st.sets(st.characters(exclude_categories=["Cs"])))
def test_nothing_is_lost_and_only_known_characters_remain(text, alphabet):
    escaped = Escape(alphabet)(text)
    assert set(escaped) <= (alphabet | {" "}) - RESERVED | set(NIBBLES)
    assert unescape(escaped) == text


@given(texts)
def test_known_text_stays_as_it_is(text):
    plain = "".join(character for character in text if character not in RESERVED)
    assert Escape(plain)(plain) == plain == Escape()(plain)


def test_spells_utf8_bytes():
    # The euro sign is e2 82 ac in UTF-8.
    assert Escape("ab]^-\\")("a€]b") == "a" + "".join(NIBBLES[value] for value in (14, 2, 8, 2, 10, 12)) + "]b"


def test_patterns_are_escaped_too():
    assert Escape("a@", also="@@")("a@a@@a").count("@") == 1
    assert unescape(Escape("a@", also="@@")("a@a@@a")) == "a@a@@a"


def test_broken_spelling_becomes_a_replacement_character():
    assert unescape("a" + NIBBLES[14] + NIBBLES[2] + NIBBLES[8] + "b") == "a\ufffdb"
