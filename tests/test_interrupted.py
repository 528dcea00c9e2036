"""Snakemake itself killed, interrupted and started twice: real processes, and what the next start does."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import psutil
import pytest
from conftest import PROJECT, command_and_environment, copy_of_run, log_contains, snakemake, snakemake_started, wait_for

SMOKE = str(PROJECT / "config/experiments/smoke.yaml")
WORDS = ("teachers", "--cores", "1", "--configfile", SMOKE)
LOG = "logs/smoke/train_teacher/teacher/seed-1.log"
DATA = ("results/smoke/raw", "results/smoke/corpus", "results/smoke/subwords", "results/smoke/encoded")


@pytest.mark.slow
def test_snakemake_killed_and_started_twice(tmp_path, smoke_run):
    # The data are there, with what Snakemake keeps of the jobs that made them.
    copy_of_run(smoke_run, DATA, tmp_path)
    running = snakemake_started(*WORDS, folder=tmp_path)
    log = tmp_path / LOG
    try:
        # The state of step 100 is saved, the training goes on.
        wait_for(lambda: log_contains(log, "step 100  validation"), 200, running)
        jobs = psutil.Process(running.pid).children(recursive=True)
        # Held meanwhile, so that the training is not over before the second has answered.
        for job in jobs:
            job.suspend()
        second = snakemake(*WORDS, folder=tmp_path, forked=True)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    for job in jobs:
        job.resume()
    # A second run in the folder is refused; the error names the folder and the remedy.
    assert second.returncode == 1 and str(tmp_path) in second.stderr and "--unlock" in second.stderr
    assert "Traceback" not in second.stderr and "cannot be locked" in second.stderr
    # Jobs end with their Snakemake: by themselves they would write what the next start's jobs write.
    assert jobs
    _gone, alive = psutil.wait_procs(jobs, timeout=30)
    assert not alive and log_contains(log, "error: Snakemake")
    assert not list(tmp_path.glob("results/**/*.partial")) and not list(tmp_path.glob("work/**/*.partial"))
    assert not (tmp_path / "results/smoke/systems/teacher/seed-1/model.safetensors").exists()
    # As documented: unlock, then start again.
    assert snakemake(*WORDS, folder=tmp_path, forked=True).returncode == 1
    assert snakemake(*WORDS, "--unlock", folder=tmp_path, forked=True).returncode == 0
    process = snakemake(*WORDS, "--rerun-incomplete", folder=tmp_path, forked=True)
    assert process.returncode == 0, process.stderr
    # From the state of step 100, or that of the moment when the job got the signal.
    assert 100 <= int(re.search(r"resumed\D+(\d+)", log.read_text())[1]) < 200
    weights = "results/smoke/systems/teacher/seed-1/model.safetensors"
    assert (tmp_path / weights).read_bytes() == (smoke_run / weights).read_bytes()
    # Nothing but the training ran.
    assert {path.name for path in (tmp_path / "logs/smoke").iterdir()} == {"train_teacher"}


class Terminal:
    """A command in the foreground of a terminal of its own; `output` is what it has written there."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]):
        self._end, inner = os.openpty()
        self.process = subprocess.Popen(
            words, cwd=folder, env=environment, start_new_session=True, preexec_fn=lambda: os.login_tty(inner)
        )
        os.close(inner)
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # A terminal that all have left is an error to read from.
        with contextlib.suppress(OSError):
            while output := os.read(self._end, 4096):
                self._parts.append(output)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal itself sends SIGINT to all processes in its foreground."""
        os.write(self._end, b"\x03")

    @property
    def output(self) -> str:
        return b"".join(self._parts).decode(errors="replace")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(timeout=10)
        os.close(self._end)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_keeps_what_was_trained(tmp_path, smoke_run):
    """The training saves its state, and the same command gives the weights of an uninterrupted run."""
    copy_of_run(smoke_run, DATA, tmp_path)
    # Nothing but Ctrl-C saves a state.
    words, environment = command_and_environment(
        *WORDS, "--config", "systems={teacher: {training: {save_every: 1000}}}"
    )
    log, weights = tmp_path / LOG, "results/smoke/systems/teacher/seed-1/model.safetensors"
    terminal = Terminal(words, tmp_path, environment)
    try:
        wait_for(lambda: log_contains(log, "step 100/200"), 200, terminal.process)
        jobs = psutil.Process(terminal.process.pid).children(recursive=True)
        assert any("workflow_src.stages.train" in job.cmdline() for job in jobs)
        terminal.interrupt()
        assert terminal.process.wait(timeout=100) == 1, terminal.output
        assert not psutil.wait_procs(jobs, timeout=10)[1]
    finally:
        terminal.close()
    stopped = re.search(r"SIGINT[^\d\n]+(\d+)[^\d\n]+(\d+)[^\n]* work/", log.read_text())
    assert stopped and stopped[1] == stopped[2] and 100 <= int(stopped[1]) < 200, terminal.output
    assert not (tmp_path / weights).exists()
    assert not list(tmp_path.glob("results/**/*.partial")) and not list(tmp_path.glob("work/**/*.partial"))
    # Without --unlock and --rerun-incomplete.
    second_run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert second_run.returncode == 0, second_run.stderr
    assert re.search(rf"resumed\D+{stopped[1]} ", log.read_text())
    assert (tmp_path / weights).read_bytes() == (smoke_run / weights).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_a_snakemake_in_the_background_ends_its_training(number, tmp_path, smoke_run):
    """No terminal sends it to the jobs. The training saves its state; no error of a job is shown."""
    copy_of_run(smoke_run, DATA, tmp_path)
    words, environment = command_and_environment(
        *WORDS, "--config", "systems={teacher: {training: {max_steps: 100000, save_every: 100000}}}"
    )
    log, output = tmp_path / LOG, tmp_path / "output.txt"
    with output.open("w") as file:
        running = subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        wait_for(lambda: log_contains(log, "step 100/100000"), 200, running)
        jobs = psutil.Process(running.pid).children(recursive=True)
        shown_before = len(output.read_text())
        running.send_signal(number)
        assert running.wait(timeout=60) == 1
        assert jobs and not psutil.wait_procs(jobs, timeout=10)[1]
    finally:
        running.kill()
        running.wait()
    stopped = re.search(r"SIGTERM[^\d\n]+(\d+)[^\d\n]+(\d+)[^\n]* work/", log.read_text())
    assert stopped and stopped[1] == stopped[2]
    lines = output.read_text()[shown_before:].splitlines()
    # The training says more where other processes keep it waiting.
    of_training = [line for line in lines if line.startswith("[teacher, seed 1] ")]
    assert ["SIGTERM" in line for line in of_training].count(True) == 1 and "SIGTERM" in of_training[-1]
    of_snakemake = [line for line in lines if line not in of_training]
    assert len(of_snakemake) == 2 and all(number.name in line for line in of_snakemake), lines
    assert lines[-1] == of_snakemake[-1]
