"""What a scheduler is told to submit, look at and cancel a job: run by `submit`, `status` and `cancel` here.

The environment says which it is, CONTINUUM_SCHEDULER=pbs|lsf|sge|slurm|kubernetes, and what else to tell it with every
job, CONTINUUM_SUBMIT="-q long". Kubernetes needs an image with the packages, CONTINUUM_IMAGE, and the claim of
a volume that all pods write to with the path where it is mounted, here as there: CONTINUUM_VOLUME=CLAIM:/PATH.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

LOGS = Path("logs/cluster")
RUNNING, SUCCESS, FAILED = "running", "success", "failed"
PATIENCE = 60  # seconds in which a scheduler must say how a job is


def properties(script: str) -> dict:
    """What Snakemake says about a job in a comment of its script."""
    for line in Path(script).read_text(encoding="utf-8").splitlines():
        if line.startswith("# properties = "):
            return json.loads(line.removeprefix("# properties = "))
    sys.exit(f"{script} has no line of properties: it is no script of Snakemake's.")


def submission(scheduler: str, job: dict, script: str) -> list[str]:
    """The command that submits `script`."""
    asked = job.get("resources", {})
    threads, memory = job.get("threads", 1), asked.get("mem_mb", 2000)
    minutes, gpus = asked.get("runtime", 60), asked.get("gpu", 0)
    name = job.get("rule") or job.get("groupid", "continuum")
    clock = f"{minutes // 60}:{minutes % 60:02d}:00"
    extra = shlex.split(os.environ.get("CONTINUUM_SUBMIT", ""))
    if scheduler == "pbs":
        chunk = f"select=1:ncpus={threads}:mem={memory}mb" + (f":ngpus={gpus}" if gpus else "")
        return [
            "qsub",
            "-N",
            name,
            "-l",
            chunk,
            "-l",
            f"walltime={clock}",
            "-j",
            "oe",
            "-o",
            f"{LOGS}/",
            *extra,
            script,
        ]
    if scheduler == "lsf":
        # -M limits the job, rusage reserves; both with their unit, which else is the site's own.
        gpu = ["-gpu", f"num={gpus}"] if gpus else []
        return ["bsub", "-J", name, "-n", str(threads), "-R", f"span[hosts=1] rusage[mem={memory}MB]", "-M",
                f"{memory}MB", "-W", str(minutes), "-oo", f"{LOGS}/%J.log", *gpu, *extra, script]  # fmt: skip
    if scheduler == "sge":
        # Memory is counted for each slot. `smp` and `gpu` are usual names that a site may have given otherwise.
        asked_for = f"h_vmem={-(-memory // threads)}M,h_rt={clock}" + (f",gpu={gpus}" if gpus else "")
        slots = ["-pe", "smp", str(threads)] if threads > 1 else []
        return ["qsub", "-terse", "-N", name, "-cwd", "-V", "-j", "y", "-o", str(LOGS), *slots, "-l", asked_for, *extra,
                script]  # fmt: skip
    if scheduler == "kubernetes":
        return ["kubectl", "create", "-o", "name", *extra, "-f", "-"]
    gpu = [f"--gpus={gpus}"] if gpus else []
    return ["sbatch", "--parsable", f"--job-name={name}", f"--cpus-per-task={threads}", f"--mem={memory}",
            f"--time={minutes}", f"--output={LOGS}/%j.log", *gpu, *extra, script]  # fmt: skip


def manifest(job: dict, script: str) -> dict:
    """A Kubernetes Job that runs `script` in one pod, with the shared volume."""
    missing = [name for name in ("CONTINUUM_IMAGE", "CONTINUUM_VOLUME") if not os.environ.get(name)]
    if missing:
        sys.exit(f"{missing[0]} is not set: Kubernetes needs an image and a volume, CONTINUUM_VOLUME=CLAIM:/PATH.")
    claim, _, path = os.environ["CONTINUUM_VOLUME"].partition(":")
    asked = job.get("resources", {})
    memory, gpus = f"{asked.get('mem_mb', 2000)}Mi", asked.get("gpu", 0)
    container = {
        "name": "job",
        "image": os.environ["CONTINUUM_IMAGE"],
        "command": ["/bin/sh", os.path.abspath(script)],
        "workingDir": os.getcwd(),
        "resources": {
            "requests": {"cpu": str(job.get("threads", 1)), "memory": memory},
            "limits": {"memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {}),
        },
        "volumeMounts": [{"name": "shared", "mountPath": path}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}],
    }
    name = (job.get("rule") or "group").replace("_", "-").lower()
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"continuum-{name}-"},
        # Retries are Snakemake's.
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 60 * asked.get("runtime", 60),
            "ttlSecondsAfterFinished": 86400,
            "template": {"spec": pod},
        },
    }


def number(scheduler: str, printed: str) -> str:
    """A job's number in what its submission printed."""
    if scheduler == "lsf":  # Job <123> is submitted to queue <normal>.
        return printed.split("<")[1].split(">")[0]
    return printed.strip().splitlines()[-1].split(";")[0]


def state(scheduler: str, job: str) -> str:
    """`running` (or waiting, or not known at the moment), `success` or `failed`."""
    if scheduler == "pbs":
        if not (told := _said("qstat", "-x", "-f", job)):
            return _unknown(job)
        lines = [line.strip().partition(" = ") for line in told.splitlines()]
        values = {name: value for name, _, value in lines}
        if values.get("job_state") not in ("F", "C"):
            return RUNNING
        return SUCCESS if values.get("Exit_status", values.get("exit_status")) == "0" else FAILED
    if scheduler == "lsf":
        word = _said("bjobs", "-noheader", "-o", "stat", job).strip()
        return {"DONE": SUCCESS, "EXIT": FAILED}.get(word, RUNNING) if word else _unknown(job)
    if scheduler == "sge":
        if _said("qstat", "-j", job):
            return RUNNING
        values = dict(line.split(None, 1) for line in _said("qacct", "-j", job).splitlines() if " " in line)
        if "exit_status" not in values:
            return _unknown(job)
        ended = values["exit_status"].split()[0], values.get("failed", "0").split()[0]
        return SUCCESS if ended == ("0", "0") else FAILED
    if scheduler == "kubernetes":
        if not (told := _said("kubectl", "get", job, "-o", "json")):
            return _unknown(job)
        conditions = json.loads(told).get("status", {}).get("conditions", [])
        true = {condition["type"] for condition in conditions if condition["status"] == "True"}
        return SUCCESS if "Complete" in true else FAILED if "Failed" in true else RUNNING
    word = _said("squeue", "--states=all", "--noheader", "--format=%T", "--jobs", job).strip()
    if not word:  # The controller forgot it; accounts, where there are any, did not.
        word = (_said("sacct", "-X", "-n", "-P", "-o", "State", "-j", job).split() or [""])[0]
    if not word:
        return _unknown(job)
    waiting = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "PREEMPTED", "RESIZING")
    return RUNNING if word in waiting else SUCCESS if word == "COMPLETED" else FAILED


CANCEL = {
    "pbs": ["qdel"],
    "lsf": ["bkill"],
    "sge": ["qdel"],
    "slurm": ["scancel"],
    "kubernetes": ["kubectl", "delete", "--wait=false"],
}


def _said(*command: str) -> str:
    """What a command prints; nothing when it fails, as it does while a scheduler is busy."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as failure:
        # An error here would end the whole workflow, and all for one look at one job.
        print(f"{command[0]}: {failure}", file=sys.stderr)
        return ""
    return done.stdout if done.returncode == 0 else ""


def _unknown(job: str) -> str:
    # Not failed: Snakemake would remove the files of a job that may still write them, and submit it once more.
    note = f"nothing is told of job {job}, which is taken to run; docs/clusters.md says what to do if it is over"
    print(note, file=sys.stderr)
    return RUNNING


def main(act: str, words: list[str]) -> None:
    scheduler = os.environ.get("CONTINUUM_SCHEDULER", "")
    if scheduler not in CANCEL:
        sys.exit(f'CONTINUUM_SCHEDULER is "{scheduler}"; name your scheduler: pbs, lsf, sge, slurm or kubernetes.')
    if act == "submit":
        LOGS.mkdir(parents=True, exist_ok=True)
        job = properties(words[-1])
        given = json.dumps(manifest(job, words[-1])) if scheduler == "kubernetes" else None
        command = submission(scheduler, job, words[-1])
        try:
            done = subprocess.run(command, capture_output=True, text=True, input=given)
        except OSError as failure:
            sys.exit(f"{command[0]} cannot be run ({failure.strerror}); start Snakemake where jobs are submitted from.")
        if done.returncode:
            sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
        print(number(scheduler, done.stdout))
    elif act == "status":
        print(state(scheduler, words[-1]))
    else:
        subprocess.run([*CANCEL[scheduler], *words], check=True)
