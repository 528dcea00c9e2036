"""A whole run on two pretended GPUs, of every search, with a training that is interrupted and goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pretended_cuda
import pytest
import smoke_check
from conftest import command_and_environment, log_contains, snakemake, wait_for

from workflow_src.config import Plan, load
from workflow_src.config.files import CONFIG_FOLDER, read_yaml
from workflow_src.registry import searches
from workflow_src.serving.translator import Translator

EXPERIMENT = pretended_cuda.FOLDER / "run.yaml"
# An operator may have results of 4 MB: batches of speed stop growing there.
MEMORY = 4 * 2**20

# Systems and searches that have graphs.
GRAPHS = {"ctc": "ctc-greedy", "graph": "graph-path", "lvm": "delta", "masked": "mask-predict", "score": "score"}


def _variables(folder) -> dict[str, str]:
    variables = pretended_cuda.environment(memory=MEMORY)
    return variables | {"CONTINUUM_DEVICE_LOCKS": str(folder / "locks")}


@pytest.mark.runs
@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_a_whole_run_on_two_gpus(tmp_path):
    plan = Plan(load({**read_yaml(CONFIG_FOLDER / "config.yaml"), **read_yaml(EXPERIMENT)}))
    assert {decode.search for decode, _, _ in plan.rows} == set(searches())
    words, variables = ("--cores", "2", "--configfile", str(EXPERIMENT)), _variables(tmp_path)
    # A training with accumulation is stopped, and goes on from its state.
    log = tmp_path / "logs/pretended/train_teacher/teacher/seed-1.log"
    command, environment = command_and_environment("teachers", *words)
    first = subprocess.Popen(command, cwd=tmp_path, env=environment | variables, start_new_session=True)
    wait_for(lambda: log_contains(log, "step 20/"), 300, first)
    os.killpg(first.pid, signal.SIGINT)
    assert first.wait(100) == 1 and not list(tmp_path.glob("results/pretended/systems/teacher/seed-1/*.safetensors"))
    process = snakemake(*words, folder=tmp_path, forked=True, variables=variables, seconds=1500)
    logs = "\n".join(f"{path}: {path.read_text()[-1500:]}" for path in sorted(tmp_path.glob("logs/**/*.log")))
    assert process.returncode == 0, f"{process.stderr[-3000:]}\n{logs[-12000:]}"
    assert 20 <= int(re.search(r"resumed\D+(\d+)", log.read_text())[1]) < 60
    assert smoke_check.problems_of(plan, tmp_path) == []
    protocols, rows = _speed(plan, tmp_path)
    assert {protocol["device_name"] for protocol in protocols} in ({"Pretended GPU 0"}, {"Pretended GPU 1"})
    captured = {decode.name for decode, _, _ in plan.rows if decode.engine == "cuda_graphs"}
    assert len(captured) == 7 and captured <= {row["name"] for row in rows}
    _check_graphs(plan, tmp_path)


def _speed(plan: Plan, folder: Path) -> tuple[list[dict], list[dict]]:
    """Protocols on GPUs, and the rows that were measured there."""
    content = json.loads((folder / plan.files.speed).read_text())["protocols"]
    measured = [entry for entry in content if entry["protocol"]["device"] == "cuda"]
    return [entry["protocol"] for entry in measured], [row for entry in measured for row in entry["rows"]]


def _check_graphs(plan: Plan, folder: Path) -> None:
    """Bundles translate the same with CUDA graphs, where searches have a program."""
    lines = (folder / plan.corpus("test", "source")).read_text().splitlines()[:4]
    for system, search in GRAPHS.items():
        with pretended_cuda.pretended() as machine:
            bundle = folder / "results/pretended/bundles" / system / "seed-1"
            eager, fast = (Translator.load(bundle, "cuda", "float32", engine=engine) for engine in ("eager", "fast"))
            settings = eager.request(search).settings.model_copy(
                update={"stop_threshold": None} if search == "score" else {}
            )
            assert fast.translate(lines, settings) == eager.translate(lines, settings)
            assert machine.counts["graph launches"] > 0
