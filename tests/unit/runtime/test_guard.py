"""Jobs and the process that started them: real processes, really killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workflow_src.runtime import guard

PROJECT = Path(__file__).resolve().parents[3]
JOB = """
import sys, time
from workflow_src.records.atomic import atomic
from workflow_src import jobs

def run(inputs):
    with atomic(sys.argv[1]) as file:
        file.write("a part")
        print("writing", flush=True)
        # Not in one call: Python handles a signal that comes just before it when the call returns.
        for _ in range(600):
            time.sleep(0.1)

jobs.start(run, jobs.JobInputs, words=["--job", sys.argv[2]])
"""


@pytest.fixture
def start(tmp_path):
    def start(identity: str | None) -> subprocess.Popen:
        environment = {k: v for k, v in os.environ.items() if k != guard.VARIABLE}
        environment |= {guard.VARIABLE: identity} if identity else {}
        job = tmp_path.with_suffix(".json")
        job.write_text("{}")
        command = [sys.executable, "-c", JOB, str(tmp_path / "out.txt"), str(job)]
        return subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


@pytest.fixture
def job(start):
    """A job that has begun to write."""

    def begun(identity: str | None) -> subprocess.Popen:
        running = start(identity)
        assert running.stdout.readline() == "writing\n"
        return running

    return begun


def ended_identity() -> str:
    """What a process was called that has ended."""
    process = subprocess.Popen(["sleep", "60"])
    identity = guard.identity(process.pid)
    process.kill()
    process.wait()
    return identity


def of_another_machine(process: int) -> str:
    machine, number, started = guard.identity(process).split(":")
    return f"{machine[::-1]}:{number}:{started}"


def test_a_job_ends_when_its_workflow_was_killed(job, tmp_path):
    workflow = subprocess.Popen(["sleep", "60"])
    running = job(guard.identity(workflow.pid))
    time.sleep(0.5)
    assert running.poll() is None and list(tmp_path.iterdir())
    workflow.send_signal(signal.SIGKILL)
    workflow.wait()
    _, stderr = running.communicate(timeout=20)
    assert running.returncode == 143 and "Snakemake, which started this job, has ended" in stderr
    assert "Traceback" not in stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", ["free", "taken again"])
def test_a_job_whose_workflow_was_killed_before_it_looked_does_not_begin(start, tmp_path, number):
    identity = ended_identity()
    if number == "taken again":
        # The number is this process's by now.
        machine, _, started = identity.split(":")
        identity = f"{machine}:{os.getpid()}:{int(started) - 10**6}"
    out, stderr = start(identity).communicate(timeout=20)
    assert out == "" and "Snakemake" in stderr and "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_another_machine_says_nothing(job):
    sleeper = subprocess.Popen(["sleep", "60"])
    running = job(of_another_machine(sleeper.pid))
    sleeper.kill()
    sleeper.wait()
    time.sleep(0.5)
    assert running.poll() is None
    running.kill()
    running.communicate()


ORPHAN = """
import os, signal, sys, time
from workflow_src.runtime import guard

signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"told"), os._exit(0)))
reading, writing = os.pipe()
if os.fork():
    # Killed as soon as the other one watches.
    os.read(reading, 1)
    os.kill(os.getpid(), signal.SIGKILL)
guard.watch()
os.write(writing, b"x")
for _ in range(int(sys.argv[1])):
    time.sleep(0.1)
os.write(1, b"alone")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no handles of processes")
@pytest.mark.parametrize(("processes", "tenths", "said"), [("2", 300, "told"), ("1", 10, "alone")])
def test_one_of_several_processes_ends_with_torchrun(processes, tenths, said):
    """Snakemake may live on. A job of one process does not ask who started it."""
    environment = {k: v for k, v in os.environ.items() if k != guard.VARIABLE}
    environment |= {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": processes, "PYTHONPATH": str(PROJECT)}
    words = [sys.executable, "-c", ORPHAN, str(tenths)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_terminated_job_leaves_nothing_half_written(job, tmp_path, number):
    running = job(None)
    assert running.poll() is None and [path.suffix for path in tmp_path.iterdir()] == [".partial"]
    running.send_signal(number)
    _, stderr = running.communicate(timeout=20)
    assert (running.returncode, stderr) == (128 + number, "terminated\n") and list(tmp_path.iterdir()) == []


def test_a_job_goes_on_where_nobody_may_look_at_processes_of_others(monkeypatch):
    identity = guard.identity()
    ended = []
    monkeypatch.setenv(guard.VARIABLE, identity)
    monkeypatch.setattr(guard, "_end", lambda name: ended.append(name))
    monkeypatch.setattr(guard, "_follow", lambda name, handle: os.close(handle))
    monkeypatch.setattr(guard, "identity", lambda process=None: "")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    guard.watch()
    for number, handler in zip((signal.SIGTERM, signal.SIGUSR1), before, strict=True):
        signal.signal(number, handler)
    assert not ended


def test_a_process_is_distinguished_from_all_others():
    own_identity, parent = guard.identity(), guard.identity(os.getppid())
    assert own_identity == guard.identity(os.getpid()) and own_identity != parent
    assert own_identity.split(":")[0] == parent.split(":")[0] and own_identity.count(":") == 2


CLEANING = """
import sys, time
from pathlib import Path
from workflow_src import jobs

def run(inputs):
    try:
        print("writing", flush=True)
        time.sleep(60)
    finally:
        print("cleaning", flush=True)
        for _ in range(10):
            time.sleep(0.1)
        Path(sys.argv[1]).touch()

jobs.start(run, jobs.JobInputs, words=["--job", sys.argv[2]])
"""


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_interrupt_the_clean_up(first, tmp_path):
    """A group of processes and Snakemake may both send one."""
    (tmp_path / "job.json").write_text("{}")
    words = [sys.executable, "-c", CLEANING, str(tmp_path / "clean"), str(tmp_path / "job.json")]
    running = subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "writing\n"
    running.send_signal(first)
    assert running.stdout.readline() == "cleaning\n"
    running.send_signal(signal.SIGTERM)
    _, stderr = running.communicate(timeout=20)
    assert (running.returncode, (tmp_path / "clean").exists()) == (143 if first == signal.SIGTERM else 130, True), (
        stderr
    )
