"""A translator that threads share, and one in a forked child, give what one thread gets."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from threads import in_threads

from workflow_src.engines.eager import EagerSession
from workflow_src.registry import engines
from workflow_src.serving.translator import Translator
from workflow_src.types import Hypotheses

PROJECT = Path(__file__).resolve().parents[3]
CALLS = 25
# Every thread has its own line; all have equally many subwords, so that shapes are equal.
LINES = [
    "der Hund ruht heute dort",
    "ein Vogel kommt noch dort",
    "kein Baum bleibt heute noch",
    "der Mann kommt dort heute",
]
# The bundle, options of `Translator.load`, and options of calls. Captured programs have a test beside them.
KINDS = {
    "transformer": ("transformer", {"engine": "eager"}, {"search": "beam", "beam": 3}),
    "lvm": ("lvm", {"engine": "eager"}, {"search": "delta", "steps": 2}),
    "energy": ("energy", {"engine": "eager"}, {"search": "energy", "steps": 2}),
    "ctranslate2": ("ctranslate2", {}, {"search": "beam", "beam": 3}),
}
ONNXRUNTIME = ("lvm", {"engine": "fast"}, {"search": "delta", "steps": 2})


@pytest.fixture(scope="module")
def folders(tiny_bundles, run_stage, tmp_path_factory):
    folders = dict(tiny_bundles)
    if importlib.util.find_spec("ctranslate2"):
        folders["ctranslate2"] = tmp_path_factory.mktemp("ctranslate2") / "export"
        words = ["--settings", "{}", "--engine", "ctranslate2", "--bundle", str(tiny_bundles["transformer"])]
        run_stage("export_engine", [*words, "--output-folder", str(folders["ctranslate2"])])
    return folders


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTINUUM_CACHE", str(folder))
        yield folder


def needs(kind: str) -> None:
    for package in engines()[kind].packages if kind in engines() else ():
        pytest.importorskip(package, reason="needs the extra fast")


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("kind", [*KINDS, pytest.param("onnxruntime", marks=pytest.mark.graphs)])
def test_threads_share_a_translator(kind, folders):
    needs(kind)
    family, options, settings = KINDS.get(kind, ONNXRUNTIME)
    alone, shared = (Translator.load(folders[family], device="cpu", threads=1, **options) for _ in range(2))
    expected = [alone.translate([line], **settings) for line in LINES]
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(CALLS):
            try:
                # The first calls of all threads open, or export, the same graph.
                translations = shared.translate([LINES[number]], **settings)
                timings = shared.last_timings
                if translations != expected[number] or not all(timings.values()):
                    wrong.append((translations, expected[number], timings))
            except Exception as error:
                wrong.append(error)

    in_threads(work, len(LINES))
    assert wrong == []


def test_batches_whose_operators_share_the_threads_are_computed_one_after_the_other(tiny_bundles, monkeypatch):
    """Whatever the engine beside our own code is, which has as many threads."""
    before = torch.get_num_threads()
    callers = []

    def compute(session: EagerSession, *arguments: Any) -> Hypotheses:
        callers.append(threading.get_ident())
        return eager_compute(session, *arguments)

    eager_compute = EagerSession.compute
    monkeypatch.setattr(EagerSession, "compute", compute)
    try:
        translator = Translator.load(tiny_bundles["transformer"], device="cpu", threads=2)
        translator.translate(LINES, batch=1, split=False)
    finally:
        torch.set_num_threads(before)
    assert callers == [threading.get_ident()] * len(LINES)


# A child writes its translations to a pipe, and ends as a process of a server does. It has the parent's PyTorch, whose
# pool of threads has worked.
FORKED = """
import os, signal, sys
import torch
from workflow_src import Translator

torch.set_num_threads(2)
torch.randn(512, 512) @ torch.randn(512, 512)
lines = ["der Hund ruht heute dort", "", "ein Vogel kommt. Kein Baum bleibt."] * 8
for folder, engine in [word.rsplit("=", 1) for word in sys.argv[1:]]:
    translator = Translator.load(folder, device="cpu", threads=2, engine=engine)
    expected = translator.translate(lines)
    read, write = os.pipe()
    if not (child := os.fork()):
        # A child that waits for ever is ended by a signal.
        signal.alarm(60)
        translations = translator.translate(lines)
        assert Translator.load(folder, device="cpu", threads=2, engine=engine).translate(lines) == translations
        os.write(write, repr(translations).encode())
        sys.exit(7)
    os.close(write)
    received = b""
    while block := os.read(read, 1 << 16):
        received += block
    status = os.waitpid(child, 0)[1]
    print(received.decode() == repr(expected), os.waitstatus_to_exitcode(status))
    # The parent goes on.
    assert translator.translate(lines) == expected
"""


@pytest.mark.parametrize("kinds", [["eager", "ctranslate2"], pytest.param(["fast"], marks=pytest.mark.graphs)], ids=str)
def test_a_forked_child_translates(kinds, folders, graphs):
    kinds = [kind for kind in kinds if kind == "eager" or "ctranslate2" in folders]
    words = [
        f"{folders['ctranslate2']}=auto" if kind == "ctranslate2" else f"{folders['lvm']}={kind}" for kind in kinds
    ]
    variables = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "CONTINUUM_CACHE": str(graphs)}
    completed = subprocess.run(
        [sys.executable, "-c", FORKED, *words],
        env={**os.environ, **variables, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert completed.stdout.split() == ["True", "7"] * len(kinds), completed.stderr
    # Where PyTorch computes, fewer threads are said once in each process.
    assert completed.stderr.count("forked") == 1
