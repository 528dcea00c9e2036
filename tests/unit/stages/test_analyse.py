"""Example sentences: deterministic choice, all steps, errors."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src import jobs
from workflow_src.evaluation.analyses.changes import pick
from workflow_src.stages import analyse

SETTINGS = {
    "examples": 2,
    "searches": [{"system": "lvm", "search": "delta", "steps": 2}, {"system": "score", "search": "score", "steps": 4}],
    "teacher": {
        "system": "teacher",
        "name": "beam-4",
        "search": "beam",
        "beam": 4,
        "max_length_ratio": 2.0,
    },
}


def _run(tmp_path, settings, *bundles, references="r\ns\nt\n"):
    (tmp_path / "test.de").write_text("x\nx y z\nx y z\n", encoding="utf-8")
    (tmp_path / "test.en").write_text(references, encoding="utf-8")
    words = ["--settings", json.dumps(settings), "--bundles", *bundles, "--source", str(tmp_path / "test.de")]
    words += ["--reference", str(tmp_path / "test.en"), "--output", str(tmp_path / "traces.json")]
    jobs.start(analyse.run, analyse.make_parser(), words)
    return json.loads((tmp_path / "traces.json").read_text(encoding="utf-8"))


def test_keeps_every_step_of_the_sentences_that_change_most(tmp_path, fake_translator):
    found = _run(tmp_path, SETTINGS, "teacher=t", "lvm=l", "score=s")
    assert [example["index"] for example in found["examples"]] == [1, 2]
    first = found["examples"][0]
    assert first["source"] == "x y z" and first["reference"] == "s" and first["teacher"] == "beam 4: x y z"
    assert first["searches"]["delta"] == ["x y z", "X y z", "X Y z"]
    assert first["searches"]["score"] == ["x y z", "X y z", "X Y z", "X Y Z", "X Y Z"]


def test_without_refinement_or_teacher_there_are_no_examples(tmp_path, fake_translator):
    assert _run(tmp_path, {"examples": 2, "searches": [], "teacher": None}, "lvm=l")["examples"] == []


@given(st.lists(st.lists(st.sampled_from(["a", "b"]), min_size=2, max_size=2).map(lambda s: [s, s[::-1]]), max_size=5))
def test_pick_is_a_sorted_prefix(pairs):
    traces = [[[" ".join(before), " ".join(after)] for before, after in pairs]]
    full = pick(traces, len(pairs))
    assert sorted(full) == list(range(len(pairs)))
    assert pick(traces, 2) == full[:2]
    changed = [pairs[index][0] != pairs[index][1] for index in full]
    assert changed == sorted(changed, reverse=True)
    assert [i for i in full if pairs[i][0] == pairs[i][1]] == sorted(i for i in full if pairs[i][0] == pairs[i][1])


def test_systems_that_share_a_search_are_told_apart():
    entries = [{"system": s, "search": "delta"} for s in ("lvm", "lvm-raw")] + [{"system": "score", "search": "score"}]
    assert [analyse.label(entry, entries) for entry in entries] == ["lvm delta", "lvm-raw delta", "score"]


def test_bad_input_is_one_sentence(tmp_path, fake_translator, capsys):
    with pytest.raises(SystemExit):
        _run(tmp_path, SETTINGS, "teacher=t", "lvm=l")
    assert 'no folder for system "score"' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        _run(tmp_path, SETTINGS, "teacher=t", "lvm=l", "score=s", references="r\n")
    assert "test.de has 3" in capsys.readouterr().err
