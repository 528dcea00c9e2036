"""Jobs of stages: their documents as typed inputs, their command line, and what is wrong with them in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pydantic import Field
from stage_server import python_module

from workflow_src import jobs
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.documents import JobDocument
from workflow_src.records.provenance import commit, provenance
from workflow_src.runtime import console
from workflow_src.spec import Frozen

PROJECT = Path(__file__).resolve().parents[2]


class Settings(Frozen):
    max_length: int
    names: dict[str, str] = {}


class Inputs(jobs.DeviceJobInputs):
    settings: Settings = Field(description="the longest sentence")
    source: Path
    output_folder: Path | None = Field(None, description="where files go, 50 % of the time")
    roles: dict[str, Path] = Field({}, description="weights by role")
    shards: tuple[Path, ...] = ()
    compile: bool = False
    every: int | Literal["auto"] = "auto"


CONTENT = {"settings": {"max_length": 5}, "source": "a.de"}


@pytest.fixture
def document(tmp_path):
    """Write a document; returns its path."""

    def write(content=CONTENT) -> Path:
        written = JobDocument(tmp_path / "jobs", content)
        written.write()
        return written.path

    return write


def test_a_document_becomes_typed_inputs(document):
    more = {"roles": {"critic": "a/b=c.safetensors"}, "shards": ["1", "2"], "output_folder": "o", "every": 7}
    assert jobs.read_inputs(Inputs, document(CONTENT | more), threads=2) == Inputs(
        settings=Settings(max_length=5),
        source=Path("a.de"),
        output_folder=Path("o"),
        roles={"critic": Path("a/b=c.safetensors")},
        shards=(Path("1"), Path("2")),
        every=7,
        threads=2,
    )
    alone = jobs.read_inputs(Inputs, document())
    assert alone == Inputs(settings=Settings(max_length=5), source=Path("a.de"))
    assert alone.machine == jobs.Machine(device="auto", precision="auto", threads=1)


def test_settings_of_the_machine_come_from_the_document_of_the_run(document):
    """Those of other stages are not this one's; what a job's own document has comes first."""
    run = document({"device": "cpu", "compile": True, "every": 3, "mirrors": ["m"]})
    inputs = jobs.read_inputs(Inputs, document(CONTENT | {"every": 7}), run)
    assert (inputs.device, inputs.compile, inputs.every) == ("cpu", True, 7)
    run.unlink()
    with pytest.raises(ArtifactError, match=run.name):
        jobs.read_inputs(Inputs, document(), run)


def test_a_document_is_named_by_its_content_and_mended_where_it_is_damaged(document, tmp_path):
    path = document()
    assert document(dict(reversed(CONTENT.items()))) == path
    assert document(CONTENT | {"every": 7}) != path
    written = path.stat().st_mtime_ns
    assert document().stat().st_mtime_ns == written
    path.write_text("{")
    assert json.loads(document().read_text()) == CONTENT
    assert sorted(tmp_path.rglob("*.partial")) == []


def test_settings_are_recorded_as_they_were_written(document):
    for settings in ({"max_length": 5, "names": {"b": "x", "a": "y"}}, {"max_length": 5}):
        inputs = jobs.read_inputs(Inputs, document(CONTENT | {"settings": settings}))
        assert jobs.recorded(inputs.settings) == settings


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"settings": {"max_length": True}}, "settings.max_length"),
        ({"settings": {"max_length": 5, "longest": 4}}, "settings.longest"),
        ({"settings": None}, "settings"),
        ({"roles": ["critic"]}, "roles"),
        ({"shards": "x"}, "shards"),
        ({"precision": "float64"}, "precision"),
        ({"longest": 3}, "longest"),
        ({"threads": -3}, "threads"),
    ],
)
def test_a_wrong_field_ends_the_job_with_one_sentence_that_the_log_has_too(change, setting, document, tmp_path, capsys):
    log = tmp_path / "logs/job.log"
    words = ["--job", str(document(CONTENT | change)), "--log", str(log)]
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, words=words)
    error = capsys.readouterr().err
    assert exit_info.value.code == 1 and error.startswith("error: ") and error.count("\n") == 1
    assert isinstance(exit_info.value.__context__, ConfigError) and exit_info.value.__context__.setting == setting
    assert log.read_text().startswith(error)


@pytest.mark.parametrize("name", ["object.json", "list.json", "none.json", ""])
def test_what_is_no_document_is_refused_by_its_name(name, tmp_path, capsys):
    (tmp_path / "object.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    path = tmp_path / name
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, words=["--job", str(path)])
    problem = "" if name else "is a folder"
    assert exit_info.value.code == 1 and capsys.readouterr().err.startswith(f"error: {path} {problem}")


@pytest.mark.parametrize("place", ["", "a.txt/b/job.log"])
def test_a_log_that_cannot_be_written_ends_the_job_with_one_sentence(place, document, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a file")
    log = str(tmp_path / place)
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, words=["--job", str(document()), "--log", log])
    error = capsys.readouterr().err
    assert exit_info.value.code == 1 and error.startswith(f"error: --log is '{log}'") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "--job"), (["--job", "a", "--threads", "many"], "--threads"), (["--job", "a", "--source", "b"], "--source")],
)
def test_wrong_options_end_it_with_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, words=words)
    assert exit_info.value.code == 2 and message in capsys.readouterr().err


def test_the_copy_beside_the_log_repeats_the_job(document, tmp_path):
    seen = []
    log = tmp_path / "logs/train/seed-1.log"
    jobs.start(seen.append, Inputs, words=["--job", str(document()), "--log", str(log), "--threads", "2"])
    copy = log.with_suffix(".json")
    jobs.start(seen.append, Inputs, words=["--job", str(copy), "--log", str(log), "--threads", "2"])
    assert seen[0] == seen[1] and seen[0].threads == 2
    assert json.loads(copy.read_text()) == CONTENT


def test_a_record_names_the_commit_of_the_start_of_the_job(document, tmp_path, monkeypatch):
    """A long training runs the code that it imported, whatever the user checks out meanwhile."""
    at_start = provenance()["commit"]
    commit.cache_clear()
    records = []

    def run(_inputs) -> None:
        # Git has another answer: none.
        monkeypatch.setenv("PATH", str(tmp_path))
        records.append(provenance())

    jobs.start(run, Inputs, words=["--job", str(document())])
    assert records[0]["commit"] == at_start and at_start is not None


def test_the_help_has_every_field_with_its_description(capsys):
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: pytest.fail("it ran"), Inputs, "Stage x: 50 % of a text.", ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit_info.value.code == 0 and "Stage x: 50 % of a text." in text
    for part in (
        "--job",
        "--log",
        "--threads",
        "settings the longest sentence",
        "50 % of the time",
        "device auto, cpu",
    ):
        assert part in text


def test_a_reader_of_the_help_that_closes_the_pipe_is_no_error():
    command = python_module("workflow_src.stages.train", "--help")
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (process.returncode, process.stderr) == (0, "")


def test_the_help_imports_no_torch():
    code = (
        "import sys, workflow_src.stages.train as stage\nfrom workflow_src import jobs\ntry:\n"
        "    jobs.start(stage.run, stage.Inputs, words=['--help'])\n"
        "except SystemExit:\n    assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)


def of_input():
    raise ArtifactError("a.de", "has no line", "write one")


def of_a_file():
    Path("nowhere/a.de").read_bytes()


def of_numpy():
    np.zeros(2) + np.zeros(3)


def of_python():
    list(zip([1], [], strict=True))


@pytest.mark.parametrize("fail", [of_input, of_a_file, of_numpy, of_python])
def test_only_errors_of_input_and_of_files_are_a_sentence_without_a_traceback(
    fail, document, tmp_path, monkeypatch, capsys
):
    """An error that NumPy or Python raises is a fault of the program, of a job as of a command."""
    monkeypatch.chdir(tmp_path)
    users = fail in (of_input, of_a_file)
    with pytest.raises(SystemExit) as exit_info:
        jobs.start(lambda inputs: fail(), Inputs, words=["--job", str(document())])
    error = capsys.readouterr().err
    assert (exit_info.value.code, "Traceback" in error) == ((1, False) if users else (70, True))
    assert users or f"in {fail.__name__}" in error
    with pytest.raises(SystemExit if users else ValueError), console.command():
        fail()
