"""Lines as sentences, and long sentences as pieces: nothing is lost, and every piece fits."""

from __future__ import annotations

import re
import time

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


ONE_SENTENCE = {
    "de": [
        "Das Schloss stammt aus dem 19. Jahrhundert.",
        "Im 19. und 20. Jahrhundert war es ein Kloster.",
        "Am 3. Oktober war frei.",
        "Vom 1. bis 3. Mai ist zu.",
        "Es kostet ca. 5 Euro.",
        "Er heißt Dr. Müller.",
        "Prof. Dr. h. c. Meier kam.",
        "z. B. Katzen und Hunde.",
        "Siehe S. 12 und Abb. 3.",
        "Ludwig XIV. König von Frankreich.",
    ],
    "en": [
        "Mr. Smith met Mrs. Jones.",
        "He lives in the U.S. Army base.",
        "J. R. R. Tolkien wrote it.",
        "I saw St. Paul's and Rep. Smith.",
        "See Fig. 3 and No. 5.",
        "It costs approx. 5 dollars.",
        "Come at 5 p.m. Monday.",
        "e.g. Dogs and i.e. Cats.",
    ],
    "fr": ["M. Dupont et Mme. Martin.", "Voir p. 12 et fig. 3.", "L'an 50 av. J.-C. fut calme."],
    "es": ["El Sr. García y la Sra. López.", "Vea la pág. 12 y la fig. 3.", "Es del s. XV."],
    "it": ["Il Sig. Rossi e la Sig.ra Bianchi.", "Vedi pag. 12 e fig. 3."],
    "pt": ["O Sr. Silva e a Sra. Costa.", "V. Exa. Sabe"],
    "nl": ["Dhr. Jansen en mevr. De Vries.", "d.w.z. Katten", "Zie blz. 12."],
    "ru": ["Он жил на ул. Ленина.", "А. С. Пушкин родился в Москве.", "см. Рис. 5"],
    "pl": ["Dr. Kowalski przyszedł.", "19. Pułk walczył", "m.in. Polska"],
    "cs": ["V 19. století byl hrad.", "např. Praha je velká."],
    "tr": ["Dr. Ahmet geldi.", "19. Yüzyılda yapıldı.", "II. Mehmet geldi"],
    "ro": ["Dl. Popescu și dna. Ionescu.", "Str. Lungă 5"],
}
TWO_SENTENCES = {
    "de": [
        "Er ist 19. Sie ist 20.",
        "Das ist Kapitel 3. Danach kommt 4.",
        "Ich wohne in der Schweiz. Er auch.",
        "Heute ist der 3. Er kommt morgen.",
    ],
    "en": [
        "He has 5. She has 3.",
        "I am no. You are.",
        "It is 5 p.m. He left.",
        "I live in the U.S. He does too.",
        "He lives on Main St. He is old.",
        "He took off his cap. 2 men laughed.",
    ],
    "fr": ["Il est né en 1990. Il est mort.", "Je suis ok. 5 personnes sont venues."],
    "es": ["Gracias a todos. Hasta luego.", "Compró un par. 5 costaban poco."],
    "it": ["Sono dieci anni circa. 5 sono passati bene."],
    "ru": ["Помоги им. Они ждут."],
    "pl": ["Pomogłem im. Poszli dalej."],
    "cs": ["Je mu 5. Jí je 3."],
    "tr": ["O 5 yaşında. Bu 3."],
    "ro": ["A dat din cap. 5 oameni au râs."],
}


@pytest.mark.parametrize("language", ONE_SENTENCE)
def test_abbreviations_and_ordinals_end_no_sentence(language):
    assert [sentences(line, language) for line in ONE_SENTENCE[language]] == [[line] for line in ONE_SENTENCE[language]]


@pytest.mark.parametrize("language", TWO_SENTENCES)
def test_numbers_and_words_that_look_like_these_do(language):
    assert [len(sentences(line, language)) for line in TWO_SENTENCES[language]] == [2] * len(TWO_SENTENCES[language])


def test_an_ordinal_beside_an_address_ends_no_sentence():
    assert sentences("Siehe www.a.de im 19. Jahrhundert. Ja.") == ["Siehe www.a.de im 19. Jahrhundert.", "Ja."]


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


@pytest.mark.parametrize("word", ["a@b.de ", "www.ab.de/x, ", "<b>x</b> ", "{a}%1", "Hund. "])
def test_the_time_to_cut_a_line_is_proportional_to_its_length(word):
    line = word * (200_000 // len(word))
    began = time.process_time()
    (part, *_) = parts = [piece for part in split_lines([line], "de") for piece in cut(part, lambda t: len(t) <= 100)]
    assert len(parts) > 2000 and len(part.text) <= 100
    # Half a second; minutes where every space is compared with every address.
    assert time.process_time() - began < 10
