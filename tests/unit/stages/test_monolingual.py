"""Text of the source language: every line is kept or counted; translations by the stages of distillation."""

import gzip
import json
from collections import Counter

import pytest
from stage_words import distill_words

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json, write_json

CLEAN = [["length", {"max_words": 6}], ["letters", {}]]


@pytest.fixture
def prepare(tiny, run_stage, tmp_path):
    """`prepare(lines, limit, clean)`: the counts and lines that clean and normalise leave of a text."""

    def run(lines, limit=None, clean=()):
        raw, cleaned, summary = (tmp_path / f"{name}/monolingual.json" for name in ("raw", "clean", "corpus"))
        raw.parent.mkdir(exist_ok=True)
        raw.with_suffix(".de").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        counts = {"pairs": {"monolingual": len(lines)}, "dropped": {"monolingual": {}}, "places": {}}
        write_json(raw, {"dataset": "mine", "languages": ["de"]} | counts)
        if clean:
            settings = json.dumps({"languages": ["de"], "clean": clean})
            run_stage("clean", ["--settings", settings, "--raw", str(raw), "--summary", str(cleaned)])
            assert [path.name for path in sorted(cleaned.parent.iterdir())] == ["monolingual.de", "monolingual.json"]
        content = {"languages": ["de"], "normalisation": tiny.normalisation}
        settings = json.dumps(content | ({"limits": {"monolingual": limit}} if limit else {}))
        words = ["--settings", settings, "--raw", str(cleaned if clean else raw), "--summary", str(summary)]
        run_stage("normalise", [*words, "--held-out", str(tiny.corpus / "dev.de")])
        assert [path.name for path in sorted(summary.parent.iterdir())] == ["monolingual.de", "monolingual.json"]
        kept = summary.with_suffix(".de").read_text(encoding="utf-8").splitlines()
        content = read_json(summary)
        for name in ("pairs", "read", "dropped"):
            assert content[name].keys() == {"monolingual"}
            content[name] = content[name]["monolingual"]
        return content, kept

    return run


def download(texts, folder):
    settings = {"name": "mine", "languages": ["de", "en"], "monolingual": [{"texts": {"de": text}} for text in texts]}
    return ["--settings", json.dumps(settings), "--languages", "de", "--summary", str(folder / "raw/monolingual.json")]


def test_texts_are_read_one_after_the_other(run_stage, tmp_path):
    (tmp_path / "a.de").write_text("  eins \n\nzwei\n", encoding="utf-8")
    with gzip.open(tmp_path / "b.gz", "wt", encoding="utf-8") as file:
        file.write("drei\n")
    names = [str(tmp_path / "a.de"), str(tmp_path / "b.gz")]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train.scores").write_text("of the pairs\n")
    run_stage("download", download(names, tmp_path))
    assert (tmp_path / "raw/monolingual.de").read_text(encoding="utf-8") == "eins\n\nzwei\ndrei\n"
    names_of_files = sorted(path.name for path in (tmp_path / "raw").iterdir())
    assert names_of_files == ["monolingual.de", "monolingual.json", "train.scores"]
    record = read_json(tmp_path / "raw/monolingual.json")
    assert (record["languages"], record["pairs"], record["places"]) == (["de"], {"monolingual": 4}, {})
    # A text that came short is seen.
    assert record["texts"] == {names[0]: 3, names[1]: 1}
    (tmp_path / "dev.de").write_text("fünf\n", encoding="utf-8")
    source = tmp_path / "raw/monolingual.json"
    for stage, rules in (("clean", {"clean": [["length", {}]]}), ("normalise", {"normalisation": {}})):
        words = ["--settings", json.dumps({"languages": ["de"]} | rules), "--raw", str(source)]
        source = tmp_path / stage / "monolingual.json"
        held_out = ["--held-out", str(tmp_path / "dev.de")] if stage == "normalise" else []
        run_stage(stage, [*words, *held_out, "--summary", str(source)])
        assert read_json(source)["texts"] == record["texts"]
    assert {entry["path"] for entry in record["provenance"]["inputs"].values()} == set(names)


@pytest.mark.parametrize(
    ("parts", "setting"),
    [
        ({"monolingual": [{"texts": {"de": ["a.de", "b.de"]}}]}, "settings.monolingual[0].texts.de"),
        ({}, "settings.train"),
        ({"kind": "folder", "folder_hint": "both texts"}, "settings.train"),
    ],
)
def test_parts_that_give_no_text_in_one_language_are_refused(refused, tmp_path, parts, setting):
    words = ["--settings", json.dumps({"name": "mine", "languages": ["de", "en"]} | parts), "--languages", "de"]
    error = refused("download", [*words, "--summary", str(tmp_path / "raw/monolingual.json")])
    assert error.setting == setting and not (tmp_path / "raw").exists()


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
    assert content["provenance"]["inputs"].keys() == {"monolingual.de", "dev.de"}
    assert content["read"] == len(lines) == content["pairs"] + sum(content["dropped"].values())
    assert [sum(step["dropped"].values()) for step in content["cleaning"]] == [2, 2]
    plain, every = prepare(lines)
    assert plain["dropped"] == {"empty": 2, "held_out": 2, "repeated": 2} and len(every) == 5
    assert "cleaning" not in plain


def test_filters_judge_a_line_by_its_own_language(run_stage, tmp_path):
    raw, summary = tmp_path / "raw/monolingual.json", tmp_path / "clean/monolingual.json"
    raw.parent.mkdir()
    raw.with_suffix(".ru").write_text("Собака спит.\nThe dog sleeps.\n", encoding="utf-8")
    write_json(raw, {"languages": ["ru"], "pairs": {"monolingual": 2}, "dropped": {"monolingual": {}}, "places": {}})
    settings = json.dumps({"languages": ["ru"], "clean": [["script", {}]]})
    run_stage("clean", ["--settings", settings, "--raw", str(raw), "--summary", str(summary)])
    assert summary.with_suffix(".ru").read_text(encoding="utf-8") == "Собака спит.\n"


def test_a_limit_counts_lines_that_are_kept(prepare):
    lines = [f"Baum {number % 70}" for number in range(100)]
    content, kept = prepare(lines, limit=20)
    assert kept == lines[:20] and content["dropped"] == {"limit": 80}
    content, kept = prepare(lines, limit=80)
    assert kept == lines[:70] and Counter(content["dropped"]) == {"repeated": 30}


def test_a_repaired_line_is_written_once(prepare):
    content, kept = prepare(["f\u00c3\u00bcnf Hunde", "Kein Hund"], clean=[["garbled", {}]])
    assert kept == ["f\u00fcnf Hunde", "Kein Hund"]
    assert content["cleaning"][0]["repaired"] == 1 and content["words"] == {"monolingual": {"de": 4}}


def test_a_text_of_which_nothing_is_left_is_refused(prepare, tiny):
    with pytest.raises(ArtifactError) as refused:
        prepare(["", tiny.pairs[-1][0]])
    assert refused.value.path.endswith("monolingual.de") and "1 empty, 1 in dev or test" in refused.value.problem


def test_the_teacher_translates_it_as_it_does_the_training_source(prepare, tiny, systems, run_stage, tmp_path):
    """Lines that are in the training source get the translations that they have there."""
    _, kept = prepare([source for source, _ in tiny.pairs[:20:2]])
    texts = {"train": tiny.corpus / "train.de", "monolingual": tmp_path / "corpus/monolingual.de"}
    outputs = {}
    for name, source in texts.items():
        output = tmp_path / f"{name}.jsonl"
        run_stage("distill", distill_words(systems["transformer"], tiny.folder, source, output, engine="eager"))
        outputs[name] = [json.loads(line)["text"] for line in (tmp_path / f"{name}.jsonl").open(encoding="utf-8")]
    assert len(kept) == 10 and outputs["monolingual"] == outputs["train"][:20:2]
