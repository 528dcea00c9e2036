"""Whole training stages in real processes, killed, stopped, and started from damaged states: the same bits in the end.

Those marked long inject many faults; with CONTINUUM_FAULT_COUNTS=FILE.json in the environment, `pytest -m long` writes
how many of each were injected and survived.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from stage_server import python_module
from stage_words import stage_line

from workflow_src.records.atomic import load_tensors, write_json

PROJECT = Path(__file__).resolve().parents[3]
FAMILIES = ("transformer", "lvm", "score")
LONG = {"max_steps": 240, "save_every": 7, "validate_every": 60}


@pytest.fixture(scope="module")
def counted():
    """`counted(fault, survived)`: one more fault; the file is written when all tests here are done."""
    counts: dict[str, dict[str, int]] = {}

    def count(fault, survived=True):
        entry = counts.setdefault(fault, {"injected": 0, "survived": 0})
        entry["injected"] += 1
        entry["survived"] += bool(survived)

    yield count
    if os.environ.get("CONTINUUM_FAULT_COUNTS") and counts:
        write_json(os.environ["CONTINUUM_FAULT_COUNTS"], counts)


class Job:
    """A training stage in a process of its own, one thread, that logs every update."""

    def __init__(self, family, words, script=None, **environment):
        program = [sys.executable, "-c", script] if script else python_module("workflow_src.stages.train")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT), **environment}
        line = stage_line("train", [*words, "--log-every", "1"], Path(tempfile.mkdtemp()))
        command = [*program, *line]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []

    def until(self, step):
        """Read its output until it has done this update; False when it ends before."""
        for line in self.process.stderr:
            self.lines.append(line)
            update = re.match(r"\S+, seed \d+\] step (\d+)/", line)
            if update and int(update[1]) >= step:
                return True
        return False

    def end(self, number=None):
        """Send a signal, if any, and wait; returns the exit code."""
        if number is not None:
            self.process.send_signal(number)
        _, output = self.process.communicate(timeout=200)
        self.lines += output.splitlines(keepends=True)
        return self.process.returncode

    @property
    def log(self):
        return "".join(self.lines)


def resumed_at(job):
    match = re.search(r"resumed\D+(\d+)", job.log)
    return int(match[1]) if match else 0


def same(one: Path, other: Path) -> bool:
    """Equal weights, bit for bit, and equal histories but for times."""
    weights = [load_tensors(folder / "model.safetensors") for folder in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    histories = [
        [
            {k: v for k, v in json.loads(line).items() if k not in ("minutes", "tokens_per_second")}
            for line in (folder / "training.jsonl").read_text().splitlines()
        ]
        for folder in (one, other)
    ]
    return histories[0] == histories[1] and all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.fixture(scope="module")
def words_of(systems, training_words):
    """Words of a family's training in a folder."""

    def make(family, folder, **options):
        return training_words(family, folder, base=systems["lvm"] if family == "score" else None, **LONG | options)

    return make


@pytest.fixture(scope="module")
def straight(words_of, tmp_path_factory):
    """Folder of a family's training that nothing disturbed."""
    folders = {}

    def train(family):
        if family not in folders:
            folders[family] = tmp_path_factory.mktemp(f"straight-{family}")
            assert Job(family, words_of(family, folders[family])).end() == 0
        return folders[family]

    return train


@pytest.fixture
def one_thread():
    """As `Job` runs stages: the number of threads changes the order of sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_stopped_or_killed_training_goes_on_and_ends_with_the_same_bits(words_of, run_stage, one_thread, tmp_path):
    """Stopped, its exit code is 75, and the log says where the state is; killed, it goes on from the newest one."""
    short = {"max_steps": 140, "save_every": 20, "validate_every": 35}
    words = words_of("lvm", tmp_path / "out", **short)
    last = 0
    for number, step in ((signal.SIGTERM, 10), (signal.SIGUSR1, 25)):
        job = Job("lvm", words)
        assert job.until(step)
        assert job.end(number) == 75, job.log
        assert resumed_at(job) == last
        match = re.search(rf"{number.name}[^\d\n]+(\d+)[^\d\n]+(\d+)", job.log)
        last = int(match[1])
        assert last == int(match[2]) >= step and not (tmp_path / "out/model.safetensors").exists()
    job = Job("lvm", words)
    assert job.until(last + 30)
    assert job.end(signal.SIGKILL) == -signal.SIGKILL and not (tmp_path / "out/model.safetensors").exists()
    saved = max(int(path.stem.split("-")[1]) for path in (tmp_path / "out/state").glob("*/step-*.json"))
    assert saved % 20 == 0 and saved > last
    job = Job("lvm", words)
    assert job.end() == 0 and resumed_at(job) == saved, job.log
    run_stage("train", words_of("lvm", tmp_path / "straight", **short))
    assert same(tmp_path / "out", tmp_path / "straight")


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_killed_ten_times_in_a_row(family, words_of, straight, counted, tmp_path):
    """SIGKILL at random updates; every start goes on from the newest state."""
    words, chance = words_of(family, tmp_path), random.Random(family)
    for number in range(10):
        job = Job(family, words)
        at = (number * 22) + chance.randrange(1, 20)
        assert job.until(at), job.log
        assert job.end(signal.SIGKILL) == -signal.SIGKILL
        states = sorted(int(path.stem.split("-")[1]) for path in (tmp_path / "state").glob("*/step-*.json"))
        # Nothing that was saved is lost: at most the updates since the last state.
        assert not states or states[-1] >= at - at % LONG["save_every"] - LONG["save_every"]
    last = Job(family, words)
    assert last.end() == 0 and resumed_at(last) > 150, last.log
    equal = same(tmp_path, straight(family))
    for _ in range(10):
        counted(f"SIGKILL of {family} at a random update", equal)
    assert equal


KILLED_WHILE_WRITING = """
import os, signal, sys

from workflow_src import jobs

# The process is killed at the AT-th of these moments, all of them while a state is written.
moments = iter(range(1, 10**9))

def deadly(call):
    def fatal_call(*words):
        if next(moments) == int(os.environ["AT"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*words)
    return fatal_call

from workflow_src.stages import train as stage
from workflow_src.training import state
plain = state.StateFolder.save

def save(self, *words):
    before = os.fsync, os.replace, os.unlink
    os.fsync, os.replace, os.unlink = map(deadly, before)
    try:
        plain(self, *words)
    finally:
        os.fsync, os.replace, os.unlink = before

state.StateFolder.save = save
jobs.start(stage.run, stage.Inputs)
"""


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_killed_while_a_state_is_written(family, words_of, straight, counted, tmp_path):
    """SIGKILL before a file is flushed, before it gets its name, and before old states are removed."""
    words = words_of(family, tmp_path)
    chance = random.Random(family)
    # A save without old states has 4 moments, one with them 6: 1 to 6 hit every moment of the first two.
    moments = [1, 2, 3, 4, 5, 6, *(chance.randrange(7, 20) for _ in range(6))]
    for at in moments:
        job = Job(family, words, KILLED_WHILE_WRITING, AT=str(at))
        assert job.end() == -signal.SIGKILL, job.log
        assert "cannot be used" not in job.log
    last = Job(family, words)
    assert last.end() == 0, last.log
    assert not list((tmp_path / "state").glob("*/.*.partial"))
    equal = same(tmp_path, straight(family))
    for _ in moments:
        counted(f"SIGKILL of {family} while a state is written", equal)
    assert equal


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 16
    path.write_bytes(content)


DAMAGES = {"truncated": truncate, "one bit flipped": flip, "empty": lambda path: path.write_bytes(b"")}


@pytest.mark.long
@pytest.mark.parametrize("ending", ["safetensors", "json"])
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("all_of_them", [False, True], ids=["newest", "all"])
def test_damaged_states(how, ending, all_of_them, words_of, straight, counted, tmp_path):
    """The older one serves, with a warning, or training starts anew; what it then makes is the same."""
    family = "lvm"
    words = words_of(family, tmp_path)
    job = Job(family, words)
    assert job.until(100)
    job.end(signal.SIGKILL)
    states = sorted((tmp_path / "state").glob(f"*/step-*.{ending}"))
    assert len(states) == 2
    older = int(states[0].stem.split("-")[1])
    for path in states if all_of_them else states[1:]:
        DAMAGES[how](path)
    last = Job(family, words)
    assert last.end() == 0, last.log
    assert last.log.count("cannot be used (") == len(states if all_of_them else states[1:])
    assert resumed_at(last) == (0 if all_of_them else older)
    equal = same(tmp_path, straight(family))
    counted(f"{'all states' if all_of_them else 'the newest state'} {how}", equal)
    assert equal
