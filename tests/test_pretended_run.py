"""A whole run on two pretended GPUs, of every search, with a training that is interrupted and goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pretended_cuda
import pytest
import smoke_check
from conftest import command_and_environment, snakemake, told_in, wait_for

from workflow_src.config import Plan, load
from workflow_src.config.compose import CONFIG_FOLDER, read_yaml
from workflow_src.registry import searches

EXPERIMENT = pretended_cuda.FOLDER / "run.yaml"
# An operator may have results of 4 MB: batches of speed stop growing there.
MEMORY = 4 * 2**20


def _variables(folder) -> dict[str, str]:
    variables = pretended_cuda.environment(memory=MEMORY)
    return variables | {"CONTINUUM_DEVICE_LOCKS": str(folder / "locks")}


@pytest.mark.runs
@pytest.mark.slow
def test_a_whole_run_on_two_gpus(tmp_path):
    plan = Plan(load({**read_yaml(CONFIG_FOLDER / "config.yaml"), **read_yaml(EXPERIMENT)}))
    assert {decode.search for decode, _, _ in plan.rows} == set(searches())
    words, variables = ("--cores", "2", "--configfile", str(EXPERIMENT)), _variables(tmp_path)
    # A training with accumulation is stopped, and goes on from its state.
    log = tmp_path / "logs/pretended/train_teacher/teacher-1.log"
    command, environment = command_and_environment("teachers", *words)
    first = subprocess.Popen(command, cwd=tmp_path, env=environment | variables, start_new_session=True)
    wait_for(lambda: told_in(log, "step 20/"), 300, first)
    os.killpg(first.pid, signal.SIGINT)
    assert first.wait(100) == 1 and not list(tmp_path.glob("results/pretended/systems/teacher/seed-1/*.safetensors"))
    done = snakemake(*words, folder=tmp_path, forked=True, variables=variables, seconds=600)
    logs = "\n".join(f"{path}: {path.read_text()[-1500:]}" for path in sorted(tmp_path.glob("logs/**/*.log")))
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{logs[-12000:]}"
    assert 20 <= int(re.search(r"resumed at step (\d+)", log.read_text())[1]) < 60
    assert smoke_check.problems_of(plan, tmp_path) == []
