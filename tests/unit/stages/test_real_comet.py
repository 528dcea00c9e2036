"""COMET itself, on a miniature checkpoint with random weights.

Runs where CONTINUUM_COMET_PYTHON names the Python of an environment that has the packages of envs/comet.yaml.
"""

import inspect
import json
import os
import subprocess
from pathlib import Path

import fake_comet
import pytest

from workflow_src.records.atomic import read_json
from workflow_src.records.documents import JobDocument
from workflow_src.spec import sentence_key
from workflow_src.stages import score_sentences

PYTHON = os.environ.get("CONTINUUM_COMET_PYTHON")
SCRIPT = Path(__file__).resolve().parents[2] / "real_comet.py"
SOURCES = ["der hund", "", "eine alte katze schläft im haus", "x"]
HYPOTHESES = ["a dog", "a", "an old cat sleeps sleeps in the house", ""]
REFERENCES = ["the dog", "b", "an old cat is asleep at home", "y"]
pytestmark = pytest.mark.skipif(not PYTHON, reason="CONTINUUM_COMET_PYTHON names no Python that has unbabel-comet")


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> dict:
    """A checkpoint, and COMET's output for it and the sentences, with and without the repeated word."""
    folder = tmp_path_factory.mktemp("comet") / "miniature"
    lines = [*zip(SOURCES, HYPOTHESES, REFERENCES, strict=True)]
    lines.append((SOURCES[2], "an old cat sleeps in the house", REFERENCES[2]))
    command = [str(PYTHON), str(SCRIPT), str(folder), "1"]
    process = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    comet_output = json.loads(process.stdout.splitlines()[-1])
    return {"checkpoint": folder / "checkpoints/model.ckpt", "lines": lines, **comet_output}


def test_figures_are_those_that_comet_computes_sentence_by_sentence(real, tmp_path):
    details = [json.dumps({"without_repeated_subwords": line}) for line in HYPOTHESES]
    texts = {"hypotheses": HYPOTHESES, "details": details, "source": SOURCES, "reference": REFERENCES}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    inputs = score_sentences.Inputs(
        metric="comet",
        settings={"checkpoint": str(real["checkpoint"])},
        pythons={"comet": str(PYTHON)},
        cache=tmp_path / "cache",
        scoring_batch=3,
        output=tmp_path / "test.json",
        device="cpu",
        **{name: tmp_path / name for name in texts},
    )
    score_sentences.run(inputs)
    content = read_json(inputs.output)
    expected = {sentence_key(*line): figure for line, figure in zip(real["lines"], real["figures"], strict=True)}
    assert len({round(figure, 4) for figure in expected.values()}) == 5
    assert content["figures"] == {key: pytest.approx(figure, abs=1e-5) for key, figure in expected.items()}
    assert content["provenance"]["program"]["versions"]["unbabel-comet"] in content["signature"]
    # As under Conda, where the stage itself runs in COMET's environment; all figures are known.
    again = inputs.model_copy(update={"output": tmp_path / "again.json"}).model_dump(mode="json")
    document = JobDocument(tmp_path / "jobs", again)
    document.write()
    command = [str(PYTHON), "-m", "workflow_src.stages.score_sentences", "--job", str(document.path)]
    environment = os.environ | {"PYTHONPATH": str(SCRIPT.parents[1])}
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert (
        "0 sentences scored" in process.stderr and read_json(tmp_path / "again.json")["figures"] == content["figures"]
    )


def test_the_stand_in_takes_the_same_arguments(real):
    functions: dict = {}
    exec(fake_comet.COMET, functions)
    stand_ins = (functions["load_from_checkpoint"], functions["download_model"], functions["CometModel"].predict)
    assert {function.__name__: list(inspect.signature(function).parameters) for function in stand_ins} == real[
        "arguments"
    ]
