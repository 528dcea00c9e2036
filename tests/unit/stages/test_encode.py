"""The encode stage: what it keeps, drops, counts and refuses."""

import json
import random
import shutil

import pytest
from stage_words import start_stage

from workflow_src.config import sizes
from workflow_src.config.preparation import SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.drops import left_out
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.placeholders import SYMBOLS
from workflow_src.stages import encode

GERMAN = ["der Hund schläft", "der Hund liest ein Buch und schläft dann", "ja", "", "der Hund", "wer 😀"]
ENGLISH = ["the dog sleeps", "it reads", "yes it is so and it was so and will be so", "nothing", "", "who 日"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    (folder / "de").write_text("der Hund schläft\nein Buch und dann ja\nwer liest\n" * 3, encoding="utf-8")
    (folder / "en").write_text("the dog sleeps\nit reads and yes so was\nwho will be nothing\n" * 3, encoding="utf-8")
    subwords.learn(SubwordsConfig(vocabulary_size=50), folder / "de", folder / "en", folder / "subwords")
    return folder / "subwords"


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "de").write_text("\n".join(GERMAN) + "\n", encoding="utf-8")
    (tmp_path / "en").write_text("\n".join(ENGLISH) + "\n", encoding="utf-8")
    return tmp_path


def words_of(models, folder, split, max_length=22, more=(), **settings):
    settings = {"max_length": max_length} | settings
    words = ["--settings", json.dumps(settings), "--subwords", str(models), "--languages", "de", "en", "--split", split]
    words += ["--source", str(folder / "de"), "--target", str(folder / "en")]
    return [*words, "--output-prefix", str(folder / "out" / split), *more]


def run(models, folder, split, *arguments, **more):
    start_stage(encode, words_of(models, folder, split, *arguments, **more))
    return EncodedCorpus.open(folder / "out" / split)


@pytest.fixture
def refusal(models, texts, refused):
    """The sentence of the error of `texts`, of which nothing is written."""

    def run(split, max_length=22, places=None, more=(), **settings):
        if places:
            (texts / "corpus.json").write_text(json.dumps({"places": places}))
            more = [*more, "--corpus-summary", str(texts / "corpus.json")]
        error = refused("encode", words_of(models, texts, split, max_length, more, **settings))
        assert not (texts / "out").exists() or list((texts / "out").iterdir()) == []
        return str(error)

    return run


@pytest.mark.parametrize("chunk", [1, 2, 8192])
def test_training_pairs_keep_their_order_without_those_that_cannot_be_used(models, texts, monkeypatch, chunk, capsys):
    monkeypatch.setattr(encode, "CHUNK", chunk)
    learned = subwords.Subwords.load(models)
    source, target = learned.encode_source(GERMAN), learned.encode_target(ENGLISH)
    # Rows 0 and 5 fit; the others are there for one reason each.
    limit = max(len(ids) for row in (0, 5) for ids in (source[row], target[row]))
    assert len(source[1]) > limit and len(target[2]) > limit
    corpus = run(models, texts, "train", limit)
    corpus.verify()
    assert [corpus.source(row).tolist() for row in range(len(corpus))] == [source[0], source[5]]
    assert [corpus.target(row).tolist() for row in range(len(corpus))] == [target[0], target[5]]
    summary = corpus.summary
    reasons = ("source-too-long", "target-too-long", "source-empty", "target-empty")
    assert summary["dropped"] == dict.fromkeys(reasons, 1)
    assert left_out(summary["dropped"]) in capsys.readouterr().err
    assert summary["pairs"] == 2
    assert summary["source_tokens"] == len(source[0]) + len(source[5])
    assert summary["subwords_digest"] == learned.digest
    assert summary["source_vocabulary"] == summary["target_vocabulary"] == 50
    assert summary["provenance"]["inputs"]["source"]["path"] == str(texts / "de")


@pytest.mark.parametrize("split", ["dev", "test"])
def test_dev_and_test_keep_every_pair(models, texts, split):
    corpus = run(models, texts, split, max_length=2)
    learned = subwords.Subwords.load(models)
    assert learned.decode_source([corpus.source(row).tolist() for row in range(len(corpus))]) == GERMAN
    assert learned.decode_target([corpus.target(row).tolist() for row in range(len(corpus))]) == ENGLISH
    assert corpus.summary["dropped"] == {}


@pytest.mark.parametrize("split", ["dev", "test"])
def test_lines_of_dev_and_test_that_no_model_can_read_are_named_in_the_users_files(models, texts, split, refusal):
    learned = subwords.Subwords.load(models)
    lengths = [[len(ids) for ids in side] for side in (learned.encode_source(GERMAN), learned.encode_target(ENGLISH))]
    longest = max(map(max, lengths)) - 1
    # The German side of the second pair, which is line 7 of the user's file, and the English one of the third.
    assert lengths[0][1] == lengths[1][2] == longest + 1
    places = {split: [[0, "a.de", "a.en", 1], [1, "my own.de", "my own.en", 7], [2, "a.de", "a.en", 3]]}
    message = refusal(split, places=places, more=["--longest", str(longest)])
    assert f"my own.de, line 7, ({split}) has {longest + 1} subwords, the first of 2 such pairs" in message
    assert f"take at most {longest} " in message and f"max_characters: {len(GERMAN[1]) - 1}." in message
    # Without places, the text itself is named.
    assert f"{texts / 'de'}, line 2, ({split})" in refusal(split, more=["--longest", str(longest)])
    assert f"{texts / 'de'}, line 2, ({split})" in refusal(split, places={split: []}, more=["--longest", str(longest)])
    # Also those of generated corpora, whose lines come from no file.
    unnamed = {split: [[0, "", "", 1]]}
    assert f"{texts / 'de'}, line 2, ({split})" in refusal(split, places=unnamed, more=["--longest", str(longest)])
    assert len(run(models, texts, split, more=["--longest", str(longest + 1)])) == len(GERMAN)


def test_the_number_of_characters_that_is_offered_leaves_out_every_line_that_is_too_long(models, refusal):
    learned = subwords.Subwords.load(models)
    sides = zip(learned.encode_source(GERMAN), learned.encode_target(ENGLISH), strict=True)
    lengths = [max(map(len, pair)) for pair in sides]
    for longest in range(1, max(lengths)):
        message = refusal("test", more=["--longest", str(longest)])
        pairs = sum(length > longest for length in lengths)
        assert (f", the first of {pairs} such pairs" in message) == (pairs > 1)
        offered = int(message.split("max_characters: ")[1].rstrip(".\n"))
        remaining = [
            length
            for length, pair in zip(lengths, zip(GERMAN, ENGLISH, strict=True), strict=True)
            if max(map(len, pair)) <= offered
        ]
        assert max(remaining, default=0) <= longest
        # With one character more, a line that is too long would remain.
        assert any(
            length > longest and max(map(len, pair)) == offered + 1
            for length, pair in zip(lengths, zip(GERMAN, ENGLISH, strict=True), strict=True)
        )


def test_a_max_length_that_is_more_than_models_can_read_is_reported(models, texts, refusal):
    message = refusal("train", max_length=60, more=["--longest", "20"])
    assert "which recipe.max_length, 60, allows" in message and "lower recipe.max_length to 20" in message
    assert run(models, texts, "train", max_length=20, more=["--longest", "20"]).summary["pairs"] >= 1


def pairs_of_lengths(folder, lengths):
    """A parallel text whose German sides have words, and so subwords, in these numbers."""
    (folder / "de").write_text("".join("ja " * (number - 1) + "ja\n" for number in lengths), encoding="utf-8")
    (folder / "en").write_text("it\n" * len(lengths), encoding="utf-8")


def subwords_of(models, words):
    return len(subwords.Subwords.load(models).encode_source([" ".join(["ja"] * words)])[0])


@pytest.mark.parametrize("every", [1, 3])
def test_max_length_auto_keeps_almost_all_pairs(models, tmp_path, monkeypatch, capsys, every):
    monkeypatch.setattr(encode, "MEASURED", 1000 // every)
    # 995 of 1,000 pairs have up to 100 words; the others are spread evenly and longer.
    lengths = [300 if row % 200 == 199 else 1 + row % 100 for row in range(1000)]
    pairs_of_lengths(tmp_path, lengths)
    corpus = run(models, tmp_path, "train", "auto")
    limit = corpus.summary["max_length"]
    # Of every third pair, the longest that stay have 97 words.
    assert limit == subwords_of(models, 100 if every == 1 else 97) > 64
    assert len(corpus) == sum(subwords_of(models, words) <= limit for words in lengths) >= 965
    message = capsys.readouterr().err
    assert f"max_length is auto: {limit} subwords" in message and ("warning" in message) == (every == 3)


def test_max_length_auto_has_bounds(models, tmp_path):
    pairs_of_lengths(tmp_path, [1, 2, 3])
    assert run(models, tmp_path, "train", "auto").summary["max_length"] == sizes.LOWEST_MAX_LENGTH
    pairs_of_lengths(tmp_path, [1, 5000])
    corpus = run(models, tmp_path, "train", "auto")
    assert (corpus.summary["max_length"], len(corpus)) == (sizes.HIGHEST_MAX_LENGTH, 1)


def test_other_texts_take_the_max_length_that_follows_the_raw_pairs(models, tmp_path, capsys):
    pairs_of_lengths(tmp_path, [80] * 9)
    raw = run(models, tmp_path, "train", "auto")
    pairs_of_lengths(tmp_path, [200, *[80] * 9])
    capsys.readouterr()
    corpus = run(models, tmp_path, "train", "auto", more=["--measured", f"{raw.prefix}.json"])
    assert corpus.summary["max_length"] == raw.summary["max_length"] == subwords_of(models, 80)
    assert corpus.summary["dropped"] == {"source-too-long": 1}
    # More than 2 % are lost, where the user did not ask for it.
    assert "warning: 10.0 % of the pairs" in capsys.readouterr().err


@pytest.mark.parametrize("content", [[], {"pairs": 3}])
def test_files_of_another_kind_are_refused_by_their_names(texts, refusal, content):
    (texts / "other.json").write_text(json.dumps(content))
    other = str(texts / "other.json")
    assert f"{other} cannot be used (" in refusal("train", "auto", more=["--measured", other])
    more = ["--corpus-summary", other, "--longest", "2"]
    assert f"{other} cannot be used (" in refusal("test", more=more)


def test_pairs_that_max_length_auto_keeps_may_be_too_long(models, texts, refusal):
    pairs_of_lengths(texts, [1, 90])
    assert len(run(models, texts, "train", "auto")) == 2
    shutil.rmtree(texts / "out")
    assert "lower recipe.max_length to 63" in refusal("train", "auto", more=["--longest", "63"])


@pytest.mark.parametrize("chunk", [1, 3, 8192])
def test_augmented_pairs_are_counted_and_stay_where_they_would_be_too_long(models, texts, monkeypatch, chunk, capsys):
    monkeypatch.setattr(encode, "CHUNK", chunk)
    augment = {"upper": 1}
    plain = run(models, texts, "train", 40)
    capsys.readouterr()
    corpus = run(models, texts, "train", 40, augment=augment)
    learned, rows = subwords.Subwords.load(models), range(len(corpus))
    written = [learned.decode_source([corpus.source(row).tolist()])[0] for row in rows]
    kept = [learned.decode_source([plain.source(row).tolist()])[0] for row in rows]
    # The same pairs in the same order, in capitals where these are no more than 40 subwords on both sides.
    assert [text.casefold() for text in written] == [text.casefold() for text in kept]
    sides = [(text.upper(), ENGLISH[GERMAN.index(text)].upper()) for text in kept]
    fits = [len(learned.encode_source([a])[0]) <= 40 >= len(learned.encode_target([b])[0]) for a, b in sides]
    assert written == [a if fit else text for (a, _), fit, text in zip(sides, fits, kept, strict=True)]
    assert set(fits) == {True, False}
    assert corpus.summary["augmented"]["upper"] == sum(fits)
    assert f"augmented: upper {sum(fits)}; " in capsys.readouterr().err
    assert "augmented" not in plain.summary


@pytest.mark.parametrize(("last", "warned"), [("der Hund", True), ("der Hund schläft", False)])
def test_a_modifier_that_changes_no_pair_is_named(models, texts, capsys, last, warned):
    (texts / "de").write_text("der Hund\n" * 49 + last + "\n", encoding="utf-8")
    (texts / "en").write_text("the dog\n" * 50, encoding="utf-8")
    run(models, texts, "train", 40, augment={"no_accents": 1})
    assert ("warning: training.augment.no_accents" in capsys.readouterr().err) == warned


def test_which_pairs_are_augmented_does_not_depend_on_what_models_can_read(models, texts, refusal):
    (texts / "de").write_text("der Hund schläft\nja\n", encoding="utf-8")
    (texts / "en").write_text("the dog sleeps\nyes\n", encoding="utf-8")
    augment = {"upper": 1}
    free = run(models, texts, "train", 40, augment=augment)
    longest = max(max(len(free.source(row)), len(free.target(row))) for row in range(len(free)))
    plain = run(models, texts, "train", 40)
    assert longest > max(max(len(plain.source(row)), len(plain.target(row))) for row in range(len(plain)))
    enough = run(models, texts, "train", 40, augment=augment, more=["--longest", str(longest)])
    assert enough.summary["digest"] == free.summary["digest"]
    # A changed pair that is too long for a model ends the job as others do, and does not stay unchanged.
    (texts / "out").rename(texts / "before")
    error = refusal("train", max_length=40, augment=augment, more=["--longest", str(longest - 1)])
    assert f"lower recipe.max_length to {longest - 1}" in error


def test_nothing_left_to_train_on(refusal):
    error = refusal("train", 2)
    assert "have no pair left" in error and "5 source-too-long" in error and "recipe.max_length, which is 2" in error


def test_placeholders_of_training_pairs_need_a_partner_and_those_of_dev_do_not(tmp_path, capsys):
    texts = {"de": ["der <b>Hund</b> %1", "ein %2 Buch %1", "ja"], "en": ["the <b>dog</b>", "a book %1 %2", "yes %3"]}
    for code, lines in texts.items():
        (tmp_path / code).write_text("".join(f"{line}\n" for line in lines))
    settings = SubwordsConfig(vocabulary_size="auto")
    paths = (tmp_path / "de", tmp_path / "en", tmp_path / "subwords")
    learned = subwords.learn(settings, *paths, placeholders=("tags", "variables"))
    first, second, third = SYMBOLS[:3]

    def pieces(split):
        corpus = run(tmp_path / "subwords", tmp_path, split)
        rows = [(corpus.source(row).tolist(), corpus.target(row).tolist()) for row in range(len(corpus))]
        names = learned.names()["source"]
        return corpus.summary, [
            ["".join(names[i] for i in ids).replace("▁", " ").strip() for ids in row] for row in rows
        ]

    summary, rows = pieces("train")
    assert rows[0] == [f"der {first}Hund{second} %1", f"the {first}dog{second}"]
    assert rows[1] == [f"ein {first} Buch {second}", f"a book {second} {first}"]
    assert summary["placeholders"] == {"pairs": 2, "spans": 4, "without_partner": 2}
    assert "2 pairs with 4 placeholders on both sides, 2 without partner" in capsys.readouterr().err
    summary, rows = pieces("dev")
    assert rows[0] == [f"der {first}Hund{second} {third}", f"the {first}dog{second}"] and "placeholders" not in summary
    assert rows[2] == ["ja", "yes %3"]


def test_a_users_own_target_is_brought_to_the_form_of_references(models, tmp_path, capsys):
    lines = ["the dog reads", "so was it", "who will be"]
    (tmp_path / "de").write_text("der Hund\nja\nwer\n", encoding="utf-8")
    own = {"own_target": {"moses_tokenise": True}}
    expected = None
    for forms in (
        lines,
        ["the dog\u200b  reads ", "\tso was it", "who\u00a0will be"],
        [f"\ufeff{lines[0]}", *lines[1:]],
    ):
        (tmp_path / "en").write_text("\n".join(forms) + "\n", encoding="utf-8")
        corpus = run(models, tmp_path, "train", **own)
        targets = [corpus.target(row).tolist() for row in range(3)]
        expected = expected or targets
        assert targets == expected
    assert "3 of 3 lines were changed" in capsys.readouterr().err
    # Dev and test are normalised when the corpus is.
    (tmp_path / "en").write_text("the \u0301dog reads\nso was it\nwho will be\n", encoding="utf-8")
    assert run(models, tmp_path, "dev", **own).target(0).tolist() != expected[0]


def test_a_users_own_target_in_another_format_is_named_and_not_called_misaligned(refusal, tmp_path):
    (tmp_path / "de").write_text("der Hund\nja\n", encoding="utf-8")
    (tmp_path / "en").write_bytes("the dog\nyes\n".encode("utf-16"))
    assert "is text in UTF-16, not in UTF-8" in refusal("train", own_target={})


def test_own_targets_follow_the_rules_of_their_language(models, tmp_path):
    (tmp_path / "de").write_text("der Hund\nja\n", encoding="utf-8")

    def targets(line, **settings):
        (tmp_path / "en").write_text(f"{line}\nwho\n", encoding="utf-8")
        corpus = run(models, tmp_path, "train", own_target={}, **settings)
        return [corpus.target(row).tolist() for row in range(2)]

    tokenised = "the dog 's it"
    assert targets(tokenised, tokenised={"en": "moses"}) == targets("the dog's it") != targets(tokenised)


@pytest.mark.parametrize(
    ("form", "warned"),
    [
        (lambda sources, order: sources, False),
        (lambda sources, order: [sources[row] for row in order], True),
        (lambda sources, order: ["the dog"] * len(order), False),
    ],
    ids=["aligned", "shuffled", "constant"],
)
def test_own_targets_in_another_order_than_the_source_are_a_warning(models, tmp_path, capsys, form, warned):
    draw = random.Random(1)
    sources = [" ".join(draw.choices(["der", "Hund", "ja", "wer"], k=draw.randint(1, 9))) for _ in range(1100)]
    order = draw.sample(range(1100), 1100)
    (tmp_path / "de").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (tmp_path / "en").write_text("".join(f"{line}\n" for line in form(sources, order)), encoding="utf-8")
    run(models, tmp_path, "train", max_length=200, own_target={})
    assert ("warning" in capsys.readouterr().err) == warned
