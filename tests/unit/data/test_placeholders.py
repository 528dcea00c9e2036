import itertools
import re
from collections import Counter
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_src.config.preparation import NormalisationConfig, SubwordsConfig
from workflow_src.config.recipe import PlaceholderKind
from workflow_src.data import placeholders, subwords
from workflow_src.data.escapes import NIBBLES
from workflow_src.data.normalise import Normaliser, clean
from workflow_src.data.placeholders import SYMBOLS, Placeholders

KINDS = get_args(PlaceholderKind)
METHODS = [("sentencepiece", "unigram"), ("sentencepiece", "bpe"), ("subword-nmt", "bpe")]
SOURCE = [
    "Öffne %1 in <b>Datei</b> .",
    "Siehe http://kde.org/a?b=%20c und schreibe an a.b@kde.org .",
    "Der Hund &amp; die Katze kosten ${preis} oder {preis} .",
    "Heute lesen wir das Buch , morgen lesen die Kinder im Garten .",
]
TARGET = [
    "Open %1 in <b>File</b> .",
    "See http://kde.org/a?b=%20c and write to a.b@kde.org .",
    "The dog &amp; the cat cost ${preis} or {preis} .",
    "Today we read the book , tomorrow the children read in the garden .",
]

SPANS = {
    "tags": ["<b>", "</b>", "<br/>", '<a href="http://x.org/%1">', "<placeholder-1/>", "<ns:tag a='1'>"],
    "urls": "http://x.org https://a.b/c_(d)?e=%20&f=1#g www.kde.org ftp://h/%1 man://ls http://a.b/A–B/हिन्दी".split(),
    "emails": ["a@b.org", "a.b+c@d-e.co.uk"],
    "entities": ["&amp;", "&kde;", "&#160;", "&#xA0;"],
    "variables": ["{{ x }}", *"%1 %s %02d %.2f %1$s %(name)s %{n} %L1 {name} {नाम} {} {0} ${x}".split()],
}
spans = st.sampled_from([span for own in SPANS.values() for span in own])
characters = st.characters(exclude_categories=["Cs", "Cc"])
# Symbols and nibbles as text, signs of subword models, and parts of spans.
awkward = st.sampled_from(
    [*SYMBOLS[:2], "\uf8a3", "@@", "▁", "</w>", "<", ">", "%", "&", ";", "{", "}", "日本", "ไทย", " "]
)
lines = st.lists(st.one_of(spans, awkward, characters), max_size=30).map("".join).map(clean)


@pytest.fixture(scope="module", params=[(*m, joint) for m in METHODS for joint in (True, False)], ids=str)
def learned(request, tmp_path_factory):
    method, model, joint = request.param
    folder = tmp_path_factory.mktemp("made")
    (folder / "de").write_text("\n".join(SOURCE) + "\n", encoding="utf-8")
    (folder / "en").write_text("\n".join(TARGET) + "\n", encoding="utf-8")
    config = SubwordsConfig(method=method, model=model, joint=joint, vocabulary_size="auto")
    return subwords.learn(config, folder / "de", folder / "en", folder / "subwords", placeholders=KINDS)


@pytest.mark.parametrize("kind, span", [(kind, span) for kind, own in SPANS.items() for span in own])
def test_a_kind_covers_its_spans_alone(kind, span):
    for sign in ", . । ॥ ؟ ، ؛ ۔ ። ፣ ։ … – › 𑅁 𞥞".split():
        assert Placeholders([kind]).spans(f"a {span}{sign} b") == [span]
    # Without blanks, as languages without spaces between words have it.
    assert Placeholders().spans(f"打开{span}。") == [span]
    others = Placeholders([other for other in KINDS if other != kind])
    assert span not in others.spans(f"a {span}, b")


@pytest.mark.parametrize("text", ["50 % of it", "100%", "a < b > c", "a & b; c", "{a b}", "x@y", "5 $ {", "%10"])
def test_text_that_is_no_span(text):
    assert Placeholders().spans(text) == []


def test_the_outer_of_nested_spans_counts_and_adjacent_ones_are_apart():
    assert Placeholders().spans('<a href="http://x.org/%1">%2%3</a>{x}${y}') == [
        *('<a href="http://x.org/%1">', "%2", "%3", "</a>", "{x}", "${y}")
    ]


def test_symbols_are_numbered_by_the_source_and_once_for_equal_spans():
    finder = Placeholders()
    assert finder.symbols("%2 %1 %2 <b>") == {"%2": SYMBOLS[0], "%1": SYMBOLS[1], "<b>": SYMBOLS[2]}
    # With a target, those without a partner have none.
    assert finder.symbols("%2 %1 %2 <b>", "<b> %1 %3") == {"%1": SYMBOLS[0], "<b>": SYMBOLS[1]}


@given(line=lines)
def test_what_is_replaced_comes_back(learned, line):
    for encode, decode, size in (
        (learned.encode_source, learned.decode_source, learned.source_size),
        (lambda texts: learned.encode_target(texts, texts), learned.decode_target, learned.target_size),
    ):
        [ids] = encode([line])
        assert decode([ids], [line]) == [line]
        assert all(3 < number < size for number in ids)


@given(source=lines, target=lines)
def test_pairs_come_back_and_share_symbols(learned, source, target):
    [(source_ids, target_ids)] = learned.encode_pairs([source], [target])
    source, target, symbols = learned.placeholders.training_pair(source, target)
    pieces = learned.names()
    used = [
        {piece.strip("▁@") for piece in (pieces[side][i] for i in ids)} & set(SYMBOLS)
        for side, ids in (("source", source_ids), ("target", target_ids))
    ]
    assert used == [set(symbols.values())] * 2
    spans = set(learned.placeholders.spans(source))
    spans &= set(learned.placeholders.target.spans(target, spans))
    if spans:
        assert set(symbols) <= spans and len(symbols) == min(len(spans), len(SYMBOLS))
    else:
        # A word that both sides have, or a sign at the end of both, in some pairs.
        assert len(symbols) <= 1 and all(word in source and word in target for word in symbols)
    # Read with the spans that it was encoded with, and no others.
    [text] = learned._target.decode([target_ids])
    assert placeholders.restore(text, symbols, subwords.unescape) == target


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("das Buch 🍕.", ["🍕"]),
        ("das Buch👍🏽🍕 lesen", ["👍🏽🍕"]),
        ("Buch☕Hund, ☕.", ["☕", "☕"]),
        # Words of other scripts and with unknown letters, marks included, and no others.
        ("das Buch κόσμος lesen", ["κόσμος"]),
        ("die हिन्दी Katze", ["हिन्दी"]),
        ("der Hund Nguyễn, die Katze", ["Nguyễn"]),
        # Without spaces between words, the unknown letter alone.
        ("das 日 Buch", ["日"]),
        ("das Buch", []),
    ],
)
def test_what_the_vocabulary_lacks_passes(learned, line, spans):
    assert learned.placeholders.spans(line) == spans
    [ids] = learned.encode_source([line])
    # No character is spelled, and all come back.
    assert not {piece.strip("▁@") for piece in learned.pieces_source(ids)} & set(NIBBLES)
    assert learned.decode_source([ids], [line]) == [line]
    assert bool(spans) == bool(learned.unknown_source(line)) and set(learned.unknown_source(line)) <= set(
        "".join(spans)
    )


@pytest.mark.parametrize(
    ("unknown", "line", "spans"),
    [
        # A letter, and a vowel sign.
        ("फ", "यह ऑफिस है", ["ऑफिस"]),
        ("ি", "আমি কিছু খাই", ["আমি", "কিছু"]),
        ("َ", "كَتَبَ الولد", ["كَتَبَ"]),
        ("ꯥ", "ꯃꯥ ꯃ", ["ꯃꯥ"]),
        ("𑄖", "𑄌𑄋𑄴 𑄖𑄢𑄴", ["𑄖𑄢𑄴"]),
        # Without spaces between words, a letter with all its signs.
        ("ส", "กุสู่ด", ["สู่"]),
        ("ู", "กุสู่ด", ["สู่"]),
        ("ု", "ဟုတ်ကဲ့", ["ဟု"]),
        ("ក", "ខុំកុំ", ["កុំ"]),
        # Signs alone.
        ("ู", "ก ู ด", ["ู"]),
        ("🍕", "यही🍕है", ["🍕"]),
    ],
)
def test_a_span_ends_at_no_vowel_sign(unknown, line, spans):
    assert Placeholders(["unknown"], re.compile(unknown)).spans(line) == spans


def test_a_word_is_not_replaced_in_one_that_goes_on_with_a_vowel_sign():
    assert Placeholders().replace("वह वही वह", {"वह": SYMBOLS[0]}, str) == f"{SYMBOLS[0]} वही {SYMBOLS[0]}"
    assert Placeholders().spans("वह वही", ["वह"]) == ["वह"]


def test_a_word_with_vowel_signs_teaches_to_copy_as_a_whole():
    finder = Placeholders(["unknown"], re.compile("☃"))
    copied = [finder.training_pair(f"{number} हिन्दी", "हिन्दी so")[2] for number in range(200)]
    assert {word for symbols in copied for word in symbols} == {"हिन्दी"}


def test_without_the_kind_nothing_unknown_is_a_span(learned):
    kinds = [kind for kind in KINDS if kind != "unknown"]
    assert Placeholders(kinds, re.compile("[^ab]")).spans("ab 🍕") == Placeholders(["unknown"]).spans("ab 🍕") == []


def test_some_pairs_teach_to_copy_with_a_word_that_both_sides_share(learned):
    # Of letters that the vocabulary has.
    names = ["D" + "".join(letters) for letters in itertools.product("aeinrst", repeat=3)]
    pairs = [(f"der Hund {name} und {name}", f"the dog {name}") for name in names]
    copied = 0
    for source, target in pairs:
        [(source_ids, target_ids)] = learned.encode_pairs([source], [target])
        in_source, in_target = (
            sum(SYMBOLS[0] in piece for piece in pieces)
            for pieces in (learned.pieces_source(source_ids), learned.pieces_target(target_ids))
        )
        assert (in_source, in_target) in ((0, 0), (2, 1))
        assert learned.placeholders.count(source, target)["copies"] == in_target
        copied += in_target
    assert 0.05 < copied / len(pairs) < 0.15
    # Not where text is translated.
    for ids in learned.encode_source([source for source, _ in pairs]):
        assert not any(SYMBOLS[0] in piece for piece in learned.pieces_source(ids))


def test_pairs_that_share_no_word_teach_to_copy_with_a_sign_at_the_end(learned):
    # A small word that both sides have may be another word there.
    sources = [f"die {''.join(letters)}." for letters in itertools.product("aeinrst", repeat=3)]
    texts = set()
    for source, (source_ids, target_ids) in zip(
        sources, learned.encode_pairs(sources, ["die cat."] * len(sources)), strict=True
    ):
        # Decoded with an emoji where the symbol is.
        symbol = {"🍕": SYMBOLS[0]}
        [in_source], [in_target] = learned._source.decode([source_ids]), learned._target.decode([target_ids])
        texts.add(placeholders.restore(in_target, symbol, subwords.unescape))
        assert placeholders.restore(in_source, symbol, subwords.unescape) in (
            source,
            f"{source} 🍕",
            f"{source[:-1]} 🍕.",
        )
        assert (SYMBOLS[0] in in_source) == (SYMBOLS[0] in in_target)
    assert texts == {"die cat.", "die cat. 🍕", "die cat 🍕."}


@pytest.mark.parametrize(
    ("body", "closing"),
    [
        ("वह घर जा रहा है", "।"),
        ("ฉันไปสุดนี้", "。"),
        ("ဟုတ်ကဲ့", "။"),
        ("he said “it costs 5 €", "!”"),
        ("C++", ""),
        ("foo_", ""),
    ],
)
def test_a_sign_stands_behind_the_last_letter_and_its_marks(body, closing):
    finder = Placeholders(["unknown"], re.compile("\uf8ba"))
    space = " " if " " in body else ""
    seen = set()
    for number in range(200):
        text, _, symbols = finder.training_pair(f"{number}{space}{body}{closing}", "a")
        for sign in symbols:
            seen.add(text.removeprefix(str(number)).replace(sign, "🍕"))
    assert seen == {f"{space}{body}{space}🍕{closing}", f"{space}{body}{closing}{space}🍕"}


@pytest.mark.parametrize("source, target", [("αβγδ", "abcd"), ("abcş", "abcd"), ("abcd", "abcş"), ("我你他是", "abcd")])
def test_with_a_vocabulary_a_language_every_tenth_pair_teaches_to_copy(source, target, tmp_path):
    orders = list(itertools.product(range(4), repeat=4))
    texts = [["".join(letters[number] for number in order) for order in orders] for letters in (source, target)]
    # Another order, so that sides share no word.
    texts[1].reverse()
    for name, lines in zip(("source", "target"), texts, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = SubwordsConfig(joint=False, vocabulary_size=40)
    learned = subwords.learn(config, tmp_path / "source", tmp_path / "target", tmp_path / "made", placeholders=KINDS)
    for finder, pairs in (
        (learned.placeholders, zip(*texts, strict=True)),
        (learned.reversed().placeholders, zip(*reversed(texts), strict=True)),
    ):
        counts = sum((finder.count(*pair) for pair in pairs), Counter())
        assert counts["without_partner"] == 0 and 0.05 < counts["copies"] / len(orders) < 0.15


def test_with_a_vocabulary_a_language_what_the_source_lacks_is_copied():
    finder = Placeholders(["unknown"], re.compile("[^α-ω ]"), re.compile("[^a-z ]"))
    # An ordinary word of the target, and characters that neither has.
    source, target = "βλεπω linux 🍕 日", "i see linux 🍕"
    assert finder.symbols(source, target) == {"linux": SYMBOLS[0], "🍕": SYMBOLS[1]}
    assert finder.count(source, target) == {"pairs": 1, "spans": 2, "without_partner": 1}
    assert finder.target.replace(target, finder.symbols(source), str) == f"i see {SYMBOLS[0]} {SYMBOLS[1]}"


@given(
    text=st.lists(st.sampled_from([*"ab1 .{}<>%@-'", "ab", "%1", "{a}", "<b>", "a@b.org", "日"])).map("".join),
    words=st.lists(st.sampled_from(["a", "ab", "a b", "b1", "}", "a}", "-b", "b>", "%1"]), max_size=4, unique=True),
)
def test_of_spans_and_words_that_overlap_the_first_counts(text, words):
    finder = Placeholders()
    # One expression of all of them, spans before words.
    own = "|".join(placeholders.PATTERNS[kind] for kind in KINDS if kind in placeholders.PATTERNS)
    added = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in words if not re.fullmatch(own, word)]
    together = re.compile("|".join([own, *added]))
    assert finder.spans(text, words) == together.findall(text)
    symbols = dict(zip(words, SYMBOLS, strict=False))
    expected = together.sub(lambda match: symbols.get(match.group(), match.group()), text)
    assert finder.replace(text, symbols, str) == expected


def test_a_word_is_found_in_a_long_line_in_one_pass():
    """Also where the next span is far."""
    line = "Tom " * 50_000
    assert Placeholders().replace(f"{line}%1", {"Tom": SYMBOLS[0]}, str) == f"{SYMBOLS[0]} " * 50_000 + "%1"


def test_more_spans_than_symbols_stay_text(learned):
    line = " ".join(f"{{n{number}}}" for number in range(len(SYMBOLS) + 3))
    [ids] = learned.encode_target([line], [line])
    assert learned.decode_target([ids], [line]) == [line]
    assert [learned.names()["target"][i].strip("▁@") for i in ids][-1] not in SYMBOLS


def test_a_symbol_without_span_is_dropped_and_a_missing_one_is_counted(learned):
    [ids] = learned.encode_target(["a %1 b <b>"], ["%1 <b>"])
    assert learned.decode_target([ids], ["dort %5"]) == ["a %5 b"]
    assert learned.decode_target([ids], ["dort"]) == ["a b"]
    assert learned.placeholder_outcomes([ids, ids], ["%1 <b> {n}", "%1"]) == [
        {"spans": 3, "missing": 1, "surplus": 0, "dropped": 0},
        {"spans": 1, "missing": 0, "surplus": 0, "dropped": 1},
    ]


@pytest.mark.parametrize(
    ("written", "missing", "surplus"),
    [("{} of {}", 0, 0), ("{}", 1, 0), ("", 2, 0), ("{}{}{}", 0, 1), ("<b> <b> {}", 1, 1)],
)
def test_a_span_counts_as_often_as_it_stands(learned, written, missing, surplus):
    source = "{} of {} <b>"
    [ids] = learned.encode_target([written], [source])
    missing += "<b>" not in written
    expected = {"spans": 3, "missing": missing, "surplus": surplus, "dropped": 0}
    assert learned.placeholder_outcomes([ids], [source]) == [expected]


@pytest.mark.parametrize("line", ["{}{} the dog", "a <b><b>{}{}{} b"])
def test_equal_placeholders_in_a_row_are_no_repetition(learned, line):
    [ids] = learned.encode_target([line], [line])
    assert learned.decode_target(learned.without_repetitions([ids]), [line]) == [line]
    # A run of another subword is reduced to one.
    [letter] = learned.encode_target(["h"])
    assert learned.without_repetitions([ids + letter[-1:] * 3]) == [ids + letter[-1:]]


def test_without_sources_symbols_are_shown_by_number(learned):
    ids = learned.encode_target(["<b>a</b>"], ["<b> </b>"])
    assert learned.decode_target(ids) == ["<1>a<2>"]
    assert placeholders.numbered([SYMBOLS[0], "a", SYMBOLS[9] + "@@"]) == ["<1>", "a", "<10>@@"]


def test_merges_and_pieces_hold_no_symbols(learned):
    for pieces in learned.names().values():
        symbol_pieces = [piece for piece in pieces if set(piece) & set(SYMBOLS)]
        assert {piece.removesuffix("@@") for piece in symbol_pieces} == set(SYMBOLS)
        # Text of spans that both sides have is not learned from.
        assert not any("href" in piece or "kde" in piece for piece in pieces)


@settings(max_examples=50)
@given(line=lines)
@pytest.mark.parametrize("more", [{}, {"lowercase": True}, {"moses_tokenise": True, "moses_punctuation": True}])
def test_normalisation_leaves_spans_as_they_are(more, line):
    normaliser = Normaliser(NormalisationConfig(**more), "en", KINDS)
    finder = Placeholders()
    before = finder.spans(clean(line))
    text = normaliser.line(line)
    assert all(span in text for span in before)
    if not more:
        assert text == clean(line)


def test_counts_of_pairs():
    finder = Placeholders()
    assert finder.count("%1 %2 %1", "%1 <b>") == {"pairs": 1, "spans": 1, "without_partner": 2}
    assert finder.count("a", "b") == {"pairs": 0, "spans": 0, "without_partner": 0}


def test_a_long_run_of_signs_is_read_in_one_pass():
    """Between words, it is no closing punctuation."""
    learned = Placeholders(["unknown"], re.compile("☃"))
    run = "!" * 50_000
    signed = []
    for number in range(100):
        source = f"{number} так{run} да?"
        text, _, symbols = learned.training_pair(source, f"jo{run} so?")
        for sign in symbols:
            assert text in (f"{source} {sign}", f"{source[:-1]} {sign}?")
            signed.append(text)
    assert any(text.endswith("?") for text in signed)
