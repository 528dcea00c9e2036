"""The normalise stage, from raw text to corpus.json."""

import hashlib
import json
import random
import shutil
import tracemalloc
import unicodedata

import pytest
from refusals import fields_of
from stage_words import start_stage

from workflow_src.stages import normalise as stage

RAW = {
    "train.ro": "Şeful  ţării\n\nunu doi trei patru cinci\na\u00a0b\nunu doi trei patru cinci șase șapte\nbun\n",
    "train.en": "The country’s head\nempty side\none two\na b\none two three four five six seven\ngood\n",
    "dev.ro": "mână\nbine\n",
    "dev.en": "hand \n\u200b\n",
    "test.ro": "unu doi trei patru cinci șase\nţară\n",
    "test.en": "one  FOREIGN țară\ncountry\n",
}


def write_raw(folder, texts, dropped=None, **more):
    """Raw text as download leaves it; lines of dev and test come from files of the user's, the second line on."""
    folder.mkdir()
    counts = {}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        counts[name.split(".")[0]] = text.count("\n")
    places = {name: [[0, f"my {name}.ro", f"my {name}.en", 2]] for name in counts if name != "train"}
    content = {"pairs": counts, "dropped": {key: {} for key in counts} | (dropped or {}), "places": places}
    languages = list(dict.fromkeys(name.split(".")[-1] for name in texts))
    content |= {"languages": languages, "downloads": {"talks": {"check": "sha256"}}} | more
    (folder / "raw.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def raw(tmp_path):
    return write_raw(tmp_path / "raw", RAW)


def words_of(tmp_path, limits=None, split=None, languages=("ro", "en"), held_out="keep", tokenised=None, **settings):
    content = {"languages": languages, "limits": limits or {}, "normalisation": settings, "split": split}
    content |= {"held_out": held_out, "tokenised": tokenised or {}}
    words = ["--settings", json.dumps(content), "--raw", str(tmp_path / "raw/raw.json")]
    return [*words, "--summary", str(tmp_path / "corpus/corpus.json")]


def normalise(tmp_path, **settings):
    start_stage(stage, words_of(tmp_path, **settings))
    return json.loads((tmp_path / "corpus" / "corpus.json").read_text())


def test_texts_drops_counts_and_digests(tmp_path, raw):
    summary = normalise(tmp_path, romanian=True, lowercase=True, max_words=6, max_length_ratio=2.0)
    texts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "corpus").iterdir()}
    assert texts.pop("corpus.json")
    assert texts == {
        "train.ro": "seful tarii\na b\nbun\n",
        "train.en": "the country’s head\na b\ngood\n",
        "dev.ro": "mana\n",
        "dev.en": "hand\n",
        "dev.reference.en": "hand\n",
        "test.ro": "unu doi trei patru cinci sase\ntara\n",
        "test.en": "one foreign țară\ncountry\n",
        "test.reference.en": "one FOREIGN țară\ncountry\n",
    }
    assert summary["pairs"] == {"train": 3, "dev": 1, "test": 2}
    assert summary["read"] == {"train": 6, "dev": 2, "test": 2}
    assert summary["dropped"] == {
        "train": {"empty": 1, "max_words": 1, "length_ratio": 1},
        "dev": {"empty": 1},
        "test": {},
    }
    assert summary["places"] == {
        "dev": [[0, "my dev.ro", "my dev.en", 2]],
        "test": [[0, "my test.ro", "my test.en", 2]],
    }
    assert summary["found_in_train"] == {key: {"source": 0, "target": 0, "pair": 0} for key in ("dev", "test")}
    assert summary["words"]["train"] == {"ro": 5, "en": 6}
    assert summary["sha256"] == {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    assert summary["normalisation"]["romanian"] is True and summary["downloads"]["talks"]["check"] == "sha256"
    assert summary["provenance"]["inputs"]["train.ro"]["path"].endswith("raw/train.ro")


def test_every_test_set_is_normalised_by_itself_and_looked_for_in_train(tmp_path):
    """A further reference counts as a target too."""
    texts = {
        "train": (["a", "b c", "d"], ["A", "B C", "D"]),
        "dev": (["x"], ["X"]),
        "news": (["a", "y"], ["A", "Y"]),
        "talks": (["", "z", "d", "w", "v"], ["V", "Z", "Q", "W", "U"], ["E", "b  C", "D ", "", "F"]),
    }
    lines = {
        f"{name}.{code}": side for name, sides in texts.items() for code, side in zip(("ro", "en"), sides, strict=False)
    }
    lines["talks.reference-2.en"] = texts["talks"][2]
    joined = {name: "".join(f"{line}\n" for line in text) for name, text in lines.items()}
    write_raw(tmp_path / "raw", joined, references={"talks": 2})
    summary = normalise(tmp_path, lowercase=True, limits={"test": 3})
    folder = tmp_path / "corpus"
    assert summary["pairs"] == {"train": 3, "dev": 1, "news": 2, "talks": 3}
    assert summary["dropped"]["talks"] == {"empty": 1, "limit": 1} and summary["dropped"]["news"] == {}
    assert (folder / "talks.en").read_text() == "z\nq\nw\n"
    assert (folder / "talks.reference.en").read_text() == "Z\nQ\nW\n"
    assert (folder / "talks.reference-2.en").read_text() == "b C\nD\n\n"
    assert summary["found_in_train"] == {
        "dev": {"source": 0, "target": 0, "pair": 0},
        "news": {"source": 1, "target": 1, "pair": 1},
        "talks": {"source": 1, "target": 2, "pair": 1},
    }
    assert set(summary["round_trip_bleu"]) == {"dev", "news", "talks"} and summary["references"] == {"talks": 2}
    assert {path.name for path in folder.iterdir()} == {*summary["sha256"], "corpus.json"}


def test_an_empty_reference_is_none(tmp_path):
    texts = {
        "train": {"ro": "x", "en": "X"},
        "dev": {"ro": "a\nb", "en": "A\n\u200b", "reference-2.en": "\nB"},
        "test": {"ro": "a\nc", "en": "other\n", "reference-2.en": "\n"},
    }
    lines = {f"{split}.{end}": f"{text}\n" for split, sides in texts.items() for end, text in sides.items()}
    write_raw(tmp_path / "raw", lines, references={"dev": 2, "test": 2})
    summary = normalise(tmp_path)
    assert (tmp_path / "corpus/dev.en").read_text() == (tmp_path / "corpus/dev.reference.en").read_text() == "A\nB\n"
    assert summary["pairs"]["dev"] == 2 and summary["dropped"]["test"] == {"empty": 1}
    # Both sets have the source a, with other references.
    assert summary["found_in_dev"] == {"test": 0}


def test_what_normalisation_costs_of_a_perfect_output_is_reported(tmp_path, raw, capsys):
    references = ["one, two: “three”!\n", "at 10:30 <x@y.example> isn't 4 %.\n"]
    for split in ("dev", "test"):
        (raw / f"{split}.ro").write_text("unu\n" * 2)
        (raw / f"{split}.en").write_text("".join(references))
    (raw / "test.en").write_text("A line of eight words is all here\n" * 2)
    assert normalise(tmp_path, moses_tokenise=True)["round_trip_bleu"] == {"dev": 100, "test": 100}
    assert "warning" not in capsys.readouterr().err
    bleu = normalise(tmp_path, moses_tokenise=True, lowercase=True)["round_trip_bleu"]
    # Of each test line 7 of 8 words, 6 of 7 pairs, 5 of 6 triples and 4 of 5 fours are right.
    assert bleu == {"dev": pytest.approx(100), "test": pytest.approx(100 * (4 / 8) ** 0.25)}
    warning = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warning) == 1 and "BLEU 84.1 on test against themselves; set" in warning[0]
    assert "references: normalised" in warning[0]
    normalised = normalise(tmp_path, moses_tokenise=True, lowercase=True, references="normalised")
    # Against the given references it is no better; against the scored ones, nothing is lost.
    assert normalised["round_trip_bleu"] == bleu and "warning" not in capsys.readouterr().err


def test_references_as_given_keep_compatibility_characters(tmp_path):
    line = "他２０２４年来到这里，住了三年！\n"
    names = [f"{split}.{code}" for split in ("train", "dev", "test") for code in ("en", "zh")]
    write_raw(tmp_path / "raw", dict.fromkeys(names, line))
    summary = normalise(tmp_path, languages=("en", "zh"), unicode="NFKC")
    texts = {name: (tmp_path / "corpus" / name).read_text() for name in ("train.zh", "test.zh", "test.reference.zh")}
    folded = unicodedata.normalize("NFKC", line)
    assert texts == {"train.zh": folded, "test.zh": folded, "test.reference.zh": line}
    # What the models' text lacks of the references, outputs cannot have.
    assert summary["round_trip_bleu"]["test"] < 99
    normalise(tmp_path, languages=("en", "zh"), unicode="NFKC", references="normalised")
    assert (tmp_path / "corpus/test.reference.zh").read_text() == folded


def test_tokenised_text_is_told_and_becomes_ordinary_text(tmp_path, capsys):
    sides = {"ja": "私 は {n} 番 の 部員 で す 。\n", "en": "i am member no {n} , they say .\n"}
    lines = {code: "".join(line.format(n=number) for number in range(50)) for code, line in sides.items()}
    texts = {f"{split}.{code}": text for split in ("train", "dev", "test") for code, text in lines.items()}
    write_raw(tmp_path / "raw", texts)
    shares = normalise(tmp_path, languages=("ja", "en"))["looks_tokenised"]
    assert shares == {split: {"ja": 1.0, "en": 1.0} for split in ("train", "dev", "test")}
    assert "recipe.tokenised: {ja: words, en: moses}" in capsys.readouterr().err
    summary = normalise(tmp_path, languages=("ja", "en"), tokenised={"ja": "words", "en": "moses"})
    assert "looks_tokenised" not in summary and "tokenised" not in capsys.readouterr().err
    assert summary["round_trip_bleu"] == {"dev": 100.0, "test": 100.0}
    for name, line in (
        ("train.ja", "私は7番の部員です。"),
        *((name, "i am member no 7, they say.") for name in ("train.en", "test.en", "test.reference.en")),
    ):
        assert (tmp_path / "corpus" / name).read_text(encoding="utf-8").split("\n")[7] == line


def test_limits_count_kept_pairs(tmp_path, raw):
    summary = normalise(tmp_path, limits={"train": 2, "test": 1})
    # One and three words, which come back as they are.
    assert summary["round_trip_bleu"] == {"dev": 100, "test": 100}
    assert summary["pairs"] == {"train": 2, "dev": 1, "test": 1}
    assert summary["read"] == {"train": 6, "dev": 2, "test": 2}
    assert summary["dropped"] == {"train": {"empty": 1, "limit": 3}, "dev": {"empty": 1}, "test": {"limit": 1}}
    assert (tmp_path / "corpus/train.en").read_text() == "The country’s head\none two\n"
    assert (tmp_path / "corpus/test.reference.en").read_text() == "one FOREIGN țară\n"


def test_bad_input_leaves_nothing_but_one_sentence(tmp_path, raw, refused):
    (raw / "test.en").write_text("one\n")
    message = str(refused("normalise", words_of(tmp_path)))
    assert "test.ro has 2 lines" in message and "test.en has 1" in message
    (raw / "test.en").write_text("\n \n")
    assert "no pairs for test after normalisation" in str(refused("normalise", words_of(tmp_path)))
    assert list((tmp_path / "corpus").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "settings", "earlier", "reasons"),
    [
        ("{n} un cuvânt lung", {"max_characters": 12}, {}, ["1,195 over max_characters"]),
        ("", {}, {}, ["1,195 empty"]),
        ("da {n}", {"max_words": 1}, {"cleaning": 900}, ["900 in cleaning", "1,195 over max_words"]),
        ("da {n}", {}, {}, []),
    ],
)
def test_too_few_pairs_to_split_are_an_error_that_says_what_was_left_out(
    tmp_path, refused, line, settings, earlier, reasons
):
    lines = [f"ok{n}" for n in range(5)] + [line.format(n=n) for n in range(5, 1200 if reasons else 20)]
    text = "".join(line + "\n" for line in lines)
    write_raw(tmp_path / "raw", {"train.ro": text, "train.en": text}, {"train": earlier})
    split = {"method": "connected-groups", "dev": 50, "test": 50}
    message = str(refused("normalise", words_of(tmp_path, split=split, **settings)))
    assert f"{5 if reasons else 20} pairs" in message and "under split" in message
    assert all(reason in message for reason in reasons)
    assert ("recipe.normalisation" in message) == bool(reasons)


def test_drops_of_the_download_and_lines_left_out_are_counted_where_a_user_looks(tmp_path, capsys):
    texts = {
        "train.ro": "a b\n\nc d\n",
        "train.en": "one\ntwo\nthree\n",
        "dev.ro": "x\n\ny\n",
        "dev.en": "1\n2\n3\n",
        "test.ro": "lung lung\nbun\n",
        "test.en": "long long long\ngood\n",
    }
    write_raw(tmp_path / "raw", texts, {"train": {"minimum_score": 5, "markup": 2}}, inline_elements={"train": 4})
    summary = normalise(tmp_path, max_characters=9)
    assert summary["inline_elements"] == {"train": 4}
    assert summary["read"] == {"train": 10, "dev": 3, "test": 2}
    assert summary["dropped"] == {
        "train": {"minimum_score": 5, "markup": 2, "empty": 1},
        "dev": {"empty": 1},
        "test": {"max_characters": 1},
    }
    assert all(
        summary["read"][name] == summary["pairs"][name] + sum(summary["dropped"][name].values())
        for name in ("train", "dev", "test")
    )
    assert summary["places"]["dev"] == [[0, "my dev.ro", "my dev.en", 2], [1, "my dev.ro", "my dev.en", 4]]
    assert summary["places"]["test"] == [[0, "my test.ro", "my test.en", 3]]
    assert (tmp_path / "corpus/test.reference.en").read_text() == "good\n"
    dropped = "2 markup, 5 below minimum_score, 2 empty, 1 over max_characters"
    assert f"15 pairs read: train 2, dev 2, test 1 (left out: {dropped})" in capsys.readouterr().err


LEAKING = {
    "train.ro": "Casa e roșie!\nda\ncasa e rosie\nBună ziua\nce faci\nnu știu\n",
    "train.en": "The house is red.\nyes\nthe house is red\nGood day\nhow are you\nno idea\n",
    "dev.ro": "nu știu\nbine\n",
    "dev.en": "I do not know\nwell\n",
    # As train has them but for case, punctuation and spaces; with another translation; not within the limit.
    "test.ro": "casa e roșie .\nbună  ziua\nda\nce faci\n",
    "test.en": "the house is red .\ngood day !\nsure\nhow are you\n",
}


def test_pairs_of_test_that_are_in_train_in_another_form_are_counted_and_can_be_removed(tmp_path, capsys):
    write_raw(tmp_path / "raw", LEAKING)
    kept = normalise(tmp_path, limits={"test": 3})
    assert kept["found_in_train"]["test"] == {"source": 3, "target": 2, "pair": 2}
    message = capsys.readouterr().err
    assert "warning: 66.7 % of the pairs of test are in train too" in message
    assert "test: 3 pairs; in train are the source of 3, the target of 2, and both as one pair of 2\n" in message
    assert kept["pairs"]["train"] == 6
    removed = normalise(tmp_path, limits={"test": 3}, held_out="remove")
    assert removed["found_in_train"]["test"] == {"source": 1, "target": 1, "pair": 0}
    assert removed["dropped"]["train"] == {"held_out": 2} and removed["read"]["train"] == 6
    # Other translations of a source of dev or test, and what a limit leaves out of test, stay.
    remaining = (tmp_path / "corpus/train.ro").read_text().splitlines()
    assert remaining == ["da", "casa e rosie", "ce faci", "nu știu"]
    message = capsys.readouterr().err
    assert "2 in dev or test" in message and "warning" not in message


def test_pairs_of_a_test_set_that_are_in_dev_are_counted(tmp_path, capsys):
    """Dev chooses settings: a test set that is dev in another form flatters what was chosen."""
    texts = {code: "".join(f"{code} {number} !\n" for number in range(9)) for code in ("ro", "en")}
    same = {f"{split}.{code}": text for split in ("dev", "test") for code, text in texts.items()}
    same["test.ro"] = same["test.ro"].replace(" !", "!").upper()
    write_raw(tmp_path / "raw", same | {"train.ro": "da\n", "train.en": "yes\n"})
    assert normalise(tmp_path)["found_in_dev"] == {"test": 9}
    assert "warning: 100.0 % of the pairs of test are in dev too" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "raw")
    write_raw(tmp_path / "raw", LEAKING)
    assert normalise(tmp_path)["found_in_dev"] == {"test": 0} and "in dev too" not in capsys.readouterr().err


def test_further_segments_of_a_unit_are_no_pairs_that_were_read(tmp_path):
    texts = {f"{split}.{code}": "a b\n" for split in ("train", "dev", "test") for code in ("ro", "en")}
    write_raw(tmp_path / "raw", texts, {"train": {"other_segment": 3, "untranslated": 2}})
    summary = normalise(tmp_path)
    assert summary["read"]["train"] == 3 and summary["dropped"]["train"] == {"other_segment": 3, "untranslated": 2}


def test_removal_looks_at_every_reference_and_at_the_dev_set_of_a_split(tmp_path):
    lines = ["unu", "doi", "trei", "Doi!", "patru", "cinci"]
    texts = {"train.ro": lines, "train.en": ["one", "two", "three", "two", "four", "five"]}
    # A further reference may be missing.
    texts |= {"test.ro": ["patru", "unu"], "test.en": ["vier", "eins"], "test.reference-2.en": ["FOUR", ""]}
    joined = {name: "".join(f"{line}\n" for line in text) for name, text in texts.items()}
    write_raw(tmp_path / "raw", joined, references={"test": 2})
    summary = normalise(tmp_path, split={"method": "every-nth", "every": 4}, held_out="remove")
    # The fourth pair is dev, so that the second one is no longer for train.
    assert (tmp_path / "corpus/dev.ro").read_text() == "Doi!\n"
    assert (tmp_path / "corpus/train.ro").read_text().splitlines() == ["unu", "trei", "cinci"]
    assert summary["dropped"]["train"] == {"held_out": 2}
    assert summary["found_in_train"]["test"] == {"source": 1, "target": 0, "pair": 0}
    assert summary["found_in_train"]["dev"]["pair"] == 0


CONNECTED = {"method": "connected-groups", "dev": 20, "test": 20, "key_language": "ro"}


def repeating(count=300):
    """Pairs whose sentences repeat, also in other forms; some empty, some that can be no training pair."""
    draw = random.Random(2)
    ends = ["", ".", "  !", "\u200b?"]
    rows = [
        (
            f"propoziția {draw.randrange(count)}{draw.choice(ends)}",
            f"sentence {draw.randrange(count)}{draw.choice(ends)}",
        )
        for _ in range(count)
    ]
    return rows + [("", "nothing"), ("bun", "one two three four five six seven")] * 4 + rows[:30]


def test_a_split_is_the_same_in_both_directions_and_leaves_no_pair_uncounted(tmp_path, capsys):
    rows = repeating()
    texts = {f"train.{code}": "".join(row[side] + "\n" for row in rows) for side, code in enumerate(("ro", "en"))}
    splits = {}
    for languages in (("ro", "en"), ("en", "ro")):
        shutil.rmtree(tmp_path / "raw", ignore_errors=True)
        write_raw(tmp_path / "raw", {f"train.{code}": texts[f"train.{code}"] for code in languages})
        summary = normalise(tmp_path, split=CONNECTED, languages=languages, max_length_ratio=3.0)
        assert sum(summary["pairs"].values()) + sum(summary["dropped"]["train"].values()) == len(rows)
        assert summary["read"] == {"train": len(rows)} and summary["places"] == {}
        assert summary["dropped"]["train"]["empty"] == summary["dropped"]["train"]["length_ratio"] == 4
        assert summary["dropped"]["train"]["repeated"] >= 30
        assert summary["found_in_train"] == {key: {"source": 0, "target": 0, "pair": 0} for key in ("dev", "test")}
        splits[languages] = [
            (tmp_path / f"corpus/{name}.{code}").read_text()
            for name in ("train", "dev", "test")
            for code in ("ro", "en")
        ]
        reference = (tmp_path / f"corpus/test.reference.{languages[1]}").read_text()
        assert reference == (tmp_path / f"corpus/test.{languages[1]}").read_text()
        # Many sentences have several translations.
        assert "split.key_language" in capsys.readouterr().err
    assert splits["ro", "en"] == splits["en", "ro"]


def test_official_test_sets_stay_beside_the_test_of_a_split(tmp_path):
    rows = repeating()
    texts = {f"train.{code}": "".join(row[side] + "\n" for row in rows) for side, code in enumerate(("ro", "en"))}
    official = {f"official.{code}": f"{rows[0][side]}\nunseen {code}\n" for side, code in enumerate(("ro", "en"))}
    write_raw(tmp_path / "raw", texts | official)
    summary = normalise(tmp_path, split=CONNECTED)
    assert [summary["pairs"][name] for name in ("dev", "test", "official")] == [20, 20, 2]
    assert (tmp_path / "corpus/official.en").read_text().splitlines()[1] == "unseen en"
    assert summary["dropped"]["official"] == {} and summary["found_in_train"]["test"]["pair"] == 0
    assert summary["found_in_train"]["official"]["source"] == 1


def test_too_small_a_corpus_leaves_nothing_but_one_sentence(tmp_path, refused):
    write_raw(tmp_path / "raw", {"train.ro": "a\nb\nc\n", "train.en": "a\nb\nc\n"})
    message = str(refused("normalise", words_of(tmp_path, split=CONNECTED)))
    assert "3 groups of connected sentences" in message and "longest" not in message
    assert list((tmp_path / "corpus").iterdir()) == []
    shutil.rmtree(tmp_path / "raw")
    paragraphs = "".join(f"{number} {'x' * 600}\n" for number in range(300))
    write_raw(tmp_path / "raw", {"train.ro": paragraphs, "train.en": paragraphs})
    message = str(refused("normalise", words_of(tmp_path, split=CONNECTED)))
    assert "300 are left out as too long (longest: 500)" in message and "raise its longest" in message


def test_every_nth_pair_that_can_be_used_becomes_dev(tmp_path):
    texts = {code: [f"{code} {n}" for n in range(1, 13)] for code in ("ro", "en")}
    texts["ro"][1], texts["ro"][4] = "", "ro " + "x" * 50
    raw = {f"train.{code}": "".join(line + "\n" for line in lines) for code, lines in texts.items()}
    write_raw(tmp_path / "raw", raw | {"test.ro": "t\n", "test.en": "t\n"})
    summary = normalise(tmp_path, split={"method": "every-nth", "every": 4, "longest": 20})
    # The second is empty, and the fifth, whose turn it is, too long.
    assert (tmp_path / "corpus/dev.en").read_text() == "en 6\nen 10\n"
    assert summary["pairs"] == {"train": 9, "dev": 2, "test": 1} and summary["dropped"]["train"] == {"empty": 1}
    limited = normalise(
        tmp_path, split={"method": "every-nth", "every": 4, "longest": 20}, limits={"train": 2, "dev": 1}
    )
    assert limited["pairs"] == {"train": 2, "dev": 1, "test": 1}
    assert limited["dropped"]["train"] == {"empty": 1, "limit": 8}


def test_memory_does_not_grow_with_the_corpus(tmp_path, raw):
    peaks = []
    for count in (3_000, 6_000):
        for code in ("ro", "en"):
            (raw / f"train.{code}").write_text("".join(f"{code} line {n}{' word' * 100}\n" for n in range(count)))
        tracemalloc.start()
        normalise(tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Each text of the larger corpus has 1.5 MB more.
    assert peaks[1] < peaks[0] + 500_000


@pytest.mark.parametrize("stage_name", ["clean", "normalise"])
@pytest.mark.parametrize("lacking", ["pairs", "languages"])
def test_a_summary_of_something_else_is_refused(raw, refused, tmp_path, stage_name, lacking):
    content = json.loads((raw / "raw.json").read_text())
    (raw / "raw.json").write_text(json.dumps({name: value for name, value in content.items() if name != lacking}))
    of_stage = {"clean": {"clean": []}, "normalise": {"normalisation": {}}}[stage_name]
    words = ["--settings", json.dumps({"languages": ("ro", "en")} | of_stage), "--raw", str(raw / "raw.json")]
    fields = {"mentions": ("raw.json", lacking)}
    error = refused(stage_name, [*words, "--summary", str(tmp_path / "out/summary.json")])
    assert fields_of(error, fields) == fields and not (tmp_path / "out").exists()
