"""Lines as sentences, and long sentences as pieces: nothing is lost, and every piece fits."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies

from workflow_src.data.placeholders import Placeholders
from workflow_src.serving.sentences import CLAUSE, Part, cut, gaps, join, split_lines, whole_lines

MARKS = "ab\uf8b0@<>/w%{}. !?,;:\t\n\u00a0\u2028\u200b。！，…–—„“()[]0123456789\ufeffäß\U0001f600"


def sentences(line: str, language: str = "de") -> list[str]:
    return [part.text for part in split_lines([line], language)]


def test_sentences_end_as_in_their_language():
    assert sentences("Das ist z.B. gut.  Er kam am 3. Mai.\tEr ging!") == [
        "Das ist z.B. gut.",
        "Er kam am 3. Mai.",
        "Er ging!",
    ]
    assert sentences("我很好。你呢？", "zh") == ["我很好。", "你呢？"]
    # By the language of a region, a code of three letters, or, of a language that is not known, by English rules.
    for code in ("de-AT", "DE", "deu"):
        assert len(sentences("Er kam am 3. Mai.", code)) == 1
    assert sentences("One. Two.", "qzz") == ["One.", "Two."]


def test_no_sentence_ends_within_an_address_or_a_tag():
    assert sentences("Siehe www.a.de?Was!Wo dort. Dann <b title=x>%1! Und {x}. Ja") == [
        "Siehe www.a.de?Was!Wo dort.",
        "Dann <b title=x>%1!",
        "Und {x}.",
        "Ja",
    ]
    # A line of signs that stand for spans is a line like any other.
    assert sentences("\uf8b0 Eins. www.b.de?Zwei \uf8b0. Drei.") == ["\uf8b0 Eins.", "www.b.de?Zwei \uf8b0.", "Drei."]


def test_white_space_between_sentences_is_kept_and_that_around_a_line_is_not():
    parts = split_lines([" Eins.  Zwei!\n\nDrei. ", "", " \t", "Vier"], "de")
    assert parts == [
        Part(0, "", "Eins."),
        Part(0, "  ", "Zwei!"),
        Part(0, "\n\n", "Drei."),
        Part(1, "", ""),
        Part(2, "", " \t"),
        Part(3, "", "Vier"),
    ]
    assert gaps(parts, "de", "en") == ["", "  ", "\n\n", "", "", ""]
    # A target language with spaces gets them where the source language has none.
    unspaced = split_lines(["一。二。 三。"], "zh")
    assert gaps(unspaced, "zh", "en") == ["", " ", " "] and gaps(unspaced, "zh", "ja") == ["", "", " "]
    assert join(["One.", "", "Three."], ["", "  ", "\n"]) == "One.\nThree." and join(["", "Two"], ["", " "]) == "Two"


@given(strategies.text(MARKS), strategies.sampled_from(["de", "en", "zh", "xx"]))
def test_parts_of_a_line_are_the_line(line, language):
    parts = split_lines([line], language)
    assert "".join(part.space + part.text for part in parts).strip() == line.strip()
    assert len(parts) == 1 or all(part.text and part.text == part.text.strip() for part in parts)
    assert whole_lines([line]) == [Part(0, "", line)]


@given(strategies.text(MARKS, min_size=1), strategies.integers(1, 9))
def test_pieces_fit_and_are_the_text(text, most):
    text = text.strip()
    pieces = cut(Part(7, "\t", text), lambda piece: len(piece) <= most)
    assert all(len(piece.text) <= most and piece.line == 7 for piece in pieces)
    assert pieces[0].space == "\t" and "".join(piece.space + piece.text for piece in pieces) == "\t" + text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("der Hund ruht, die Katze schläft heute noch", ["der Hund ruht,", "die Katze schläft heute noch"]),
        ("aaaa bbbb cccc dddd eeee ffff", ["aaaa bbbb cccc", "dddd eeee ffff"]),
        # A comma near an end is no middle.
        ("ja, aaaa bbbb cccc dddd eeee ffff", ["ja, aaaa bbbb cccc", "dddd eeee ffff"]),
        ("a" * 29, ["a" * 14, "a" * 15]),
        ("1,000,000,000 und 2,000,000,000", ["1,000,000,000", "und 2,000,000,000"]),
        ("这只狗正在睡觉，那只猫也在睡觉", ["这只狗正在睡觉，", "那只猫也在睡觉"]),
    ],
)
def test_a_long_sentence_is_cut_at_a_clause_else_a_word_else_in_a_word(text, expected):
    assert [piece.text for piece in cut(Part(0, "", text), lambda piece: piece != text)] == expected


def test_clauses_end_at_marks_before_white_space():
    text = "a, b; c: d – e,f"
    assert [match.end() for match in CLAUSE.finditer(text)] == [match.end() for match in re.finditer(r"[,;:–] ", text)]


SPANS = ["http://a.b/?q=X!Y", "<a title='Bir. Iki, ve'>", "{{ x }}", "%1", "a.b@c.de", "&amp;"]


@given(
    strategies.lists(strategies.sampled_from([*SPANS, ". ", "! ", ", ", "Wort", " ", "。"]), max_size=20).map("".join)
)
def test_no_span_is_divided_between_sentences(line):
    places = Placeholders().places
    parts = split_lines([line], "en")
    assert line.strip() == "".join(part.space + part.text for part in parts).strip()
    ends, end = set(), len(line) - len(line.lstrip())
    for part in parts:
        end += len(part.space + part.text)
        ends.add(end)
    assert not any(begin < end < stop for end in ends for begin, stop in places(line))


@given(strategies.lists(strategies.sampled_from([*SPANS, ", ", "Wort", " "]), min_size=1, max_size=20).map("".join))
# Without what stands before it, what follows the tag reads differently.
@example("<a title='Bir. Iki, ve'>%1a.b@c.dehttp://a.b/?q=X!Y")
def test_no_span_is_cut_unless_it_is_all_that_is_left(text):
    places = Placeholders().places
    longest = max([1, *(stop - begin for begin, stop in places(text))])
    pieces = cut(Part(0, "", text), lambda piece: len(piece) <= longest)
    assert "".join(piece.space + piece.text for piece in pieces) == text
    place, cuts = 0, set()
    for piece in pieces:
        cuts |= {place, place + len(piece.space)}
        place += len(piece.space + piece.text)
    assert not any(begin < point < stop for point in cuts for begin, stop in places(text))
