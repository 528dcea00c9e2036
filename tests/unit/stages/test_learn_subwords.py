"""The learn_subwords stage: its command line, its files, its errors."""

import json
import random

import pytest
from stage_words import start_stage

from workflow_src.data import learn_subwords
from workflow_src.data.subwords import Subwords
from workflow_src.stages import learn_subwords as stage


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "de").write_text("der Hund schläft\nder Hund liest\n" * 5, encoding="utf-8")
    (tmp_path / "en").write_text("the dog sleeps\nthe dog reads\n" * 5, encoding="utf-8")
    return tmp_path


def words_of(folder, **settings):
    words = ["--settings", json.dumps({"vocabulary_size": 40} | settings), "--log", str(folder / "logs" / "learn.log")]
    words += ["--source", str(folder / "de"), "--target", str(folder / "en")]
    return [*words, "--output-folder", str(folder / "results" / "subwords"), "--threads", "1"]


def run(folder, **settings):
    start_stage(stage, words_of(folder, **settings))


def test_learns(texts, capsys):
    run(texts)
    learned = Subwords.load(texts / "results" / "subwords")
    assert learned.source_size == 40
    assert learned.decode_target(learned.encode_target(["the dog sleeps"])) == ["the dog sleeps"]
    # SentencePiece's own chatter stays away.
    assert capsys.readouterr().err.count("\n") == 1
    assert "learned 40 subwords for both languages" in (texts / "logs" / "learn.log").read_text()


def test_a_huge_text_is_sampled_evenly_and_said_to_be(texts, capsys, monkeypatch):
    # Every second line of both texts, so that those with B and f are not seen.
    monkeypatch.setattr(learn_subwords, "MOST_LINES", 10)
    (texts / "de").write_text("der Hund ruht\nein Bild\n" * 5, encoding="utf-8")
    (texts / "en").write_text("the dog rests\nfull\n" * 5, encoding="utf-8")
    run(texts, vocabulary_size=35)
    assert "subwords are learned from 10 of 20 lines" in capsys.readouterr().err
    pieces = "".join(Subwords.load(texts / "results" / "subwords").names()["source"])
    assert {"H", "d", "g"} <= set(pieces) and not {"B", "f"} & set(pieces.replace("<pad>", "").replace("<unk>", ""))


def test_learns_apart_by_subword_nmt(texts, capsys):
    run(texts, method="subword-nmt", model="bpe", joint=False, vocabulary_size=70)
    assert not Subwords.load(texts / "results" / "subwords").joint
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "learned 70 subwords for the source, 70 for the target" in error


WORDS = [f"{a}{b}{c}" for a in ("ba", "ku", "mi") for b in ("lo", "ne", "ras") for c in ("t", "den", "ische")]


@pytest.mark.parametrize("kind", [{}, {"method": "subword-nmt", "model": "bpe"}], ids=["sentencepiece", "subword-nmt"])
def test_a_size_by_the_corpus(texts, kind):
    """500 for a small text; less where the text allows no more."""
    source = random.Random(1)
    lines = [" ".join("".join(source.choices("abcdefghijklmnop", k=6)) for _ in range(8)) for _ in range(400)]
    for code in ("de", "en"):
        (texts / code).write_text("\n".join(lines) + "\n")
    run(texts, vocabulary_size="auto", **kind)
    assert Subwords.load(texts / "results" / "subwords").source_size == pytest.approx(500, abs=5)
    for code in ("de", "en"):
        (texts / code).write_text("\n".join(WORDS) + "\n")
    run(texts, vocabulary_size="auto", **kind)
    small = Subwords.load(texts / "results" / "subwords")
    assert 30 < small.source_size < 500
    assert small.decode_target(small.encode_target(WORDS)) == WORDS


@pytest.mark.parametrize("number", [150, 440, 700])
@pytest.mark.parametrize("kind", [{}, {"method": "subword-nmt", "model": "bpe"}], ids=["sentencepiece", "subword-nmt"])
def test_many_characters_leave_room_for_longer_subwords(texts, kind, number):
    """As Chinese beside English: the other language is not spelt in letters, however many characters there are."""
    source = random.Random(1)
    characters = [chr(0x4E00 + place) for place in range(number)]
    pairs = ["".join(source.sample(characters, 2)) for _ in range(900)]
    chinese = ["".join(source.sample(pairs, 6)) for _ in range(1500)] + ["".join(characters)]
    english = [" ".join(source.choices(WORDS, k=5)) for _ in chinese]
    for code, lines in (("de", chinese), ("en", english)):
        (texts / code).write_text("\n".join(lines) + "\n")
    run(texts, vocabulary_size="auto", character_coverage=1.0, **kind)
    subwords = Subwords.load(texts / "results" / "subwords")
    # subword-nmt has each character twice: within a word and at its end.
    single = (2 if kind else 1) * (number + 18)
    assert 250 < subwords.source_size - single < 500
    assert subwords.decode_target(subwords.encode_target(chinese[:3])) == chinese[:3]
    assert all(len(ids) < 10 for ids in subwords.encode_target(english))
    assert subwords.description["sizes"]["target"] == subwords.target_size


def test_each_language_has_a_size_that_fits_it(texts):
    lines = [" ".join(random.Random(number).choices(WORDS, k=5)) for number in range(300)]
    (texts / "de").write_text("\n".join(lines) + "\n")
    (texts / "en").write_text("ab ba\n" * 300)
    run(texts, vocabulary_size="auto", joint=False)
    separate = Subwords.load(texts / "results" / "subwords")
    assert separate.target_size < separate.source_size <= 500


def test_text_that_is_not_utf8(texts, refused):
    (texts / "en").write_bytes(b"the dog\n" * 9 + b"caf\xe9\n")
    for settings in ({}, {"method": "subword-nmt", "model": "bpe", "vocabulary_size": 100}):
        refused("learn_subwords", words_of(texts, **settings), path=f"{texts}/en", line=10, mentions=("UTF-8", " 76 "))
    assert not (texts / "results" / "subwords").exists()


def copy_words(folder):
    """Words of a command that copies the subwords of `folder` for another corpus."""
    other = folder / "other"
    other.mkdir(exist_ok=True)
    for code in ("de", "en"):
        (other / code).write_text("ganz anders\n", encoding="utf-8")
    words = ["--source", str(other / "de"), "--target", str(other / "en"), "--output-folder", str(other / "subwords")]
    return [*words, "--subwords-from", str(folder / "results/subwords/subwords.json")]


def test_subwords_of_another_corpus_are_copied(texts, refused):
    run(texts)
    before, words = Subwords.load(texts / "results/subwords"), copy_words(texts)
    start_stage(stage, ["--settings", '{"vocabulary_size": 40}', *words])
    copied = Subwords.load(texts / "other" / "subwords")
    # Weights trained with one fit the other.
    assert copied.digest == before.digest and copied.names() == before.names()
    assert list(copied.description["provenance"]["inputs"]) == ["subwords"]
    assert copied.description["provenance"]["settings"] == before.description["provenance"]["settings"]
    fields = {"setting": "recipe.subwords.vocabulary_size", "value": 30}
    refused("learn_subwords", ["--settings", '{"vocabulary_size": 30}', *words], **fields)


@pytest.mark.parametrize("size", [82, "auto"])
def test_stated_settings_are_those_that_the_copied_subwords_were_learned_with(texts, refused, size):
    """The setting counts, not the number of subwords that came of it."""
    for code in ("de", "en"):
        (texts / code).write_text("\n".join(WORDS * 4) + "\n")
    settings = {"method": "subword-nmt", "model": "bpe", "joint": False, "vocabulary_size": "auto"}
    run(texts, **settings, character_coverage=0.99)
    # As in a vocabulary in which two merges give the same subwords as others.
    summary, settings = texts / "results/subwords/subwords.json", settings | {"vocabulary_size": size}
    content = json.loads(summary.read_text())
    content["provenance"]["settings"]["vocabulary_size"] = size
    summary.write_text(json.dumps(content))
    before, words = Subwords.load(summary.parent), copy_words(texts)
    assert before.source_size != size
    for stated in (settings | {"character_coverage": 0.99}, settings, {"vocabulary_size": size}, {}):
        start_stage(stage, ["--settings", json.dumps(stated), *words])
        assert Subwords.load(texts / "other/subwords").digest == before.digest
    differences = {"joint": True, "vocabulary_size": before.source_size, "character_coverage": 1.0}
    differences |= {"method": "sentencepiece", "model": "unigram"}
    for name, value in differences.items():
        stated = ["--settings", json.dumps({name: value}), *words]
        refused("learn_subwords", stated, setting=f"recipe.subwords.{name}", value=value)
