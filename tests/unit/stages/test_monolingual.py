"""Text of the source language: every line is kept or counted; translations by the stages of distillation."""

import gzip
import json
from collections import Counter

import pytest

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json, write_json

CLEAN = [["length", {"max_words": 6}], ["letters", {}]]


@pytest.fixture
def settings(tiny):
    """`make(limit, clean)`: settings of normalise_monolingual."""

    def make(limit=None, clean=()):
        content = {"language": "de", "limit": limit, "normalisation": tiny.normalisation, "clean": list(clean)}
        return json.dumps(content)

    return make


@pytest.fixture
def prepare(tiny, settings, run_stage, tmp_path):
    """`prepare(lines, limit, clean)`: the counts and lines that the two stages leave of a text."""

    def run(lines, limit=None, clean=(), settings=settings):
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / "raw/monolingual.de").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        write_json(tmp_path / "raw/monolingual.json", {"language": "de", "lines": {"mine": len(lines)}})
        words = ["--settings", settings(limit, clean), "--raw-folder", str(tmp_path / "raw")]
        words += ["--held-out", str(tiny.corpus / "dev.de"), "--output-folder", str(tmp_path / "corpus")]
        run_stage("normalise_monolingual", words)
        kept = (tmp_path / "corpus/monolingual.de").read_text(encoding="utf-8").splitlines()
        return read_json(tmp_path / "corpus/monolingual.json"), kept

    return run


def test_texts_are_read_one_after_the_other(run_stage, tmp_path):
    (tmp_path / "a.de").write_text("  eins \n\nzwei\n", encoding="utf-8")
    with gzip.open(tmp_path / "b.gz", "wt", encoding="utf-8") as file:
        file.write("drei\n")
    names = [str(tmp_path / "a.de"), str(tmp_path / "b.gz")]
    content = json.dumps({"language": "de", "texts": names, "files": {}})
    run_stage("download_monolingual", ["--settings", content, "--output-folder", str(tmp_path / "raw")])
    assert (tmp_path / "raw/monolingual.de").read_text(encoding="utf-8") == "eins\n\nzwei\ndrei\n"
    record = read_json(tmp_path / "raw/monolingual.json")
    assert record["lines"] == dict(zip(names, (3, 1), strict=True))
    assert {entry["path"] for entry in record["provenance"]["inputs"].values()} == set(names)


@pytest.mark.parametrize(("content", "word"), [(None, "does not exist"), (b"", "is empty"), (b"\xff\n", "not UTF-8")])
def test_a_text_that_cannot_be_read_is_one_sentence(refused, tmp_path, content, word):
    if content is not None:
        (tmp_path / "a.de").write_bytes(content)
    settings = json.dumps({"language": "de", "texts": [str(tmp_path / "a.de")]})
    error = refused("download_monolingual", ["--settings", settings, "--output-folder", str(tmp_path / "raw")])
    assert error.path == str(tmp_path / "a.de") and word in error.problem
    assert not list((tmp_path / "raw").glob("*"))


def test_every_line_is_kept_or_counted_by_reason(prepare, tiny, caplog):
    held_out = tiny.pairs[-1][0]
    lines = ["Ein Baum ruht.", "", "\u200b", "Ein  Baum ruht.", held_out, held_out.upper() + "!", "Kein Hund kommt."]
    lines += ["1 2 3 4 5", "a b c d e f g", "Kein Hund kommt.", "Der Mann bleibt."]
    with caplog.at_level("INFO", logger="continuum"):
        content, kept = prepare(lines, clean=CLEAN)
    filters = [
        record.getMessage().split(":")[0] for record in caplog.records if "lines left out" in record.getMessage()
    ]
    assert filters == ["length", "letters"]
    assert kept == ["Ein Baum ruht.", "Kein Hund kommt.", "Der Mann bleibt."]
    # An empty line has no word, and one of no width no letter: the filters come first.
    assert content["dropped"] == {"cleaning": 4, "held_out": 2, "repeated": 2}
    assert content["read"] == len(lines) == content["lines"] + sum(content["dropped"].values())
    assert [sum(step["dropped"].values()) for step in content["cleaning"]] == [2, 2]
    plain, every = prepare(lines)
    assert plain["dropped"] == {"empty": 2, "held_out": 2, "repeated": 2} and len(every) == 5
    assert plain["cleaning"] == []


def test_a_limit_counts_lines_that_are_kept(prepare):
    lines = [f"Baum {number % 70}" for number in range(100)]
    content, kept = prepare(lines, limit=20)
    assert kept == lines[:20] and content["dropped"] == {"limit": 80}
    content, kept = prepare(lines, limit=80)
    assert kept == lines[:70] and Counter(content["dropped"]) == {"repeated": 30}


def test_a_text_of_which_nothing_is_left_is_refused(prepare, tiny):
    with pytest.raises(ArtifactError) as refused:
        prepare(["", tiny.pairs[-1][0]])
    assert refused.value.path.endswith("monolingual.de") and "1 empty, 1 in dev or test" in refused.value.problem


def test_the_teacher_translates_it_as_it_does_the_training_source(prepare, tiny, systems, run_stage, tmp_path):
    """Lines that are in the training source get the translations that they have there."""
    words = ["--settings", '{"beam": 2}', "--model", str(systems["transformer"]), "--subwords", str(tiny.folder)]
    words += ["--device", "cpu", "--engine", "eager", "--shard", "0", "--shards", "1"]
    _, kept = prepare([source for source, _ in tiny.pairs[:20:2]])
    texts = {"train": tiny.corpus / "train.de", "monolingual": tmp_path / "corpus/monolingual.de"}
    outputs = {}
    for name, source in texts.items():
        run_stage("distill", [*words, "--source", str(source), "--output", str(tmp_path / f"{name}.jsonl")])
        outputs[name] = [json.loads(line)["text"] for line in (tmp_path / f"{name}.jsonl").open(encoding="utf-8")]
    assert len(kept) == 10 and outputs["monolingual"] == outputs["train"][:20:2]
