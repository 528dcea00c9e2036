"""The stage with a stand-in translator: what it writes and what it refuses."""

import json

import pytest

from workflow_src.stages import command, measure_speed

SETTINGS = {
    "speed": {"sentences": 3, "warmup": 1, "repeats": 2, "batch": 2, "threads": 1},
    "rows": [
        {"system": "teacher", "name": "beam-4", "search": "beam", "beam": 4, "length_penalty": 1.0, "batch": 64},
        {"system": "lvm", "name": "prior-mean", "search": "prior-mean", "steps": 0, "step_size": 1.0, "batch": 64},
    ],
}


def _run(tmp_path, text, *bundles):
    source = tmp_path / "test.de"
    source.write_text(text, encoding="utf-8")
    words = ["--settings", json.dumps(SETTINGS), "--bundles", *bundles, "--source", str(source)]
    command.start(measure_speed.run, measure_speed.make_parser(), [*words, "--output", str(tmp_path / "speed.json")])
    return json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))


def test_writes_rows_and_protocol(tmp_path, fake_translator):
    found = _run(tmp_path, "a b\nc\nd\ne\n", "teacher=t", "lvm=l", "unused=u")
    assert [(row["system"], row["name"]) for row in found["rows"]] == [("teacher", "beam-4"), ("lvm", "prior-mean")]
    first = found["rows"][0]
    assert first["speedup"] == 1 and first["latency_ms"] > 0 and first["sentences_per_second"] > 0
    protocol = found["protocol"]
    assert protocol["sentences"] == 3 and protocol["device"] == "cpu" and protocol["precision"] == "float32"
    assert len(protocol["other_load_cores"]) == SETTINGS["speed"]["repeats"]
    assert "torch" in found["provenance"]["versions"]


@pytest.mark.parametrize(
    ("text", "bundle", "message"),
    [
        ("a\n", "teacher", '--bundles has "teacher"; write SYSTEM=FOLDER'),
        ("a\n", "teacher=t", 'needs the bundle of system "lvm"; given: teacher'),
        ("", "teacher=t", "no sentences to measure speed with"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, fake_translator, capsys, text, bundle, message):
    with pytest.raises(SystemExit) as left:
        _run(tmp_path, text, bundle)
    assert left.value.code == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "speed.json").exists()
