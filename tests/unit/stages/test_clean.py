"""The clean stage, from raw text to raw text, and its fields in the summaries of download and normalise."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from stage_words import start_stage

from workflow_src.data.drops import left_out
from workflow_src.stages import clean, download, normalise

RAW = {
    "train.de": "Guten Tag\nguten tag!\nfünf &amp; sechs\nOpen the file\nIm Jahr 1950\nGute Nacht\n",
    "train.en": "Hello\nHello\nfive &amp; six\nOpen the file\nIn 1951\nGood night\n",
    "dev.de": "Hallo &amp;\nHallo &amp;\n",
    "dev.en": "Hello\nHello\n",
    "test.de": "Ja\n",
    "test.en": "Yes\n",
}
DOWNLOADS = {"talks": {"url": "https://example.org/talks.tgz", "bytes": 7, "check": "md5"}}
FILTERS = [["garbled", {}], ["copies", {}], ["numbers", {}], ["repeated", {}]]


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, text in RAW.items():
        (folder / name).write_text(text, encoding="utf-8")
    counts = {name[:-3]: text.count("\n") for name, text in RAW.items() if name.endswith(".de")}
    places = {"dev": [[0, "my.de", "my.en", 1]], "test": [[0, "my.de", "my.en", 3]]}
    dropped = {"train": {"minimum_score": 2}, "dev": {}, "test": {}}
    content = {"dataset": "mine", "languages": ["de", "en"], "pairs": counts, "dropped": dropped, "places": places}
    content |= {"downloads": DOWNLOADS}
    (folder / "raw.json").write_text(json.dumps(content))
    return folder


def words_of(folder, steps=FILTERS):
    settings = {"languages": ("de", "en"), "clean": steps}
    words = ["--settings", json.dumps(settings), "--raw", str(folder / "raw/raw.json")]
    return [*words, "--summary", str(folder / "clean/raw.json"), "--log", str(folder / "log")]


def run(folder, steps=FILTERS):
    start_stage(clean, words_of(folder, steps))
    return json.loads((folder / "clean" / "raw.json").read_text())


def test_train_is_cleaned_and_every_pair_is_kept_or_counted(tmp_path, raw, capsys):
    summary = run(tmp_path)
    texts = {name: (tmp_path / "clean" / name).read_text(encoding="utf-8") for name in RAW}
    assert texts == RAW | {
        "train.de": "Guten Tag\nfünf & sechs\nGute Nacht\n",
        "train.en": "Hello\nfive & six\nGood night\n",
    }
    assert summary["pairs"] == {"train": 3, "dev": 2, "test": 1} and summary["downloads"] == DOWNLOADS
    assert summary["dropped"] == {"train": {"minimum_score": 2, "cleaning": 3}, "dev": {}, "test": {}}
    by_filter = {step["filter"]: (step["read"], step["dropped"], step["repaired"]) for step in summary["cleaning"]}
    assert by_filter == {
        "garbled": (6, {}, 1),
        "copies": (6, {"equal": 1}, 0),
        "numbers": (5, {"min_share": 1}, 0),
        "repeated": (4, {"pairs": 1}, 0),
    }
    examples = {step["filter"]: step["examples"] for step in summary["cleaning"]}
    assert examples["garbled"] == [
        {
            "line": 3,
            "source": "fünf &amp; sechs",
            "target": "five &amp; six",
            "reason": "repaired",
            "cause": "",
            "repaired": ["fünf & sechs", "five & six"],
        }
    ]
    assert [example["line"] for example in examples["repeated"]] == [2]
    err = capsys.readouterr().err
    assert "copies: 1 of 6 pairs left out (equal 1)" in err and "garbled: 0 of 6 pairs left out, 1 repaired" in err
    assert f"6 pairs read, 3 kept{left_out({'cleaning': 3})}" in err


def test_normalise_reads_what_is_left_and_passes_the_counts_on(tmp_path, raw):
    cleaning = run(tmp_path)["cleaning"]
    settings = {"languages": ["de", "en"], "normalisation": {}}
    words = ["--settings", json.dumps(settings), "--summary", str(tmp_path / "corpus/corpus.json")]
    start_stage(normalise, [*words, "--raw", str(tmp_path / "clean/raw.json")])
    corpus = json.loads((tmp_path / "corpus" / "corpus.json").read_text())
    assert corpus["cleaning"] == cleaning and corpus["pairs"]["train"] == 3
    assert corpus["read"]["train"] == 8 and corpus["dropped"]["train"] == {"minimum_score": 2, "cleaning": 3}
    start_stage(normalise, [*words, "--raw", str(tmp_path / "raw/raw.json")])
    assert "cleaning" not in json.loads((tmp_path / "corpus" / "corpus.json").read_text())


def test_further_references_pass_by_the_filters(tmp_path, raw):
    content = json.loads((raw / "raw.json").read_text()) | {"references": {"test": 2}}
    (raw / "raw.json").write_text(json.dumps(content))
    (raw / "test.reference-2.en").write_text("another\n")
    assert run(tmp_path)["references"] == {"test": 2}
    assert (tmp_path / "clean" / "test.reference-2.en").read_text() == "another\n"


def test_filters_work_one_after_the_other_in_their_order(tmp_path, raw):
    (tmp_path / "raw" / "train.de").write_text("A&amp;B 1900\nA&amp;B 1900\n")
    (tmp_path / "raw" / "train.en").write_text("A&B in 1900\nA&amp;B in 1900\n")
    assert run(tmp_path, [["repeated", {}], ["garbled", {}]])["pairs"]["train"] == 2
    assert run(tmp_path, [["garbled", {}], ["repeated", {}]])["pairs"]["train"] == 1


def test_a_text_of_which_nothing_is_left_is_an_error_that_names_the_filter(tmp_path, raw, refused):
    words = words_of(tmp_path, [["copies", {}], ["length", {"min_words": 50}]])
    refused("clean", words, problem="have nothing left: recipe.clean.length leaves out 5 of 5")
    refused("clean", words_of(tmp_path, [["capitol", {}]]), setting="recipe.clean.capitol")
    assert not (tmp_path / "clean" / "raw.json").exists()


def test_scores_of_a_table_reach_the_filter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.tsv").write_text("eins\tone\t0.9\nzwei\ttwo\t-1e-3\ndrei\tthree\tnan\n")
    (tmp_path / "y.de").write_text("vier\n")
    (tmp_path / "y.en").write_text("four\n")
    texts = {"texts": {"de": "y.de", "en": "y.en"}}
    table = {"table": "x.tsv", "columns": {"de": 0, "en": 1}, "score_column": 2}
    dataset = {"name": "mine", "languages": ["de", "en"], "train": [table, texts], "dev": [texts], "test": [texts]}
    words = ["--languages", "de", "en", "--summary", "raw/raw.json", "--settings", json.dumps(dataset)]
    start_stage(download, [*words, "--scores", "True"])
    assert (tmp_path / "raw" / "train.scores").read_text() == "0.9\n-0.001\nnan\n\n"
    assert "train.scores" in json.loads((tmp_path / "raw" / "raw.json").read_text())["sha256"]
    summary = run(tmp_path, [["score", {"minimum": 0.5}]])
    assert (tmp_path / "clean" / "train.de").read_text() == "eins\nvier\n"
    assert summary["cleaning"][0]["dropped"] == {"minimum": 2}
    assert "train.scores" in summary["provenance"]["inputs"]
    start_stage(download, [*words, json.dumps(dataset | {"train": [texts]})])
    assert not (tmp_path / "raw" / "train.scores").exists()


def test_pairs_are_streamed(tmp_path, raw):
    """Memory is that of keys seen, not of text."""
    for code in ("de", "en"):
        (tmp_path / "raw" / f"train.{code}").write_text("".join(f"{code} {'x' * 200} {n}\n" for n in range(20_000)))
    tracemalloc.start()
    run(tmp_path, [["length", {}], ["repeated", {}]])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6
