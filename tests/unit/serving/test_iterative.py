"""A system with two decoders from training to translation: started from a teacher, exported, served, traced."""

from __future__ import annotations

import json

import pytest

from workflow_src import cli
from workflow_src.records.atomic import load_tensors, read_json
from workflow_src.serving.translator import Translator

LINES = ["der Hund ruht heute", "", "kein Vogel kommt dort noch heute", "Baum"]
SEARCH = "iterative-refinement"


@pytest.fixture(scope="module")
def folders(training_words, export_words, run_stage, tmp_path_factory):
    """Folders of a teacher and of a system that starts from it, and the system's bundle."""
    root = tmp_path_factory.mktemp("made")
    run_stage("train", training_words("transformer", root / "teacher", max_steps=2, validate_every=2))
    initial = root / "teacher" / "model.safetensors"
    run_stage("train", training_words("inat", root / "inat", initial=initial))
    run_stage("export_bundle", export_words(root / "inat" / "model.safetensors", None, root / "bundle"))
    return root


@pytest.fixture(scope="module")
def translator(folders):
    return Translator.load(folders / "bundle", device="cpu", threads=1, engine="eager")


def test_training_starts_from_the_teacher_and_logs_what_it_measures(folders, training_words, run_stage, tmp_path):
    logged = [json.loads(line) for line in (folders / "inat/training.jsonl").read_text().splitlines()]
    figures = {name for line in logged for name in line}
    assert {"nll", "nll_first", "nll_last", "length_nll", "dev_loss", "dev_loss_first", "dev_bleu"} <= figures
    untrained = {"max_steps": 1, "learning_rate": 1e-12, "warmup_steps": 0, "validate_every": 1}
    words = training_words("inat", tmp_path, initial=folders / "teacher/model.safetensors", **untrained)
    run_stage("train", words)
    weights, teacher = (load_tensors(folder / "model.safetensors") for folder in (tmp_path, folders / "teacher"))
    for name, tensor in teacher.items():
        for mine in {name, name.replace("decoder.", "refiner.", 1)}:
            assert weights[mine].allclose(tensor, atol=1e-6), mine


def test_a_bundle_translates_in_python_and_as_a_command(folders, translator, capfd):
    assert read_json(folders / "bundle/bundle.json")["searches"] == [SEARCH, "argmax"]
    first_pass = translator.translate(LINES, search=SEARCH, passes=1, remove_repetitions="none")
    assert first_pass == translator.translate(LINES, search="argmax", remove_repetitions="none") and first_pass[1] == ""
    eight = translator.translate(LINES, search=SEARCH, passes=8)
    assert eight == [translator.translate([line], search=SEARCH, passes=8)[0] for line in LINES]
    text = folders / "lines.de"
    text.write_text("".join(f"{line}\n" for line in LINES))
    words = ["--bundle", str(folders / "bundle"), "--search", SEARCH, "--passes", "8", "--device", "cpu"]
    words += ["--input", str(text)]
    cli.main(["translate", *words, "--engine", "eager"])
    assert capfd.readouterr().out.splitlines() == eight
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["translate", *words, "--stop", "sometimes"])
    assert str(exit_info.value.code).endswith("stop is 'sometimes'; allowed: adaptive, fixed.")


@pytest.mark.parametrize("stop", ["fixed", "adaptive"])
def test_a_trace_begins_with_the_first_pass(translator, stop):
    traces = translator.trace(LINES, translator.request(SEARCH, passes=3, stop=stop))
    assert all(len(texts) == 3 for texts in traces)
    for number in range(3):
        request = translator.request(SEARCH, passes=number + 1, stop=stop, remove_repetitions="none", split=False)
        expected = translator.translate(LINES, request)
        assert [texts[number] for texts in traces] == expected
    assert translator.trace(["", ""], translator.request(SEARCH, passes=3, stop=stop)) == [["", "", ""]] * 2
