import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import fields_of

from workflow_src.data.lines import check_parallel, count_lines, read_lines, read_lines_and_pauses
from workflow_src.errors import ArtifactError, InputError

PROJECT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        # Unicode's own line separators are text here, or two files would cease to be aligned.
        ("a\u2028b\x85c\x0cd\n".encode(), ["a\u2028b\x85c\x0cd"]),
        ("größer\n😀".encode(), ["größer", "😀"]),
    ],
)
def test_reads_and_counts_the_same_lines(tmp_path, content, lines):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert list(read_lines(path)) == lines
    assert count_lines(path) == len(lines)


def test_names_file_line_and_byte_of_what_is_not_utf8(tmp_path):
    path = tmp_path / "latin"
    path.write_bytes("äh\nso\nGr".encode() + b"\xfc\xdfe\n")
    reader = read_lines(path)
    assert [next(reader), next(reader)] == ["äh", "so"]
    # 4 bytes of the first line, 3 of the second, 2 before the wrong one.
    with pytest.raises(ArtifactError) as refused:
        next(reader)
    fields = {"path": str(path), "line": 3, "mentions": ("UTF-8", "byte 10 ", " 0xfc")}
    assert fields_of(refused.value, fields) == fields


def test_parallel_texts(tmp_path):
    source, target, empty = tmp_path / "s", tmp_path / "t", tmp_path / "e"
    source.write_text("a\nb\n")
    target.write_text("A\nB")
    empty.write_text("")
    assert check_parallel(source, target) == 2
    target.write_text("A\nB\nC\n")
    with pytest.raises(InputError, match=rf"{source} has 2 lines, and {target} has 3"):
        check_parallel(source, target)
    with pytest.raises(InputError, match=f"{empty} is empty"):
        check_parallel(source, empty)
    for read in (lambda path: list(read_lines(path)), count_lines):
        with pytest.raises(InputError, match=r"nothing .*exist"):
            read(tmp_path / "nothing")


# The lines of standard input, after they were counted where that is possible.
READER = """
import sys
from workflow_src.data.lines import STANDARD_INPUT, count_lines, read_lines

print(count_lines(STANDARD_INPUT) if "count" in sys.argv else "", *read_lines(STANDARD_INPUT))
"""


def standard_input_lines(stdin, *words: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", READER, *words], stdin=stdin, cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def test_standard_input_is_read_from_where_it_is_whatever_it_is(tmp_path):
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"eins\nzwei\n")
        here.shutdown(socket.SHUT_WR)
        assert standard_input_lines(there) == "eins zwei"
    path = tmp_path / "text"
    path.write_bytes(b"head\neins\nzwei\n")
    with open(path, "rb", buffering=0) as file:
        file.seek(5)
        assert standard_input_lines(file, "count") == "2 eins zwei"


def test_a_line_that_has_not_arrived_is_a_pause():
    read, write = os.pipe()
    os.write(write, b"one\ntwo\nhal")
    lines = read_lines_and_pauses(f"/dev/fd/{read}")
    assert [next(lines) for _ in range(3)] == ["one", "two", None]
    os.write(write, b"f\n" + b"more\n" * 5000)
    os.close(write)
    assert list(lines) == ["half"] + ["more"] * 5000
    os.close(read)


def test_files_have_no_pauses(tmp_path):
    (tmp_path / "text").write_text("line\n" * 5000 + "last")
    assert list(read_lines_and_pauses(tmp_path / "text")) == ["line"] * 5000 + ["last"]
