"""Example sentences: deterministic choice, all steps, errors."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_words import start_stage
from titles import DELTA, SCORE

from workflow_src.config.resolved import Decode
from workflow_src.evaluation.analyses.inputs import count_changes, pick
from workflow_src.serving.translator import Translator
from workflow_src.stages import analyse

SETTINGS = {
    "examples": 2,
    "searches": [
        {"system": "score", "search": "score", "steps": 4, "step_size": 5.0},
        {"system": "lvm", "search": "delta", "steps": 2},
    ],
    "teacher": {"system": "teacher", "name": "beam-4", "search": "beam", "beam": 4, "max_length_ratio": 2.0},
}


@pytest.fixture
def run(tiny, tiny_bundles, tmp_path):
    """Runs the stage on the dev set of the miniature corpus with these systems' bundles; returns what it wrote."""
    folders = {"teacher": tiny_bundles["transformer"], **tiny_bundles}

    def start(settings, *systems, reference="dev.reference.en"):
        words = ["--settings", json.dumps(settings), "--bundles", *(f"{name}={folders[name]}" for name in systems)]
        words += ["--source", str(tiny.corpus / "dev.de"), "--reference", str(tiny.corpus / reference)]
        words += ["--output", str(tmp_path / "traces.json"), "--device", "cpu", "--threads", "1"]
        start_stage(analyse, words)
        return json.loads((tmp_path / "traces.json").read_text(encoding="utf-8"))

    return start


def test_keeps_every_step_of_the_sentences_that_change_most(run, tiny, tiny_bundles):
    analysis = run(SETTINGS, "teacher", "lvm", "score")
    lines, references = ((tiny.corpus / name).read_text().splitlines() for name in ("dev.de", "dev.reference.en"))
    opened = {name: Translator.load(folder, device="cpu", threads=1) for name, folder in tiny_bundles.items()}
    traces = {
        DELTA: opened["lvm"].trace(lines, opened["lvm"].request("delta", normalised=True, steps=2)),
        SCORE: opened["score"].trace(lines, opened["score"].request("score", normalised=True, steps=4, step_size=5.0)),
    }
    by_teacher = opened["transformer"].translate(lines, "beam", normalised=True, beam=4, max_length_ratio=2.0)
    assert len(analysis["examples"]) == 2 and analysis["pool"] == 8
    for example in analysis["examples"]:
        row = example["index"]
        assert example["source"] == lines[row] and example["reference"] == references[row]
        assert example["teacher"] == by_teacher[row]
        assert example["searches"] == {name: trace[row] for name, trace in traces.items()} and "beside" not in example
    by_search = [[count_changes(trace[row][0], trace[row][-1]) for row in range(8)] for trace in traces.values()]
    changes = list(map(sum, zip(*by_search, strict=True)))
    assert (
        sorted((changes[example["index"]] for example in analysis["examples"]), reverse=True) == sorted(changes)[:-3:-1]
    )
    # Otherwise any two sentences would do, or those of the search that is listed first.
    assert len(set(changes)) > 1 and pick([traces[SCORE]], 2) != pick(list(traces.values()), 2)


def test_sources_are_shown_as_text(tiny, tiny_bundles, tmp_path):
    bundle = shutil.copytree(tiny_bundles["lvm"], tmp_path / "bundle")
    description = json.loads((bundle / "bundle.json").read_text())
    description["normalisation"]["moses_tokenise"] = True
    (bundle / "bundle.json").write_text(json.dumps(description))
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    (tmp_path / "dev.de").write_text("".join(f"{line} ￭.\n" for line in lines))
    settings = {"examples": 2, "searches": [{"system": "lvm", "search": "delta", "steps": 2}], "teacher": None}
    words = ["--settings", json.dumps(settings), "--bundles", f"lvm={bundle}", "--device", "cpu"]
    words += ["--source", str(tmp_path / "dev.de"), "--reference", str(tiny.corpus / "dev.reference.en")]
    start_stage(analyse, [*words, "--output", str(tmp_path / "traces.json")])
    examples = json.loads((tmp_path / "traces.json").read_text())["examples"]
    assert [example["source"] for example in examples] == [f"{lines[example['index']]}." for example in examples] != []


def test_without_refinement_the_sentences_are_those_that_systems_translate_most_differently(run, tiny, tiny_bundles):
    moved = {"system": "score", "search": "score", "steps": 4, "step_size": 5.0}
    settings = {"examples": 3, "searches": [], "teacher": {"system": "lvm", "search": "prior-mean"}}
    settings["beside"] = [moved, {"system": "lvm", "search": "delta", "steps": 2}]
    analysis = run(settings, "lvm", "score")
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    opened = {name: Translator.load(tiny_bundles[name], device="cpu", threads=1) for name in ("score", "lvm")}
    first = opened["lvm"].translate(lines, "prior-mean", normalised=True)
    others = [
        opened["score"].translate(lines, "score", normalised=True, steps=4, step_size=5.0),
        opened["lvm"].translate(lines, "delta", normalised=True, steps=2),
    ]
    changes = [sum(count_changes(first[row], other[row]) for other in others) for row in range(8)]
    places = [example["index"] for example in analysis["examples"]]
    assert [changes[place] for place in places] == sorted(changes, reverse=True)[:3] and len(set(changes)) > 1
    for example in analysis["examples"]:
        assert (example["source"], example["teacher"]) == (lines[example["index"]], first[example["index"]])
        assert example["searches"] == {}
        beside = zip((f"score {SCORE}", f"lvm {DELTA}"), others, strict=True)
        assert example["beside"] == {name: other[example["index"]] for name, other in beside}


def test_without_refinement_or_teacher_there_are_no_examples(run):
    assert run({"examples": 2, "searches": [], "teacher": None}, "lvm")["examples"] == []


@given(st.lists(st.lists(st.sampled_from(["a", "b"]), min_size=2, max_size=2).map(lambda s: [s, s[::-1]]), max_size=5))
def test_pick_is_a_sorted_prefix(pairs):
    traces = [[[" ".join(before), " ".join(after)] for before, after in pairs]]
    all_picked = pick(traces, len(pairs))
    assert sorted(all_picked) == list(range(len(pairs)))
    assert pick(traces, 2) == all_picked[:2]
    changed = [pairs[index][0] != pairs[index][1] for index in all_picked]
    assert changed == sorted(changed, reverse=True)
    assert [i for i in all_picked if pairs[i][0] == pairs[i][1]] == sorted(
        i for i in all_picked if pairs[i][0] == pairs[i][1]
    )


def labels(entries):
    decodes = list(map(Decode.model_validate, entries))
    return [analyse.label(decode, decodes) for decode in decodes]


def test_systems_that_share_a_search_are_distinguished():
    entries = [{"system": s, "search": "delta"} for s in ("lvm", "lvm-raw")] + [{"system": "score", "search": "score"}]
    assert labels(entries) == [f"lvm {DELTA}", f"lvm-raw {DELTA}", SCORE]


def test_settings_that_analyses_keep_distinguish_entries_of_one_system():
    entries = [{"system": "cmlm", "search": "mask-predict", "iterations": 4, "length_beam": n} for n in (1, 2)]
    assert labels(entries) == ["cmlm mask-predict, length beam 1", "cmlm mask-predict, length beam 2"]


def test_bad_input_is_one_sentence(run, tiny, capsys):
    with pytest.raises(SystemExit):
        run(SETTINGS, "teacher", "lvm")
    assert 'system "score"' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(SETTINGS, "teacher", "lvm", "score", reference="train.en")
    assert "dev.de has 8" in capsys.readouterr().err
