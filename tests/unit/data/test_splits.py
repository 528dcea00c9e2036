"""Splitting by connected groups: nothing leaks, and the draws are those that published figures were measured with."""

import hashlib
import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.config.datasets import GroupSplit, NthSplit
from workflow_src.config.preparation import SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.characters import bare, key
from workflow_src.data.groups import BLOCK, StoredRows, groups_of
from workflow_src.data.splits import Row, connected_groups, every_nth, fits

SETTINGS = GroupSplit(method="connected-groups", dev=20, test=30, largest_group=4)
SPLITS = ("train", "dev", "test")


def corpus(seed: int, count: int = 600) -> list[tuple[str, str]]:
    """Pairs whose sentences repeat, on either side, also with other case and punctuation."""
    draw = random.Random(seed)
    ends = ["", ".", "!", " ?"]
    return [
        (f"Satz {draw.randrange(count)}" + draw.choice(ends), f"SENTENCE {draw.randrange(count)}" + draw.choice(ends))
        for _ in range(count)
    ]


def split(pairs, settings=SETTINGS) -> dict[str, list[tuple[str, str]]]:
    rows = connected_groups(pairs, settings, {})
    return {name: [pairs[row] for row in getattr(rows, name)] for name in SPLITS}


@given(st.integers(0, 10_000))
def test_no_sentence_of_dev_or_test_is_in_another_split(seed):
    pairs = corpus(seed)
    parts = split(pairs)
    assert (len(parts["dev"]), len(parts["test"])) == (20, 30)
    for side in (0, 1):
        keys = {name: {key(pair[side]) for pair in rows} for name, rows in parts.items()}
        assert not keys["dev"] & keys["test"] and not keys["train"] & (keys["dev"] | keys["test"])
    rows = [row for part in parts.values() for row in part]
    assert len({first for first, _ in rows}) == len(rows)


@given(st.integers(0, 10_000))
def test_every_pair_is_kept_or_counted_for_a_reason(seed):
    pairs = corpus(seed, 200) + corpus(seed, 200)
    settings = SETTINGS.model_copy(update={"dev": 5, "test": 5})
    rows = connected_groups(pairs, settings, {})
    assert sum(len(getattr(rows, name)) for name in SPLITS) + rows.dropped.total() == len(pairs)
    # Every pair is there twice or more.
    assert rows.dropped["repeated"] == len(pairs) - len(set(pairs))
    assert rows.dropped["other_translation"] == len(set(pairs)) - len({first for first, _ in pairs})


def test_the_split_is_the_one_that_figures_were_measured_on():
    # Digest of the rows of an independent script with the same rules, on the same pairs.
    parts = split(corpus(7))
    text = "\n".join(f"{name}\t{a}\t{b}" for name in ("dev", "test", "train") for a, b in parts[name])
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "79782acacf573d0699ba5eb7079d74a4566dbfbb15e1582fffc0e86772fc99c0"
    )


def test_compatibility_forms_that_connect_nothing_change_no_draw():
    pairs = corpus(7)
    formula = {pair: (pair[0].replace("Satz", "Satz CO₂"), pair[1]) for pair in pairs if "Satz 17" in pair[0]}
    assert formula
    other = [formula.get(pair, pair) for pair in pairs]
    plain = [tuple(text.replace("CO₂", "CO₃") for text in pair) for pair in other]
    rows, expected = connected_groups(other, SETTINGS, {}), connected_groups(plain, SETTINGS, {})
    assert (rows.dev, rows.test, rows.train) == (expected.dev, expected.test, expected.train)


def test_another_seed_gives_another_split():
    other = SETTINGS.model_copy(update={"seed": 2})
    assert connected_groups(corpus(1), SETTINGS, {}) != connected_groups(corpus(1), other, {})


def test_large_groups_stay_in_train():
    pairs = [(f"eins {n}", "one") for n in range(10)] + [(f"s {n}", f"t {n}") for n in range(100)]
    assert sum(target == "one" for _, target in split(pairs)["train"]) == 10


# What connects


def test_keys_ignore_case_and_punctuation():
    assert key("Straße, ja!") == key("STRASSE ja") == "strasseja"
    assert key("?!") == "?!"


@pytest.mark.parametrize(
    "words",
    [
        "कल काल कील कुल कूल केला काला कोल कौल कला".split(),
        # Thai: the five tones of "kha", and vowels above and below the line.
        "คา ค่า ค้า ค๊า ค๋า คี คู คิ".split(),
        # Hebrew and Arabic vowels, and Latin letters that differ in a mark that has no letter of its own.
        ["סֵפֶר", "סָפַר", "عَلِمَ", "عُلِمَ", "x̂", "x̌", "x"],
    ],
)
def test_words_that_differ_in_marks_alone_are_different(words):
    assert len({key(word) for word in words}) == len(words)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("café", unicodedata.normalize("NFD", "café")),
        ("ＡＢＣ　１２", "abc 12"),
        ("ﬁn ½ ²", "fin 1⁄2 2"),
        ("ｶﾞｷﾞ", "ガギ"),
        ("①", "1"),
        ("İstanbul", "i̇stanbul"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ⅷ", "VIII"),
        ("a️b", "ab"),
    ],
)
def test_forms_of_one_word_are_the_same(one, other):
    assert key(one) == key(other)


@given(st.text())
def test_keys_do_not_depend_on_normal_form_or_case(text):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        other = unicodedata.normalize(form, text)
        # What has no letter is its own key.
        assert key(other) == key(text) or key(text) == text or key(other) == other


# Sentences that models could refuse


def test_sentences_that_are_too_long_are_never_taken_for_dev_and_test():
    draw = random.Random(3)
    pairs = [(f"s {n} " + "x" * draw.randrange(40), f"t {n} " + "y" * draw.randrange(40)) for n in range(300)]
    settings = SETTINGS.model_copy(update={"longest": 30})
    parts = split(pairs, settings)
    assert (len(parts["dev"]), len(parts["test"])) == (20, 30)
    assert all(fits(pair, 30) for pair in parts["dev"] + parts["test"])
    assert {pair for pair in pairs if not fits(pair, 30)} <= set(parts["train"])


@pytest.mark.parametrize("method", ["sentencepiece", "subword-nmt"])
def test_subwords_of_dev_and_test_never_outnumber_the_bound(method, tmp_path):
    """Also where train lacks characters of a sentence, which are spelled by several subwords each."""
    draw = random.Random(5)
    rare = [chr(code) for code in range(0x4E00, 0x4E00 + 400)]
    pairs = [
        (f"s{n} " + "".join(draw.choice("abc @▁" + rare[n]) for _ in range(draw.randrange(30))), f"t{n}")
        for n in range(400)
    ]
    pairs = [(" ".join(first.split()), second) for first, second in pairs]
    settings = SETTINGS.model_copy(update={"longest": 40})
    parts = split(pairs, settings)
    for side, name in enumerate(("de", "en")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in parts["train"]), encoding="utf-8")
    model, size = ("bpe", 900) if method == "subword-nmt" else ("unigram", 600)
    recipe = SubwordsConfig(method=method, model=model, vocabulary_size=size)
    learned = subwords.learn(recipe, tmp_path / "de", tmp_path / "en", tmp_path / "subwords")
    held_out = [first for first, _ in parts["dev"] + parts["test"]]
    lengths = [len(ids) for ids in learned.encode_source(held_out)]
    assert max(lengths) <= 41
    # In characters all of them are short enough: without the bound on what is spelled, others are taken.
    assert all(fits(pair, 40) for pair in pairs) and parts != split(pairs)


@given(st.lists(st.booleans(), max_size=200), st.integers(2, 30))
def test_every_nth_takes_the_next_pair_that_fits(long, every):
    settings = NthSplit(method="every-nth", every=every, longest=3)
    rows = [Row("long" if one else "ok", "ok", (), number) for number, one in enumerate(long)]
    dev_rows = [row.number for name, row in every_nth(rows, settings) if name == "dev"]
    assert not any(long[row] for row in dev_rows)
    for before, row in zip([-1, *dev_rows], dev_rows, strict=False):
        assert all(long[between] for between in range(before + every, row))
    if not any(long):
        assert dev_rows == list(range(every - 1, len(rows), every))


class Named(dict):
    """Union-find over strings, by the definition of the names of groups: that of the group which another one joins."""

    def find(self, item):
        above = self.setdefault(item, item)
        return item if above == item else self.find(above)

    def join(self, item, other):
        name, other_name = self.find(item), self.find(other)
        self[name] = other_name


STARTS, WORDS, ENDS = ("ein langer Anfang eines Satzes ", ""), "aAäÄb", ("", "!", "２", "2")
SENTENCES = st.sampled_from([f"{start}{word}{end}" for start in STARTS for word in WORDS for end in ENDS])


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=30))
def test_groups_are_the_connected_components_in_the_order_of_their_names(pairs):
    named = Named()
    for first, second in pairs:
        names = "0" + bare(first), "1" + bare(second)
        named.join(*names)
        named.join("0" + key(first), names[0])
        named.join("1" + key(second), names[1])
    members = {}
    for row, (first, _) in enumerate(pairs):
        members.setdefault(named.find("0" + bare(first)), []).append(row)
    groups = groups_of(pairs)
    assert [groups.members(group) for group in groups.by_name] == [rows for _, rows in sorted(members.items())]


def test_blocks_are_compared_across_their_bounds():
    names = [f"{'lang ' * 8}{number:05}" for number in range(2 * BLOCK, -1, -1)]
    groups = groups_of([("ein Satz", name) for name in names])
    assert [groups.members(group) for group in groups.by_name] == [list(range(len(names)))]
    # Names that begin alike.
    groups = groups_of([(name[-5:], name) for name in names])
    assert [groups.members(group) for group in groups.by_name] == [[row] for row in reversed(range(len(names)))]


def test_rows_are_stored_as_they_are(tmp_path):
    rows = [["ä", "b", "c"], ["", "", ""], ["\x85\u2028", "\r", ""]]
    with StoredRows(tmp_path) as stored:
        for row in rows:
            stored.append(row)
            assert stored.texts(len(stored) - 1) == row
        assert len(stored) == 3 and stored[0] == ("ä", "b")
        assert list(map(stored.texts, range(3))) == rows
    assert list(tmp_path.iterdir()) == []
