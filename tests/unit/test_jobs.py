"""Command lines of jobs: inputs as typed objects, and what is wrong with them in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pydantic import Field

from workflow_src import jobs
from workflow_src.errors import ArtifactError
from workflow_src.runtime import console
from workflow_src.spec import Frozen


class Settings(Frozen):
    max_length: int
    names: dict[str, str] = {}


class Inputs(jobs.DeviceJobInputs):
    settings: Settings = Field(description="the longest sentence")
    source: Path
    output_folder: Path | None = Field(None, description="where files go")
    roles: dict[str, Path] = Field({}, description="weights by role")
    limits: dict[str, int] = {}
    shards: tuple[Path, ...] = ()
    compile: bool = False
    every: int | Literal["auto"] = "auto"


WORDS = ["--settings", '{"max_length": 5}', "--source", "a.de"]


def test_words_become_typed_fields():
    words = [*WORDS, "--roles", "critic=a/b=c.safetensors", "rescorer=d", "--shards", "1", "2", "--output-folder", "o"]
    words += ["--limits", "batch=8", "chunk=-1"]
    inputs = jobs.parse_options(Inputs, [*words, "--compile", "True", "--every", "7", "--threads", "2", "--log", "x"])
    assert inputs == Inputs(
        settings=Settings(max_length=5),
        source=Path("a.de"),
        output_folder=Path("o"),
        roles={"critic": Path("a/b=c.safetensors"), "rescorer": Path("d")},
        limits={"batch": 8, "chunk": -1},
        shards=(Path("1"), Path("2")),
        compile=True,
        every=7,
        machine=jobs.Machine(threads=2),
        log=Path("x"),
    )


def test_defaults_and_lists_without_an_entry():
    inputs = jobs.parse_options(Inputs, [*WORDS, "--shards", "--roles", "--limits"])
    assert inputs == Inputs(settings=Settings(max_length=5), source=Path("a.de"))
    assert (inputs.machine.device, inputs.every, inputs.compile) == ("auto", "auto", False)


def test_settings_are_recorded_as_they_were_written():
    raw = {"max_length": 5, "names": {"b": "x", "a": "y"}}
    for content in (raw, {"max_length": 5}):
        inputs = jobs.parse_options(Inputs, ["--settings", json.dumps(content), "--source", "a"])
        assert jobs.recorded(inputs.settings) == content


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--settings", "{"], "--settings is no JSON"),
        (["--settings", '{"max_length": true}'], "max_length"),
        (["--settings", '{"max_length": 5, "longest": 4}'], "longest"),
        (["--roles", "critic"], '"critic" is not of the form NAME=PATH'),
        (["--roles", "=file"], '"=file"'),
        (["--roles", "critic="], '"critic="'),
        (["--roles", "a=b", "a=c"], "a comes twice, as b and as c"),
        (["--limits", "abc"], '"abc" is not of the form NAME=NUMBER'),
        (["--limits", "batch=many"], '"batch=many" has no whole number'),
        (["--limits", "batch=1", "batch=2"], "batch comes twice, as 1 and as 2"),
    ],
)
def test_wrong_values_end_the_job_with_one_sentence_that_the_log_has_too(words, message, tmp_path, capsys):
    log = tmp_path / "logs/job.log"
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, words=[*WORDS, *words, "--log", str(log)])
    error = capsys.readouterr().err
    assert exit_info.value.code == 1 and error.startswith("error: ") and error.count("\n") == 1 and message in error
    assert log.read_text().startswith(error)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threads", "many"], "--threads"),
        (["--precision", "float64"], "float32"),
        (["--longest", "3"], "--longest"),
        (["--compile"], "--compile"),
    ],
)
def test_other_wrong_options_end_it_with_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, words=[*WORDS, *words])
    assert exit_info.value.code == 2 and message in capsys.readouterr().err


def test_the_help_has_every_option_with_its_description(capsys):
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, "Stage x: 50 % of a text.", ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit_info.value.code == 0 and "Stage x: 50 % of a text." in text
    for part in (
        "--settings JSON",
        "the longest sentence",
        "--roles [NAME=PATH ...]",
        "--limits [NAME=NUMBER ...]",
        "--output-folder",
        "--device",
    ):
        assert part in text


def of_input():
    raise ArtifactError("a.de", "has no line", "write one")


def of_a_file():
    Path("nowhere/a.de").read_bytes()


def of_numpy():
    np.zeros(2) + np.zeros(3)


def of_python():
    list(zip([1], [], strict=True))


@pytest.mark.parametrize("fail", [of_input, of_a_file, of_numpy, of_python])
def test_only_errors_of_input_and_of_files_are_a_sentence_without_a_traceback(fail, tmp_path, monkeypatch, capsys):
    """An error that NumPy or Python raises is a fault of the program, of a job as of a command."""
    monkeypatch.chdir(tmp_path)
    users = fail in (of_input, of_a_file)
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: fail(), Inputs, words=WORDS)
    error = capsys.readouterr().err
    assert (exit_info.value.code, "Traceback" in error) == ((1, False) if users else (70, True))
    assert users or f"in {fail.__name__}" in error
    with pytest.raises(SystemExit if users else ValueError), console.command():
        fail()
