"""Users without a home folder or a name, and libraries that would report to their makers."""

import getpass
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from workflow_src.runtime import environment

PROJECT = Path(__file__).resolve().parents[3]
NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
SET = ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "TRITON_HOME", "NUMBA_CACHE_DIR", "CONTINUUM_CACHE")
# As in a container whose user has no entry in passwd.
NOBODY = """
import pwd, runpy, sys
def unknown(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = unknown
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """Nobody: no variables, no entry in passwd; returns where temporary files are."""
    for name in (*NAMES, *SET, *environment.NO_TELEMETRY):
        # Set first, so that what `prepare` sets is undone too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def unknown(_):
        raise KeyError("uid not found")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home_caches_go_to_a_folder_of_this_user_alone(nobody, caplog):
    environment.prepare()
    folder = nobody / f"continuum-{os.getuid()}"
    assert os.environ["HOME"] == str(folder) and os.environ["XDG_CACHE_HOME"] == str(folder / ".cache")
    assert Path.home() == folder and getpass.getuser() == f"uid-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [record.getMessage() for record in caplog.records] == [
        f"warning: there is no home folder that can be written; caches are in {folder} (set HOME to choose)"
    ]
    # What this process starts finds all set, and says nothing more.
    environment.prepare()
    assert len(caplog.records) == 1


def test_a_folder_that_others_could_have_written_is_not_used(nobody, tmp_path):
    """Compiled code is read from caches."""
    folder = nobody / f"continuum-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    environment.prepare()
    assert os.environ["HOME"] != str(folder) and Path(os.environ["HOME"]).parent == nobody


def test_a_home_that_can_be_written_is_left_alone(monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    for name in ("XDG_CACHE_HOME", "MPLCONFIGDIR", "TRITON_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    before = dict(os.environ)
    environment.prepare()
    assert not caplog.records and dict(os.environ) == {name: "1" for name in environment.NO_TELEMETRY} | before
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "closed")
    (tmp_path / "closed").mkdir()
    assert environment.writable(tmp_path / "a/b/c") and environment.writable(tmp_path)
    assert not environment.writable(tmp_path / "file/a") and not environment.writable(tmp_path / "closed/a")


def _run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess:
    environ = {
        name: value for name, value in os.environ.items() if name not in (*NAMES, *SET, *environment.NO_TELEMETRY)
    }
    environ |= {"PYTHONPATH": str(PROJECT), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(words, env=environ, capture_output=True, text=True, cwd=folder, timeout=300)


@pytest.mark.graphs
def test_continuum_translates_for_a_user_without_home_and_name_and_reports_to_nobody(tiny_bundles, tmp_path):
    """By a graph, which is kept on disk. ONNX Runtime stores an identifier and connects where nobody asks it not to."""
    pytest.importorskip("onnxruntime", reason="needs the extra fast")
    calls, folder = tmp_path / "calls", tmp_path / f"continuum-{os.getuid()}"
    (tmp_path / "in").write_text("Der Hund.\n", encoding="utf-8")
    words = ["workflow_src.cli", "translate", "--bundle", str(tiny_bundles["lvm"]), "--threads", "1"]
    options = ["--input", str(tmp_path / "in"), "--engine", "fast"]
    traced = ["strace", "--seccomp-bpf", "-f", "-e", "trace=connect", "-o", str(calls)] * bool(shutil.which("strace"))
    done = _run([*traced, sys.executable, "-c", NOBODY, *words, *options], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    # Then it says that it exports the graph, and which characters the small vocabulary lacks.
    assert done.stderr.splitlines()[0] == (
        f"warning: there is no home folder that can be written; caches are in {folder} (set HOME to choose)"
    )
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert files and all(path.is_relative_to(".cache/continuum/graphs") for path in files)
    assert not traced or "AF_INET" not in calls.read_text()
