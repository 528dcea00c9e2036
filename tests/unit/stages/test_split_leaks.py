"""Nothing of dev or test is in train after normalisation, on either side, whatever a recipe normalises."""

import functools
import itertools
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.config.datasets import GroupSplit
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.data.characters import key
from workflow_src.data.normalise import Normaliser
from workflow_src.data.split_writer import NormaliseSettings
from workflow_src.data.splits import Row, divided
from workflow_src.stages.normalise import normalising

SWITCHES = ("romanian", "moses_punctuation", "moses_tokenise", "lowercase")
SETTINGS = [
    NormalisationConfig(unicode=form, **dict(zip(SWITCHES, values, strict=True)))
    for form in ("NFC", "NFKC")
    for values in itertools.product((False, True), repeat=len(SWITCHES))
]
SPLIT = GroupSplit(method="connected-groups", dev=3, test=3, key_language="ro")
ROMANIAN = """\
Șapte țări în față / Câți ani ai / „Bună ziua”, a spus / L-am văzut la ora 10:30 / Mâine e sâmbătă / \
Nu / Prețul e de 5 € (sau 4 %) / Ți-am adus ½ kg de făină / Școala e aici / O mie… de ori""".split(" / ")
ENGLISH = """\
Seven countries ahead / How old are you / “Good day,” he said / I saw him at 10:30 / It's late, isn't it / \
No / It costs 5 € (or 4 %) / I've brought ½ kg of flour / The school’s here / A thousand… times""".split(" / ")
# Forms of a sentence that some setting makes equal.
FORMS = {
    "as it is": lambda text: text,
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "compatibility": lambda text: unicodedata.normalize("NFKC", text),
    "full width": lambda text: text.translate({code: code + 0xFEE0 for code in range(0x21, 0x7F)}),
    "capitals": str.upper,
    "small letters": str.lower,
    "cedilla": lambda text: text.translate(str.maketrans("ȘșȚț", "ŞşŢţ")),
    "no diacritics": lambda text: text.translate(str.maketrans("ĂăÂâÎîȘșȚț", "AaAaIiSsTt")),
    "white space": lambda text: "\u3000 " + text.replace(" ", " \u00a0\t") + "\u2028",
    "invisible": lambda text: "\ufeff" + text.replace("a", "a\u00ad\u200b"),
    "control": lambda text: text.replace(" ", "\x00"),
    "plain quotes": lambda text: text.translate(str.maketrans("„“”’", '"""\'')),
    "spaced": lambda text: text.replace(",", " ,").replace("(", "( ").replace("…", " …"),
    "ligature": lambda text: text.replace("fi", "ﬁ").replace("f", "ｆ"),
    "full stop": lambda text: text + " .",
}


@functools.cache
def normalisers(number: int) -> tuple[Normaliser, Normaliser]:
    return Normaliser(SETTINGS[number], "ro"), Normaliser(SETTINGS[number], "en")


@functools.cache
def normalise(number: int) -> Callable[[list[tuple[str, ...]]], list[tuple[str, str, str | None]]]:
    settings = NormaliseSettings(languages=("ro", "en"), normalisation=SETTINGS[number], split=SPLIT)
    return normalising(settings, training=True)


def usable(pairs: list[tuple[str, str]], number: int, dropped: Counter[str]) -> Iterator[Row]:
    for row, (raw, (source, target, reason)) in enumerate(zip(pairs, normalise(number)(pairs), strict=True)):
        if reason is None:
            yield Row(source, target, raw, row)
        else:
            dropped[reason] += 1


def leaks(pairs: list[tuple[str, str]], number: int) -> list[str]:
    """Sentences of dev and test that are in train, or in another of dev and test, as they are or by their key."""
    dropped = Counter()
    folder = Path(tempfile.gettempdir())
    rows = list(divided(usable(pairs, number, dropped), SPLIT, ("ro", "en"), dropped, folder))
    assert Counter(name for name, _ in rows) >= Counter(dev=3, test=3)
    assert len(rows) + dropped.total() == len(pairs)
    leaked = []
    for side in ("source", "target", "reference"):
        owner: dict[str, str] = {}
        for name, row in rows:
            line = normalisers(number)[1].reference(row.raw[1]) if side == "reference" else getattr(row, side)
            for text in {line, key(line)}:
                if owner.setdefault(text, name) != name:
                    leaked.append(f"{side} {text!r} is in {owner[text]} and {name}")
    return leaked


def fillers(count: int) -> list[tuple[str, str]]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [(f"umplutură {letters[n] * 3}", f"filler {letters[n] * 3}") for n in range(count)]


def title(number: int) -> str:
    settings = SETTINGS[number]
    return "-".join([settings.unicode, *(name for name in SWITCHES if getattr(settings, name))])


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=title)
def test_no_form_of_a_held_out_sentence_is_in_train(number):
    # Every form of a sentence has a translation of its own, so that nothing else connects them, and turned round.
    pairs = []
    for base, (ro, en) in enumerate(zip(ROMANIAN, ENGLISH, strict=True)):
        pairs += [(form(ro), f"{en} {base} {name}") for name, form in FORMS.items()]
    assert leaks(pairs, number) == []
    pairs = []
    for base, (ro, en) in enumerate(zip(ROMANIAN, ENGLISH, strict=True)):
        pairs += [(f"{ro} {base} {name}", form(en)) for name, form in FORMS.items()]
    assert leaks(pairs, number) == []


def test_the_forms_are_those_that_settings_make_equal():
    """Without it, the test above would hold for sentences that have nothing in common."""
    equal = set()
    for number in range(len(SETTINGS)):
        for side, texts in zip(normalisers(number), (ROMANIAN, ENGLISH), strict=True):
            for text, (name, form) in itertools.product(texts, FORMS.items()):
                if form(text) != text and side.line(form(text)) == side.line(text):
                    equal.add(name)
    assert equal == FORMS.keys() - {"as it is", "full stop"}


FORM = st.sampled_from(list(FORMS.values()))
# A line of a file has no line break.
LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)


@given(st.lists(st.tuples(LINE, LINE), max_size=10), st.integers(0, len(SETTINGS) - 1), FORM)
def test_no_text_whatever_is_in_two_splits(texts, number, form):
    pairs = [(form(first), second) for first, second in texts] + [(first, form(second)) for first, second in texts]
    assert leaks(pairs + fillers(12), number) == []
