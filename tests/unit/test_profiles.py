"""Profiles: Snakemake takes their settings, and schedulers are given the words of their manuals."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from conftest import PROJECT, dry_run

FOLDER = PROJECT / "config/profiles"
PROFILES = sorted(path.parent.name for path in FOLDER.glob("*/config.yaml"))


@pytest.fixture(scope="module")
def scheduler():
    found = importlib.util.spec_from_file_location("scheduler", FOLDER / "cluster-generic/scheduler.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("profile", PROFILES)
def test_snakemake_takes_a_profile(profile, tmp_path):
    executor = yaml.safe_load((FOLDER / profile / "config.yaml").read_text()).get("executor")
    plugin = f"snakemake_executor_plugin_{executor.replace('-', '_')}" if executor else "snakemake"
    if find_spec(plugin) is None:
        pytest.skip(f"{plugin} is not installed")
    done = dry_run("--profile", str(FOLDER / profile), "--config", "experiment=smoke", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    # Scripts of a profile are named from wherever it is started.
    for line in (FOLDER / profile / "config.yaml").read_text().splitlines():
        if line.startswith("cluster-generic-") and "-cmd: " in line:
            assert (FOLDER / profile / line.split(": ")[1]).is_file()


JOB = {"rule": "train_lvm", "threads": 4, "resources": {"mem_mb": 8001, "runtime": 90, "gpu": 2}}
SMALL = {"rule": "encode", "threads": 1, "resources": {"mem_mb": 2000, "runtime": 15}}
COMMANDS = {
    "pbs": (
        "qsub -N train_lvm -l select=1:ncpus=4:mem=8001mb:ngpus=2 -l walltime=1:30:00 -j oe -o logs/cluster/ -q long "
        "x.sh",
        "qsub -N encode -l select=1:ncpus=1:mem=2000mb -l walltime=0:15:00 -j oe -o logs/cluster/ -q long x.sh",
    ),
    "lsf": (
        "bsub -J train_lvm -n 4 -R span[hosts=1] rusage[mem=8001MB] -M 8001MB -W 90 -oo logs/cluster/%J.log -gpu num=2 "
        "-q long x.sh",
        "bsub -J encode -n 1 -R span[hosts=1] rusage[mem=2000MB] -M 2000MB -W 15 -oo logs/cluster/%J.log -q long x.sh",
    ),
    "sge": (
        "qsub -terse -N train_lvm -cwd -V -j y -o logs/cluster -pe smp 4 -l h_vmem=2001M,h_rt=1:30:00,gpu=2 -q long "
        "x.sh",
        "qsub -terse -N encode -cwd -V -j y -o logs/cluster -l h_vmem=2000M,h_rt=0:15:00 -q long x.sh",
    ),
    "slurm": (
        "sbatch --parsable --job-name=train_lvm --cpus-per-task=4 --mem=8001 --time=90 --output=logs/cluster/%j.log "
        "--gpus=2 -q long x.sh",
        "sbatch --parsable --job-name=encode --cpus-per-task=1 --mem=2000 --time=15 --output=logs/cluster/%j.log "
        "-q long x.sh",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_job_is_submitted_with_what_it_asks_for(name, scheduler, monkeypatch):
    monkeypatch.setenv("CONTINUUM_SUBMIT", "-q long")
    found = tuple(" ".join(scheduler.submission(name, job, "x.sh")) for job in (JOB, SMALL))
    assert found == COMMANDS[name]


def test_numbers_are_read_from_what_submissions_print(scheduler):
    assert scheduler.number("lsf", "Job <123> is submitted to default queue <normal>.\n") == "123"
    assert scheduler.number("slurm", "123;cluster\n") == "123"
    assert scheduler.number("pbs", "123.server\n") == "123.server"
    assert scheduler.number("kubernetes", "job.batch/continuum-encode-x1\n") == "job.batch/continuum-encode-x1"


LOOKS = {"pbs": "qstat", "lsf": "bjobs", "sge": "qstat", "slurm": "squeue", "kubernetes": "kubectl"}


def program(folder: Path, name: str, content: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{content}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("content", [None, "exec sleep 30", "echo busy >&2; exit 1"], ids=["missing", "slow", "fails"])
@pytest.mark.parametrize("name", LOOKS)
def test_a_look_at_a_job_that_tells_nothing_ends_no_workflow(name, content, scheduler, monkeypatch, tmp_path, capfd):
    if content:
        program(tmp_path, LOOKS[name], content)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if content else str(tmp_path))
    monkeypatch.setattr(scheduler, "PATIENCE", 0.5)
    monkeypatch.setenv("CONTINUUM_SCHEDULER", name)
    scheduler.main("status", ["123"])
    printed = capfd.readouterr()
    assert printed.out == "running\n"
    assert printed.err.splitlines()[-1].startswith("nothing is told of job 123, which is taken to run; docs/clusters")


@pytest.mark.parametrize(
    "name, told, state",
    [
        ("pbs", "Job Id: 123\n    job_state = R", "running"),
        ("pbs", "Job Id: 123\n    job_state = F\n    Exit_status = 0", "success"),
        ("pbs", "Job Id: 123\n    job_state = F\n    Exit_status = 271", "failed"),
        ("lsf", "PEND", "running"),
        ("lsf", "DONE", "success"),
        ("lsf", "EXIT", "failed"),
        ("sge", "job_number: 123", "running"),
        ("slurm", "PENDING", "running"),
        ("slurm", "COMPLETED", "success"),
        ("slurm", "TIMEOUT", "failed"),
        ("kubernetes", "{}", "running"),
        ("kubernetes", '{"status": {"conditions": [{"type": "Complete", "status": "True"}]}}', "success"),
        ("kubernetes", '{"status": {"conditions": [{"type": "Failed", "status": "True"}]}}', "failed"),
    ],
)
def test_states_are_read_from_what_looks_print(name, told, state, scheduler, monkeypatch, tmp_path, capfd):
    program(tmp_path, LOOKS[name], f"cat <<'.'\n{told}\n.")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert (scheduler.state(name, "123"), capfd.readouterr().err) == (state, "")


def test_a_missing_scheduler_is_told_in_one_sentence(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text(f"# properties = {json.dumps(SMALL)}\n")
    environment = {"PATH": str(tmp_path), "CONTINUUM_SCHEDULER": "pbs"}
    command = [sys.executable, str(FOLDER / "cluster-generic/submit"), str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == (
        "qsub cannot be run (No such file or directory); start Snakemake where jobs are submitted from.\n"
    )


def test_the_manifest_of_a_kubernetes_job(scheduler, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="CONTINUUM_IMAGE is not set"):
        scheduler.manifest(JOB, "x.sh")
    monkeypatch.setenv("CONTINUUM_IMAGE", "registry/continuum:1")
    monkeypatch.setenv("CONTINUUM_VOLUME", "claim:/data")
    made = json.loads(json.dumps(scheduler.manifest(JOB, "x.sh")))
    assert made["metadata"]["generateName"] == "continuum-train-lvm-"
    assert made["spec"]["backoffLimit"] == 0 and made["spec"]["activeDeadlineSeconds"] == 5400
    pod = made["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "shared", "persistentVolumeClaim": {"claimName": "claim"}}]
    (container,) = pod["containers"]
    assert container["command"] == ["/bin/sh", str(tmp_path / "x.sh")] and container["workingDir"] == str(tmp_path)
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "8001Mi"}, "limits": {"memory": "8001Mi", "nvidia.com/gpu": "2"}
    }  # fmt: skip
    assert container["volumeMounts"] == [{"name": "shared", "mountPath": "/data"}]
    assert "nvidia.com/gpu" not in str(scheduler.manifest(SMALL, "x.sh"))
