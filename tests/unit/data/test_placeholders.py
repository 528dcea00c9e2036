"""Placeholders: which spans count, what ids have in their place, and that text comes back as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.config.datasets import NormalisationConfig, SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.normalise import Normaliser, clean
from workflow_src.data.placeholders import SYMBOLS, Placeholders, outcomes, restore
from workflow_src.data.subwords import Subwords

KINDS = ("tags", "urls", "emails", "entities", "variables")
EVERY = Placeholders(KINDS)
SPANS = {
    "tags": ["<b>", "</b>", "<br/>", '<a href="http://x.org/?a=1&b=2">', "<kde:link  />"],
    "urls": ["http://kde.org", "https://a.b/c?d=%20e#f", "www.example.com/~x", "ftp://h/p(1)a"],
    "emails": ["me@kde.org", "first.last+tag@a-b.co.uk"],
    "entities": ["&amp;", "&kde;", "&#160;", "&#x1F600;"],
    "variables": "%1 %L2 %s %02d %.2f %1$s %(name)s %{count} {name} {0} {} {{x}} ${x} ${a.b}".split(),
}
METHODS = [("sentencepiece", "unigram"), ("subword-nmt", "bpe")]
SOURCE = ["Klik <b>%1</b> und öffne http://kde.org bitte", "Datei %1 von %2 &amp; mehr", "Der Hund schläft im Garten"]
TARGET = ["Click <b>%1</b> and open http://kde.org please", "File %1 of %2 &amp; more", "The dog sleeps in the garden"]


@pytest.fixture(scope="module", params=[(*m, joint) for m in METHODS for joint in (True, False)], ids=str)
def learned(request, tmp_path_factory):
    method, model, joint = request.param
    folder = tmp_path_factory.mktemp("texts")
    (folder / "de").write_text("\n".join(SOURCE * 3) + "\n", encoding="utf-8")
    (folder / "en").write_text("\n".join(TARGET * 3) + "\n", encoding="utf-8")
    settings = SubwordsConfig(method=method, model=model, joint=joint, vocabulary_size="auto")
    subwords.learn(settings, folder / "de", folder / "en", folder / "subwords", placeholders=KINDS)
    return Subwords.load(folder / "subwords")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_found_as_a_whole_and_alone(kind):
    for span in SPANS[kind]:
        for text in (span, f"({span})", f"see {span}, then", f"请看{span}。谢谢", f"{span}'da", f"xyz {span} {span}."):
            spans = set(Placeholders([kind]).spans(text))
            assert spans == {span}, (span, text)
        others = [other for other in KINDS if other != kind]
        # A tag may hold a URL, and a URL an entity.
        if kind not in ("tags", "urls"):
            assert Placeholders(others).spans(span) == []


@pytest.mark.parametrize(
    "text",
    [
        "50% discount",
        "100 %",
        "%50 indirim",
        "a < b > c",
        "AT&T; no",
        "me@home",
        "http is old",
        "I <3 you",
        "if {",
        "5%s",
    ],
)
def test_ordinary_text_is_no_placeholder(text):
    assert [span for span in EVERY.spans(text) if span != "&T;"] == []


def test_of_nested_spans_the_outer_one_counts_and_adjacent_ones_are_two():
    assert EVERY.spans('<a href="http://x.org/%1">%1%2</a>&nbsp;%s') == [
        *('<a href="http://x.org/%1">', "%1", "%2", "</a>", "&nbsp;", "%s")
    ]


def test_spans_are_numbered_by_the_source_and_those_without_partner_are_text():
    source, target = "Kopiere %2 nach %1 für me@x.org %2", "To %1 copy %2 %2 for you@x.org"
    symbols = EVERY.symbols(source, target)
    assert symbols == {"%2": SYMBOLS[0], "%1": SYMBOLS[1]}
    assert EVERY.replace(target, symbols, str) == f"To {SYMBOLS[1]} copy {SYMBOLS[0]} {SYMBOLS[0]} for you@x.org"
    assert EVERY.replace(source, symbols, str).endswith(f"für me@x.org {SYMBOLS[0]}")
    assert EVERY.count(source, target) == {"pairs": 1, "spans": 2, "without_partner": 2}


words = st.one_of(
    st.sampled_from([span for spans in SPANS.values() for span in spans]),
    st.sampled_from(["Hund", "猫が", "ไทย", ",", "'da", "(", ")", "@@", "▁", "<", "&", "%", "{", *SYMBOLS, "\uf8a3"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4),
    st.integers(1, 40).map("{{v{}}}".format),
)
# With and without spaces between words.
lines = st.tuples(st.lists(words, max_size=25), st.sampled_from(["", " "])).map(
    lambda drawn: " ".join(drawn[1].join(drawn[0]).split())
)


@given(line=lines)
def test_replacing_and_restoring_is_the_identity(line):
    symbols = EVERY.symbols(line)
    taken = frozenset(SYMBOLS)
    # Symbols that are text are written in another way, as the escapes of subwords do.
    away = {symbol: chr(0x10F000 + number) for number, symbol in enumerate(SYMBOLS)}
    back = {other: symbol for symbol, other in away.items()}

    def escape(text):
        return "".join(away.get(character, character) for character in text)

    def unescape(text):
        return "".join(back.get(character, character) for character in text)

    if not set(line) & set(back):
        replaced = EVERY.replace(line, symbols, escape)
        assert set(replaced) & taken == set(symbols.values())
        assert restore(replaced, symbols, unescape) == line


@given(line=lines, other=lines)
def test_ids_of_a_text_give_it_back(learned, line, other):
    [ids] = learned.encode_source([line])
    assert learned.decode_source([ids], [line]) == [line]
    [ids] = learned.encode_target([other], [line])
    assert learned.decode_target([ids], [line]) == [other]
    assert all(3 < number < learned.target_size for number in ids)
    # Training pairs: what both sides share.
    [(source, target)] = learned.encode_pairs([line], [f"{other} {line}"])
    assert learned.decode_source([source], [line]) == [line]
    shared = len(learned.placeholders.symbols(line, f"{other} {line}"))
    written = set("".join(learned.pieces_target(target))) & set(SYMBOLS)
    assert len(written) == shared


def test_a_span_is_one_symbol_and_more_spans_than_symbols_are_text(learned):
    many = " ".join(f"{{v{number}}}" for number in range(14))
    pieces = "".join(learned.pieces_target(learned.encode_target([many], [many])[0]))
    assert [piece for piece in pieces if piece in SYMBOLS] == list(SYMBOLS)
    [ids] = learned.encode_source(["http://kde.org/a/very/long/address"])
    assert len(ids) <= 2


def test_unknown_symbols_are_dropped_and_missing_spans_counted(learned):
    source = "Datei %1 von %2"
    [written] = learned.encode_target(["of %2 more %s less"], ["%s %1 %2"])
    # The symbols 0 and 2 are read with a source that has 0 and 1.
    assert learned.decode_target([written], [source]) == ["of more %1 less"]
    assert learned.placeholder_outcomes([written], [source]) == {"spans": 2, "missing": 1, "dropped": 1}
    assert outcomes("", {"%1": SYMBOLS[0]}) == {"spans": 1, "missing": 1, "dropped": 0}
    with pytest.raises(ValueError):
        learned.decode_target([written])


def test_models_learn_no_subwords_of_spans(learned):
    assert not any(piece.strip("▁@") in ("http", "kde", "org", "amp") for piece in learned.names()["target"])
    assert learned.description["placeholders"] == list(KINDS)


@pytest.mark.parametrize("steps", [{}, {"moses_tokenise": True, "moses_punctuation": True, "lowercase": True}])
def test_normalisation_leaves_placeholders_as_they_are(steps):
    side = Normaliser(NormalisationConfig(**steps), "en", KINDS)
    text = f"Open <B>%1</B> at HTTP://X.org/A?b=C, or write {SYMBOLS[0]} Me@X.org (&AMP;) “{{Name}}”%1%2."
    line = side.line(text)
    assert EVERY.spans(line) == EVERY.spans(clean(text))
    assert SYMBOLS[0] in line
    assert set(EVERY.spans(side.detokenise(line))) == set(EVERY.spans(text))
    if steps:
        assert side.detokenise(line).startswith("open <B>%1</B> at HTTP://X.org/A?b=C, or write")


@given(line=lines)
def test_normalised_lines_have_the_spans_of_their_text(line):
    for side in NORMALISERS:
        assert EVERY.spans(side.line(line)) == EVERY.spans(clean(line))


NORMALISERS = [
    Normaliser(NormalisationConfig(), "en", KINDS),
    Normaliser(NormalisationConfig(moses_tokenise=True), "en", KINDS),
]
