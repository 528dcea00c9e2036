"""The encode stage: what it keeps, drops, counts and refuses."""

import json

import pytest

from workflow_src.config.datasets import SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.encoded import EncodedCorpus
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


def run(models, folder, split, max_length=22, code=0, capsys=None):
    words = ["--settings", json.dumps({"max_length": max_length}), "--subwords", str(models), "--split", split]
    words += ["--source", str(folder / "de"), "--target", str(folder / "en")]
    words += ["--output-prefix", str(folder / "out" / split)]
    if not code:
        encode.main(words)
        return EncodedCorpus.open(folder / "out" / split)
    with pytest.raises(SystemExit) as left:
        encode.main(words)
    assert left.value.code == code
    assert not (folder / "out").exists() or list((folder / "out").iterdir()) == []
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.startswith("error: ")
    return error


@pytest.mark.parametrize("chunk", [1, 2, 8192])
def test_training_pairs_keep_their_order_without_those_that_cannot_be_used(models, texts, monkeypatch, chunk):
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
    assert summary["pairs"] == 2
    assert summary["source_tokens"] == len(source[0]) + len(source[5])
    assert summary["subwords_digest"] == learned.digest
    assert summary["source_vocabulary"] == summary["target_vocabulary"] == 50
    assert summary["provenance"]["inputs"]["source"]["path"] == str(texts / "de")


def test_limit_is_the_longest_that_is_kept(models, texts):
    (texts / "de").write_text("der Hund schläft\n")
    (texts / "en").write_text("it\n")
    length = len(subwords.Subwords.load(models).encode_source(["der Hund schläft"])[0])
    assert len(run(models, texts, "train", length)) == 1
    with pytest.raises(SystemExit):
        run(models, texts, "train", length - 1)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_dev_and_test_keep_every_pair(models, texts, split):
    corpus = run(models, texts, split, max_length=2)
    learned = subwords.Subwords.load(models)
    assert learned.decode_source([corpus.source(row).tolist() for row in range(len(corpus))]) == GERMAN
    assert learned.decode_target([corpus.target(row).tolist() for row in range(len(corpus))]) == ENGLISH
    assert corpus.summary["dropped"] == {}


def test_nothing_left_to_train_on(models, texts, capsys):
    error = run(models, texts, "train", 2, 1, capsys)
    assert "no pair of" in error and "5 source-too-long" in error and "recipe.max_length is 2" in error


def test_texts_that_do_not_match(models, texts, capsys):
    (texts / "en").write_text("a\nb\n")
    assert f"{texts / 'de'} has 6, {texts / 'en'} has 2" in run(models, texts, "dev", code=1, capsys=capsys)


def test_empty_text(models, texts, capsys):
    (texts / "de").write_text("")
    assert f"text {texts / 'de'} is empty" in run(models, texts, "test", code=1, capsys=capsys)


def test_text_that_is_not_utf8(models, texts, capsys):
    content = (texts / "en").read_bytes().replace("日".encode(), b"\x93")
    (texts / "en").write_bytes(content)
    error = run(models, texts, "train", code=1, capsys=capsys)
    assert f"text {texts / 'en'} is not UTF-8 in line 6, byte {content.index(0x93) + 1} of the file (0x93)" in error


def test_missing_subwords(texts, capsys):
    error = run(texts / "none", texts, "train", code=1, capsys=capsys)
    assert f"file {texts / 'none' / 'subwords.json'} does not exist" in error
