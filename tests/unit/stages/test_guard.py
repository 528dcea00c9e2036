"""Jobs and the process that started them: real processes, really killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
JOB = """
import argparse, sys, time
from workflow_src.artifacts import atomic
from workflow_src.stages import command

def run(given):
    with atomic(sys.argv[1]) as file:
        file.write("a part")
        print("writing", flush=True)
        time.sleep(60)

made = argparse.ArgumentParser()
made.add_argument("--log")
command.start(run, made, [])
"""


@pytest.fixture
def job(tmp_path):
    def start(process: int | None) -> subprocess.Popen:
        environment = {k: v for k, v in os.environ.items() if k != "CONTINUUM_WORKFLOW_PROCESS"}
        environment |= {"CONTINUUM_WORKFLOW_PROCESS": str(process)} if process else {}
        command = [sys.executable, "-c", JOB, str(tmp_path / "out.txt")]
        running = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert running.stdout.readline() == "writing\n"
        return running

    return start


def test_a_job_ends_when_its_workflow_was_killed(job, tmp_path):
    workflow = subprocess.Popen(["sleep", "60"])
    running = job(workflow.pid)
    time.sleep(0.5)
    assert running.poll() is None and list(tmp_path.iterdir())
    workflow.send_signal(signal.SIGKILL)
    workflow.wait()
    _, told = running.communicate(timeout=20)
    assert running.returncode == 143 and "Snakemake, which started this job, has ended" in told
    assert "Traceback" not in told and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("process", [None, 2**22 + 1], ids=["none", "one that is not there"])
def test_a_terminated_job_leaves_nothing_half_written(job, tmp_path, process):
    running = job(process)
    assert running.poll() is None and [path.suffix for path in tmp_path.iterdir()] == [".partial"]
    running.terminate()
    _, told = running.communicate(timeout=20)
    assert (running.returncode, told) == (143, "terminated\n") and list(tmp_path.iterdir()) == []
