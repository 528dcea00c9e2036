"""Which files are read and written: names are kept, and nothing of the user's is overwritten."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from refusals import fields_of

from workflow_src.data.lines import STANDARD_INPUT
from workflow_src.errors import InputError
from workflow_src.serving.files import inputs_and_outputs


@pytest.fixture
def texts(tmp_path):
    for name in ("a.txt", "in/b.txt", "in/deep/c.txt", "in/.hidden", "in/.git/x", "other/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_a_file_or_standard_input_has_one_output(texts):
    assert inputs_and_outputs([], None) == [(STANDARD_INPUT, None)]
    assert inputs_and_outputs([], Path("x")) == [(STANDARD_INPUT, Path("x"))]
    assert inputs_and_outputs([texts / "a.txt"], None) == [(texts / "a.txt", None)]
    # An unreadable file is an error only when it is read.
    assert inputs_and_outputs([Path("none")], texts / "x") == [(Path("none"), texts / "x")]


def test_one_file_keeps_its_name_in_a_folder(texts):
    assert inputs_and_outputs([texts / "a.txt"], texts / "empty") == [(texts / "a.txt", texts / "empty/a.txt")]


def test_files_of_a_folder_keep_their_paths(texts):
    out = texts / "out"
    assert inputs_and_outputs([texts / "a.txt", texts / "in"], out) == [
        (texts / "a.txt", out / "a.txt"),
        (texts / "in/b.txt", out / "b.txt"),
        (texts / "in/deep/c.txt", out / "deep/c.txt"),
    ]
    assert not out.exists()


@pytest.mark.parametrize(
    ("inputs", "output", "fields"),
    [
        (["in"], None, {"setting": "--output"}),
        (["a.txt", "other/a.txt"], "out", {"setting": "--input", "value": "{root}/other/a.txt"}),
        (["in"], "in", {"subject": "{root}/in/b.txt"}),
        (["a.txt"], ".", {"subject": "{root}/a.txt"}),
        (["none"], "empty", {"subject": "{root}/none"}),
        (["in"], "in/out", {"subject": "{root}/in/out"}),
        (["empty"], "out", {"subject": "{root}/empty"}),
        (["a.txt", "none"], "out", {"subject": "{root}/none"}),
        (["in", "other/a.txt"], "taken", {"subject": "{root}/taken/a.txt"}),
        (["a.txt"], "linked.txt", {"subject": "{root}/linked.txt"}),
        (["a.txt"], "second_name.txt", {"subject": "{root}/second_name.txt"}),
        (["in"], "names", {"subject": "{root}/names/b.txt"}),
        (["loop"], "out", {"subject": "{root}/loop/in/back"}),
        (["broken"], "out", {"subject": "{root}/broken/gone.txt"}),
    ],
)
def test_what_clashes_is_refused(texts, inputs, output, fields):
    (texts / "taken/a.txt").mkdir(parents=True)
    (texts / "linked.txt").symlink_to("a.txt")
    (texts / "second_name.txt").hardlink_to(texts / "a.txt")
    (texts / "names").mkdir()
    (texts / "names/b.txt").hardlink_to(texts / "in/b.txt")
    (texts / "loop/in").mkdir(parents=True)
    (texts / "loop/in/back").symlink_to("..")
    (texts / "broken").mkdir()
    (texts / "broken/gone.txt").symlink_to("nowhere.txt")
    fields = {name: value.format(root=texts) for name, value in fields.items()}
    with pytest.raises(InputError) as caught:
        inputs_and_outputs([texts / name for name in inputs], texts / output if output else None)
    assert fields_of(caught.value, fields) == fields


def test_a_file_of_another_format_is_refused_before_any_text_is_translated(texts):
    packed = texts / "in/deep/z.txt"
    packed.write_bytes(gzip.compress(b"x\n"))
    with pytest.raises(InputError) as refused:
        inputs_and_outputs([texts / "in"], texts / "out")
    assert str(packed) in str(refused.value) and "gzip" in str(refused.value)


def test_linked_folders_of_a_folder_are_translated(texts):
    (texts / "in/linked").symlink_to("../other")
    out = texts / "out"
    assert inputs_and_outputs([texts / "in"], out) == [
        (texts / "in/b.txt", out / "b.txt"),
        (texts / "in/deep/c.txt", out / "deep/c.txt"),
        (texts / "in/linked/a.txt", out / "linked/a.txt"),
    ]


def test_a_folder_that_cannot_be_read_is_no_empty_folder(texts, monkeypatch):
    # Root may read every folder.
    def closed(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(InputError) as caught:
        inputs_and_outputs([texts / "in"], texts / "out")
    assert caught.value.subject == str(texts / "in")


def test_standard_input_from_the_file_to_write_is_refused(texts, monkeypatch):
    with open(texts / "a.txt") as file:
        monkeypatch.setattr("sys.stdin", file)
        with pytest.raises(InputError) as caught:
            inputs_and_outputs([], texts / "a.txt")
        assert caught.value.subject == str(texts / "a.txt")
        assert inputs_and_outputs([], texts / "new") == [(STANDARD_INPUT, texts / "new")]
