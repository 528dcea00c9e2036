"""Filters of training text: faults planted into clean pairs, and each filter's verdict on pairs of a few words."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import planted
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from workflow_src.data.characters import letters, letters_outside, visible
from workflow_src.data.cleaning import Step, clean, steps_of
from workflow_src.data.filters.language import LANGUAGES, model_code
from workflow_src.data.groups import Counts
from workflow_src.data.toy import grammar
from workflow_src.errors import DeclarationError
from workflow_src.registry import filters
from workflow_src.spec import CAUSE, Pair, parse

PAIRS = 2000
# What the model of languages is allowed to miss.
LEAST = {"language": 0.95}


def verdicts_with_causes(name, text, languages=("de", "en"), **settings):
    (step,) = steps_of({name: filters()[name].settings(**settings)}, languages)
    return step.make()([Pair(*pair) for pair in text])


def verdicts(name, text, languages=("de", "en"), **settings):
    answers = verdicts_with_causes(name, text, languages, **settings)
    return [answer.partition(CAUSE)[0] if isinstance(answer, str) else answer for answer in answers]


@pytest.fixture(scope="module")
def text():
    """Different German and English sentences, some of them with faults; the faults; and the pairs without them."""
    clean_pairs = grammar.generate({"train": PAIRS, "dev": 1, "test": 1, "seed": 1})["train"]
    return *planted.plant(clean_pairs, list(planted.FAULTS), 0.3, seed=1), clean_pairs


def test_every_filter_has_a_fault_that_it_is_there_for():
    assert planted.FAULTS.keys() == {name for name, filter in filters().items() if not filter.needs}
    assert len(planted.FAULTS) >= 12


ARTICLE = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience "
    "and should act towards one another in a spirit of brotherhood.",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
    "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
    "zh": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "th": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
}


@pytest.mark.parametrize("name", planted.FAULTS)
def test_a_filter_finds_its_fault_and_leaves_clean_pairs_alone(name, text):
    pairs, faults, clean_pairs = text
    answers = verdicts(name, pairs)
    own = [number for number, fault in enumerate(faults) if fault == name]
    detected = [number for number in own if answers[number] is not None]
    assert len(own) > 40
    assert len(detected) >= LEAST.get(name, 1.0) * len(own), [pairs[number] for number in own if number not in detected]
    # Pairs with other faults may have this one too: a copy is in the wrong language.
    wrong = [pairs[number] for number, answer in enumerate(answers) if answer and faults[number] is None]
    assert not wrong
    for number in own:
        if isinstance(answers[number], tuple) and name == "invisible":
            assert answers[number][:2] == clean_pairs[number]
        elif isinstance(answers[number], tuple):
            # Entities were planted with a few words.
            source = clean_pairs[number][0]
            assert answers[number][0] in (source, f'{source[:-1]} & "so"{source[-1]}')


def test_all_filters_together_keep_what_is_clean_or_repaired(text):
    pairs, faults, _ = text
    order = ["garbled", "invisible", *(name for name in planted.FAULTS if name not in ("garbled", "invisible"))]
    steps = steps_of({name: filters()[name].settings() for name in order}, ("de", "en"))
    kept = [number for number, _ in clean((Pair(*pair) for pair in pairs), steps)]
    expected = [number for number, fault in enumerate(faults) if fault in (None, "garbled", "invisible")]
    lost, left = set(expected) - set(kept), set(kept) - set(expected)
    assert not lost and len(left) <= 2, [pairs[number] for number in (*lost, *left)]
    # Every pair is kept or counted.
    assert sum(step.dropped.total() for step in steps) == PAIRS - len(kept)
    assert [step.read for step in steps][1:] == [step.read - step.dropped.total() for step in steps][:-1]


@pytest.mark.parametrize(
    ("name", "settings", "languages", "pair", "verdict"),
    [
        ("length", {}, ("de", "en"), ("ja", "yes"), None),
        ("length", {}, ("de", "en"), ("", "yes"), "min_characters"),
        ("length", {"min_words": 2}, ("de", "en"), ("ja bitte", "yes"), "min_words"),
        ("length", {"min_words": 2}, ("zh", "en"), ("是的", "oh yes"), None),
        ("length", {"max_words": 2}, ("zh", "en"), ("我不知道", "I do"), "max_words"),
        ("length", {"max_words": 3}, ("de", "en"), ("a  b \u00a0 c", "a b c"), None),
        ("length", {"max_words": None, "max_characters": 4}, ("de", "en"), ("abcde", "a"), "max_characters"),
        ("ratio", {}, ("de", "en"), ("ja", "yes, I do think so"), "max_characters"),
        ("ratio", {"min_characters": 30}, ("de", "en"), ("ja", "yes, I do think so"), None),
        ("ratio", {"max_characters": None}, ("de", "en"), ("ja", "yes, I do think so"), "max_words"),
        # 4 characters and 18; about 3 words, and 3.
        ("ratio", {}, ("zh", "en"), ("我不知道", "Nobody really knew"), None),
        # Article 1 of the Universal Declaration of Human Rights, of which Thai has many characters.
        ("ratio", {}, ("en", "th"), (ARTICLE["en"], ARTICLE["th"]), None),
        ("ratio", {}, ("en", "ja"), (ARTICLE["en"], ARTICLE["ja"]), None),
        ("ratio", {}, ("zh", "th"), (ARTICLE["zh"], ARTICLE["th"]), None),
        ("ratio", {}, ("en", "th"), ("All human beings", ARTICLE["th"]), "max_words"),
        ("length", {"max_words": 80}, ("en", "th"), (ARTICLE["en"], ARTICLE["th"]), None),
        ("longest_word", {"max_characters": 5}, ("de", "en"), ("ein Baumhaus", "a tree"), "max_characters"),
        ("longest_word", {"max_characters": 5}, ("de", "en"), ("http://a.org", "www.a.org"), None),
        ("longest_word", {"max_characters": 5}, ("ja", "en"), ("これはペンです", "a pen"), None),
        ("letters", {}, ("de", "en"), ("1984", "in 1984"), "min_share"),
        ("letters", {}, ("de", "en"), ("%1 von %2", "%1 of %2 files"), "min_share"),
        ("letters", {}, ("hi", "en"), ("मैं नहीं जानता", "I do not know"), None),
        ("script", {}, ("ru", "en"), ("Я не знаю", "I do not know"), None),
        ("script", {}, ("de", "en"), ("Я не знаю", "I do not know"), "min_share"),
        ("script", {}, ("ru", "en"), ("Ja ne znaju", "I do not know"), "min_share"),
        ("script", {}, ("ja", "en"), ("これはペンです", "a pen"), None),
        ("script", {}, ("rus", "eng"), ("Я не знаю", "I do not know"), None),
        ("script", {}, ("mai", "en"), ("घर पानि गाम लोक", "house water village people"), None),
        ("script", {}, ("mai", "en"), ("click here to read more", "click here to read more"), "min_share"),
        ("script", {"scripts": {"de": ["cyrillic"]}}, ("de", "en"), ("Я не знаю", "I do not"), None),
        ("script", {"scripts": {"zh": ["CJK"], "hak": ["LATIN"]}}, ("zh", "hak"), ("我不知道。", "Ngai m-ti"), None),
        ("script", {"scripts": {"sr": ["LATIN"]}}, ("srp", "en"), ("Ја не знам", "I do not know"), "min_share"),
        *(
            ("script", {}, (code, "en"), (line, "I do not know"), None)
            for code in ("bs", "az", "kk", "mn", "cnr", "sh", "sr", "uz")
            for line in ("Ја не знам", "Ja ne znam")
        ),
        ("script", {}, ("mn", "en"), ("ᠪᠢ ᠮᠡᠳᠡᠬᠦ ᠦᠭᠡᠢ", "I do not know"), None),
        ("script", {}, ("de", "en"), ("Das Wort мир heißt auch Welt", "The word мир means world"), None),
        ("capitals", {}, ("de", "en"), ("NEUIGKEITEN VON HEUTE", "Today's news"), "max_share"),
        ("capitals", {}, ("de", "en"), ("NATO", "NATO"), None),
        ("capitals", {}, ("zh", "en"), ("今天的新闻今天的新闻", "Today's news"), None),
        ("copies", {}, ("de", "en"), ("Cancel", "Cancel"), "equal"),
        ("copies", {}, ("de", "en"), ("Open the file now", "Open the File now!"), "max_similarity"),
        ("copies", {"max_similarity": 1.0}, ("de", "en"), ("Open the file", "Open the File"), None),
        ("copies", {}, ("de", "en"), ("Das ist Wasser", "That is water"), None),
        ("numbers", {}, ("de", "en"), ("1.234,5 Euro", "1,234.5 euros"), None),
        ("numbers", {}, ("de", "en"), ("12 000 Leute", "12,000 people"), None),
        ("numbers", {}, ("de", "en"), ("um 14.30 Uhr", "at 14:30"), None),
        ("numbers", {}, ("de", "en"), ("am 7.12.1941", "on December 7, 1941"), None),
        ("numbers", {}, ("de", "en"), ("seit 1950", "since 1951"), "min_share"),
        ("numbers", {}, ("de", "en"), ("drei Äpfel", "3 apples"), None),
        # Signs and words for large numbers, and hours of twelve.
        ("numbers", {}, ("zh", "en"), ("该市有30万人口。", "The city has 300,000 inhabitants."), None),
        ("numbers", {}, ("zh", "en"), ("该市有30万人口。", "The city has 3,000,000 inhabitants."), "min_share"),
        ("numbers", {}, ("ja", "en"), ("３億円かかる", "It costs 300 million yen"), None),
        ("numbers", {}, ("zh", "en"), ("120万辆", "1.2 million vehicles"), None),
        ("numbers", {}, ("hi", "en"), ("5 लाख रुपये", "500,000 rupees"), None),
        ("numbers", {}, ("de", "en"), ("1.200.000 Euro", "1.2 Million euros"), None),
        ("numbers", {}, ("de", "en"), ("5,2 Milliarden Jahre", "5.2 billion years"), None),
        ("numbers", {}, ("de", "en"), ("zwei Millionen", "2 million"), None),
        ("numbers", {}, ("de", "en"), ("13,50 Euro", "1.50 euros"), "min_share"),
        ("numbers", {}, ("de", "en"), ("um 20.30 Uhr", "at 8:30 pm"), None),
        ("numbers", {}, ("de", "en"), ("um 20.30 Uhr", "at 9:30 pm"), "min_share"),
        ("numbers", {"written_out": 2}, ("de", "en"), ("drei Äpfel", "3 apples"), "min_share"),
        ("numbers", {"min_share": 0.5}, ("de", "en"), ("100 und 200", "100 and 201"), None),
        ("numbers", {}, ("ar", "en"), ("٢٠٠ كتاب", "200 books"), None),
        *(
            ("numbers", {}, ("de", "en"), pair, verdict)
            for pair, verdict in (
                (("Das kostet 4.5 Millionen.", "It costs 45 million."), "min_share"),
                (("Der Anteil ist 0.75 Prozent.", "The share is 75 percent."), "min_share"),
                (("Es wiegt 1200 Gramm.", "It weighs 12.00 grams."), "min_share"),
                (("Es wiegt 4.5 kg.", "It weighs 4.6 kg."), "min_share"),
                (("Das kostet 4,5 Millionen.", "It costs 4.5 million."), None),
                (("1.234,5 Euro", "1,234.6 euros"), "min_share"),
                (("12,00 Euro", "12 euros and 1.50"), "min_share"),
                (("12,00 Euro und 1,5", "12 euros and 1.50"), None),
                (("1.200 Leute", "1200 people"), None),
                (("genau 1,200 Meter", "exactly 1.2 metres"), None),
                (("1.200 und 1,2", "1.2 and 1200"), None),
                (("26.800 Leute", "26.8K people"), None),
                (("26,8 Tsd. Leute", "26.8K people"), None),
                (("5 Millionen", "5M"), None),
                (("2,5 Milliarden", "2,500,000,000"), None),
                (("12.34.567 Rupien", "12,34,568 rupees"), "min_share"),
                (("1.234.567 Rupien", "12,34,567 rupees"), None),
                (("1,234 und 1,234", "1,234"), "min_share"),
                (("12 000 oder 3:30 am 7.12.1941, 2010 300 mal", "12000 3.3 7 12 1941 2010 300"), None),
                (("12 000 oder 3:30 am 7.12.1941", "12000 3.3 7 12 1941 300"), "min_share"),
            )
        ),
        ("numbers", {}, ("ar", "en"), ("٤٫٥ كيلو و ١٬٢٠٠", "4.5 kilos and 1200"), None),
        ("addresses", {}, ("de", "en"), ("Siehe http://a.org/x.", "See http://a.org/x/ now"), None),
        ("addresses", {}, ("hi", "ur"), ("देखें http://a.org/x।", "دیکھیں http://a.org/x۔"), None),
        ("addresses", {}, ("de", "en"), ("Siehe http://a.org/x", "See http://a.org/y"), "different"),
        ("addresses", {}, ("de", "en"), ("Post an a@b.org", "Mail"), "different"),
        ("addresses", {}, ("de", "en"), ("Post an @anna", "Mail @anna"), None),
        ("garbled", {}, ("de", "en"), ("schÃ¶n &amp;amp;", "nice &#38; so"), ("schön &", "nice & so", None)),
        ("garbled", {"entities": False}, ("de", "en"), ("schÃ¶n &amp; gut", "x"), ("schön &amp; gut", "x", None)),
        ("garbled", {}, ("en", "de"), ("D o n â \x80 \x99 t", "x"), ("D o n ’ t", "x", None)),
        ("garbled", {}, ("en", "de"), ("a â \x80 b", "x"), "lost"),
        ("garbled", {}, ("en", "de"), ("Braille ⠀⠁ schÃ¶n", "x"), ("Braille ⠀⠁ schön", "x", None)),
        ("garbled", {}, ("de", "en"), ("daß » ja «", "x"), None),
        ("garbled", {"mojibake": False}, ("de", "en"), ("schÃ¶n", "nice"), None),
        ("garbled", {}, ("de", "en"), ("sch\ufffdn", "nice"), "lost"),
        ("garbled", {"lost": False}, ("de", "en"), ("sch\ufffdn", "nice"), None),
        ("garbled", {}, ("de", "en"), ("eine&#10;Zeile", "one line"), ("eine Zeile", "one line", None)),
        ("garbled", {}, ("de", "en"), ("&kde;  &notes;", "R&D;"), None),
        ("garbled", {}, ("de", "en"), ("F&E, A&B; schön", "R&D"), None),
        # Digits that Python reads as no number.
        ("garbled", {}, ("de", "en"), (f"&#{'1' * 5000};", "x"), "lost"),
        ("numbers", {}, ("de", "en"), (f"{'1' * 5000}:30", f"{'1' * 5000}:30 1"), None),
        ("invisible", {}, ("de", "en"), ("Zu\u00adcker\x07süß", "sugar"), ("Zucker süß", "sugar", None)),
        ("invisible", {"action": "drop"}, ("de", "en"), ("Zu\u00adcker", "sugar"), "action"),
        # Joiners stay inside of words, and what is no fault of this kind is no repair.
        ("invisible", {}, ("fa", "en"), ("می\u200cخواهم", "I\u00a0want"), None),
        ("language", {}, ("de", "en"), ("Das weiß ich nicht so genau, leider.", "Das weiß ich auch nicht so genau."),
         "min_ratio"),
        ("language", {}, ("de", "en"), ("Das weiß ich nicht so genau, leider.", "I do not know that for sure."), None),
        ("language", {}, ("deu", "eng"), ("Das weiß ich nicht so genau, leider.", "I do not know that."), None),
        ("language", {}, ("de", "en"), ("Ja.", "Ja."), None),
        ("language", {}, ("nb", "en"), ("Jeg vet ikke helt sikkert hva det er for noe.", "I do not know that."), None),
        ("language", {}, ("sr", "en"), ("Ne znam šta da radim sa tim novim automobilom.", "I do not know that."), None),
        ("language", {}, ("de", "en"), ("\U00010400\U00010401" * 20, "I do not know that."), None),
        ("score", {"minimum": 0.5}, ("de", "en"), ("a", "b", 0.5), None),
        ("score", {"minimum": 0.5}, ("de", "en"), ("a", "b", 0.49), "minimum"),
        ("score", {"maximum": 0.5}, ("de", "en"), ("a", "b", 0.51), "maximum"),
        ("score", {"minimum": 0.5}, ("de", "en"), ("a", "b", float("nan")), "minimum"),
        ("score", {"minimum": 0.5}, ("de", "en"), ("a", "b", None), None),
        ("score", {"minimum": 0.5, "missing": False}, ("de", "en"), ("a", "b", None), "missing"),
        ("garbled", {}, ("de", "en"), ("a &#X2f; b", "a &#x2F; b"), Pair("a / b", "a / b")),
    ],
)  # fmt: skip
def test_verdicts(name, settings, languages, pair, verdict):
    checked = parse(filters()[name].settings, settings, name)
    assert verdicts(name, [pair], languages, **checked.model_dump()) == [verdict]


@pytest.mark.parametrize("name", planted.FAULTS)
def test_lines_of_junk_take_no_time(name):
    """A page in one line: nothing takes time that grows with its square."""
    junk = ["a" * 200_000 + "@ www.", "1." * 100_000, "1,111" * 40_000, "&a" * 100_000, "<" * 200_000, "Ã¤ " * 70_000]
    began = time.process_time()
    verdicts(name, [(line, line[1:]) for line in junk])
    assert time.process_time() - began < 20


def test_a_filter_that_breaks_its_contract_is_named():
    declared = filters()["length"]
    values = ("", True, False, 0, ("a", "b"), Pair("a", None))
    for check, message in (
        (lambda _: [], 'filter "length" has 0 verdicts on 1 pairs; give one each.'),
        (lambda _: None, 'filter "length" gives None; give a list of verdicts.'),
        (lambda _: [Pair("a\nb", "c")], 'filter "length" repairs line 1 to several lines; join them.'),
        *(
            (
                lambda _, value=value: [value],
                f'filter "length" has the verdict {value!r} on line 1; give None, a Pair of two texts, or why it is '
                "left out.",
            )
            for value in values
        ),
    ):
        with pytest.raises(DeclarationError) as caught:
            list(clean([Pair("a b", "c")], [Step(declared, lambda check=check: check)]))
        assert str(caught.value) == message


def test_examples_have_no_control_characters():
    step = Step(filters()["length"], lambda: lambda _: ["too\tlong"])
    list(clean([Pair("a\x1b[31mb", "c\u200bd é")], [step]))
    (example,) = step.as_json()["examples"]
    assert (example["source"], example["target"]) == ("a\\x1b[31mb", "c\\u200bd é")
    assert example["reason"] == "too\\tlong"


REPETITIONS = [
    ("Ja!", "Yes."),
    ("ja", "Yes"),
    ("Ja!", "Yep"),
    ("Ja!", "Yes."),
    ("Jo", "yes"),
    ("Ja!", "Yeah"),
    ("?", "!"),
]


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"compare": "exact"}, [None, None, None, "pairs", None, None, None]),
        ({}, [None, "pairs", None, "pairs", None, None, None]),
        ({"pairs": 2}, [None, None, None, "pairs", None, None, None]),
        ({"source": 2}, [None, "pairs", None, "pairs", None, "source", None]),
        ({"pairs": None, "target": 2}, [None, None, None, "target", "target", None, None]),
    ],
)
def test_repetitions(settings, verdict):
    assert verdicts("repeated", REPETITIONS, **settings) == verdict
    # One at a time, as when they stand in different batches.
    (step,) = steps_of({"repeated": filters()["repeated"].settings(**settings)}, ("de", "en"))
    check = step.make()
    assert [check([Pair(*pair)])[0] for pair in REPETITIONS] == verdict


@given(st.lists(st.lists(st.integers(0, 300))), st.integers(1, 3))
def test_counts_are_those_of_a_dictionary(batches, limit):
    counts, occurrences = Counts(slots=16), {}
    for batch in batches:
        # Keys that meet in few slots, 0 among them.
        keys = np.array(batch, np.uint64) * np.uint64(8)
        expected = []
        for key in keys.tolist():
            expected.append(occurrences.get(key, 0) >= limit)
            occurrences[key] = occurrences.get(key, 0) + 1
        assert counts.add(keys, limit).tolist() == expected


def test_letters_and_scripts():
    assert letters("Größe 12: groß!") == 9
    assert visible("a b\u0301 c\u00a0.") == 4
    outside = letters_outside(("LATIN",))
    assert outside("Größe Ａª µ ʼ") == 0 and outside("мир, κόσμος") == 9


def test_codes_of_languages():
    assert [model_code(code) for code in ("nob", "cmn", "yue", "deu")] == ["no", "zh", "yue", "de"]
    assert set(LanguageIdentifier.from_model_file(MODEL_FILE).labels) == LANGUAGES
    french = [("Je ne sais pas encore ce que je vais faire.", "I do not know that.")]
    assert verdicts("language", french, ("deu", "en"), others=("fra", "eng")) == ["min_ratio"]


@pytest.mark.parametrize(
    ("name", "settings", "pair", "causes"),
    [
        ("length", {"max_words": 3}, ("ja", "yes I do think"), ["4"]),
        ("ratio", {"min_characters": 1}, ("ja", "yes, I really do think so"), ["2", "25"]),
        ("numbers", {}, ("seit 1950", "since 1951"), ["1950", "1951"]),
        ("longest_word", {"max_characters": 5}, ("ein Ungetüm", "a monster"), ["Ungetüm"]),
        ("letters", {}, ("1984 ab", "in"), ["2", "6"]),
        ("language", {}, ("I do not know what you mean by that", "the same sentence again"), ["en"]),
        ("script", {}, ("Я не знаю", "I do not know"), ["7"]),
    ],
)
def test_an_example_shows_what_the_filter_saw_in_its_pair(name, settings, pair, causes):
    (answer,) = verdicts_with_causes(name, [pair], **settings)
    assert all(cause in answer.partition(CAUSE)[2] for cause in causes)
    (step,) = steps_of({name: filters()[name].settings(**settings)}, ("de", "en"))
    assert list(clean([Pair(*pair)], [step])) == [] and list(step.dropped.values()) == [1]
    (example,) = step.as_json()["examples"]
    assert f"{example['reason']}{CAUSE}{example['cause']}" == answer


HEAVY = ("numpy", "ftfy", "py3langid", "rapidfuzz", "sacremoses", "torch")


@pytest.mark.forks
def test_declarations_of_filters_import_no_library():
    lines = ["import sys", "from workflow_src.registry import filters", "assert len(filters()) > 10"]
    lines += [f"print([name for name in {HEAVY} if name in sys.modules])"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
