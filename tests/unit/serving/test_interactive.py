"""`continuum translate --interactive`: what it shows for a line, and how it ends."""

import io
import os
import pty
import subprocess
import sys

import pytest
from stage_server import python_module

from workflow_src import cli
from workflow_src.serving.translator import Translator

LINE = "der Hund ruht heute"


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """The command on lines of text, in an empty folder: printed lines, and errors."""
    monkeypatch.chdir(tmp_path)

    def run(bundle, text, *words):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        common = ["--bundle", str(bundle), "--interactive", "--device", "cpu", "--engine", "eager"]
        cli.main(["translate", *common, *words])
        assert not list(tmp_path.iterdir())
        captured = capsys.readouterr()
        return captured.out.splitlines(), captured.err

    return run


def shown(rows) -> list[str]:
    return [" ".join(row.split()) for row in rows]


def test_alternatives_have_scores_and_each_line_an_answer(typed, tiny_bundles):
    bundle = tiny_bundles["transformer"]
    rows, errors = typed(bundle, f"{LINE}\n\n  \nBaum".encode(), "--search", "beam", "--beam", "4")
    translator = Translator.load(bundle, device="cpu", engine="eager")
    expected = []
    for translation in translator.translate([LINE, "Baum"], "beam", beam=4, n_best=4):
        expected.append(translation.text)
        expected += [f"{n} {h.score:.4f} {h.text}" for n, h in enumerate(translation.hypotheses, 1)]
    assert shown(rows) == shown(expected) and not errors
    two, _ = typed(bundle, LINE.encode(), "--search", "beam", "--beam", "4", "--n-best", "2")
    assert two == rows[:3]


def test_refined_systems_show_every_step_of_each_sentence(typed, tiny_bundles):
    bundle = tiny_bundles["score"]
    rows, _ = typed(bundle, f"{LINE}. Ein Mann bleibt.\n".encode(), "--search", "score", "--steps", "2")
    translator = Translator.load(bundle, device="cpu", engine="eager")
    request = translator.request("score", steps=2, remove_repetitions="subwords")
    traces = translator.trace([f"{LINE}.", "Ein Mann bleibt."], request)
    assert shown(rows[-6:]) == shown(f"step {step} {text}" for trace in traces for step, text in enumerate(trace))
    assert " ".join(trace[-1] for trace in traces) == rows[0]


def test_unknown_characters_are_named_and_a_broken_line_does_not_end_it(typed, tiny_bundles):
    rows, errors = typed(tiny_bundles["transformer"], b"B\xe4r\nder \xe2\x98\x83\xe2\x98\x83 Hund\n")
    (unknown,) = [row for row in rows if "vocabulary" in row]
    assert unknown.count("\N{SNOWMAN} (lost)") == 1
    (error,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert "UTF-8" in error


def test_lines_end_where_those_of_files_do(typed, tiny_bundles):
    bundle = tiny_bundles["transformer"]
    rows, _ = typed(bundle, b"Hund\rBaum\nHund\r\n", "--search", "beam", "--beam", "4", "--n-best", "1")
    translator = Translator.load(bundle, device="cpu", engine="eager")
    assert rows[::2] == translator.translate(["Hund\rBaum", "Hund"], "beam", beam=4)


@pytest.mark.parametrize(
    "words", [["--input", "x"], ["--output", "x"], ["--scores"], ["--output-format", "jsonl"], ["--n-best", "0"]]
)
def test_options_without_effect_are_refused(typed, tiny_bundles, words):
    with pytest.raises(SystemExit) as stop:
        typed(tiny_bundles["transformer"], b"Baum\n", *words)
    assert words[0].strip("-").replace("-", "_") in str(stop.value.code).replace("-", "_")


def test_a_terminal_has_a_prompt_and_ctrl_d_ends(tiny_bundles, tmp_path):
    words = python_module("workflow_src.cli", "translate", "--bundle", str(tiny_bundles["transformer"]))
    ours, theirs = pty.openpty()
    words += ["--interactive", "--device", "cpu", "--engine", "eager"]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    printed = b""
    for keys in (b"Baum\n", b"\x04"):
        while not printed.endswith(b"> "):
            printed += os.read(ours, 1024)
        os.write(ours, keys)
        printed += b"|"
    assert process.wait(timeout=60) == 0
    os.close(ours)
    assert b"  1  " in printed.split(b"|")[1] and not list(tmp_path.iterdir())


def test_standard_output_without_room_is_one_sentence(tiny_bundles):
    words = python_module("workflow_src.cli", "translate", "--bundle", str(tiny_bundles["transformer"]))
    words += ["--interactive", "--device", "cpu", "--engine", "eager"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(words, input=b"Baum\n", stdout=full, stderr=subprocess.PIPE)
    (error,) = ended.stderr.decode().splitlines()
    assert ended.returncode == 1 and error.startswith("error: standard output ")
