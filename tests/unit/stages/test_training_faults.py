"""A whole training stage in real processes, stopped and killed: the same bits in the end."""

import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from stage_server import python_module
from stage_words import stage_line

from workflow_src.records.atomic import load_tensors

PROJECT = Path(__file__).resolve().parents[3]


class Job:
    """A training stage in a process of its own, one thread, that logs every update."""

    def __init__(self, words):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
        line = stage_line("train", [*words, "--log-every", "1"], Path(tempfile.mkdtemp()))
        command = [*python_module("workflow_src.stages.train"), *line]
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


@pytest.fixture
def one_thread():
    """As `Job` runs stages: the number of threads changes the order of sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_stopped_or_killed_training_goes_on_and_ends_with_the_same_bits(
    training_words, run_stage, one_thread, tmp_path
):
    """Stopped, its exit code is 75, and the log says where the state is; killed, it goes on from the newest one."""
    short = {"max_steps": 140, "save_every": 20, "validate_every": 35}
    words = training_words("lvm", tmp_path / "out", **short)
    last = 0
    for number, step in ((signal.SIGTERM, 10), (signal.SIGUSR1, 25)):
        job = Job(words)
        assert job.until(step)
        assert job.end(number) == 75, job.log
        assert resumed_at(job) == last
        match = re.search(rf"{number.name}[^\d\n]+(\d+)[^\d\n]+(\d+)", job.log)
        last = int(match[1])
        assert last == int(match[2]) >= step and not (tmp_path / "out/model.safetensors").exists()
    job = Job(words)
    assert job.until(last + 30)
    assert job.end(signal.SIGKILL) == -signal.SIGKILL and not (tmp_path / "out/model.safetensors").exists()
    saved = max(int(path.stem.split("-")[1]) for path in (tmp_path / "out/state").glob("*/step-*.json"))
    assert saved % 20 == 0 and saved > last
    job = Job(words)
    assert job.end() == 0 and resumed_at(job) == saved, job.log
    run_stage("train", training_words("lvm", tmp_path / "straight", **short))
    assert same(tmp_path / "out", tmp_path / "straight")
