"""Snakemake itself killed, and started twice: real processes, a real training, and what the next start does."""

from __future__ import annotations

import re
import shutil
import signal

import psutil
import pytest
from conftest import PROJECT, snakemake, snakemake_started, told_in, wait_for

SMOKE = str(PROJECT / "config/experiments/smoke.yaml")
WORDS = ("teachers", "--cores", "1", "--configfile", SMOKE)
LOG = "logs/smoke/train_teacher/teacher-1.log"
DATA = ("results/smoke/raw", "results/smoke/corpus", "results/smoke/subwords", "results/smoke/encoded")


@pytest.mark.slow
def test_snakemake_killed_and_started_twice(tmp_path, smoke_run):
    # The data are there, with what Snakemake keeps of the jobs that made them.
    for name in (*DATA, ".snakemake/metadata"):
        shutil.copytree(smoke_run / name, tmp_path / name)
    running = snakemake_started(*WORDS, folder=tmp_path)
    log = tmp_path / LOG
    try:
        # The state of step 100 is saved, the training goes on.
        wait_for(lambda: told_in(log, "step 100  validation"), 200, running)
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
    # Whoever starts a second one in the folder is refused, and told which folder and what to do.
    assert second.returncode == 1 and str(tmp_path) in second.stderr and "--unlock" in second.stderr
    assert "Traceback" not in second.stderr and "cannot be locked" in second.stderr
    # Jobs end with their Snakemake: by themselves they would write what the next start's jobs write.
    assert jobs
    gone, alive = psutil.wait_procs(jobs, timeout=30)
    assert not alive and told_in(log, "Snakemake, which started this job, has ended")
    assert not list(tmp_path.glob("results/**/*.partial")) and not list(tmp_path.glob("work/**/*.partial"))
    assert not (tmp_path / "results/smoke/systems/teacher/seed-1/model.safetensors").exists()
    # As documented: unlock, then start again.
    assert snakemake(*WORDS, folder=tmp_path, forked=True).returncode == 1
    assert snakemake(*WORDS, "--unlock", folder=tmp_path, forked=True).returncode == 0
    done = snakemake(*WORDS, "--rerun-incomplete", folder=tmp_path, forked=True)
    assert done.returncode == 0, done.stderr
    # What was saved at step 100, or when the job was told to end.
    assert 100 <= int(re.search(r"resumed at step (\d+)", log.read_text())[1]) < 200
    weights = "results/smoke/systems/teacher/seed-1/model.safetensors"
    assert (tmp_path / weights).read_bytes() == (smoke_run / weights).read_bytes()
    # Nothing but the training ran.
    assert {path.name for path in (tmp_path / "logs/smoke").iterdir()} == {"train_teacher"}
