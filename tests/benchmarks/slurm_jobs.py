"""What a job on Slurm costs beside its work: jobs that do nothing, one after the other, here and on a cluster.

    python tests/benchmarks/slurm_jobs.py [--jobs 10] [--look 5]

Starts the tests' own cluster of two nodes on this machine (as root, see tests/slurm_cluster.py) and sends the jobs with
the profile `config/profiles/slurm`. Printed are the seconds of the whole run a job, and those that jobs were running
by Slurm's word; the same without the cluster. Nodes share the machine: leave it idle.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests"))
from slurm_cluster import Cluster, unavailable_reason  # noqa: E402

WORKFLOW = """
rule all:
    input: "done-{jobs}"
    localrule: True
rule first:
    output: "done-0"
    localrule: True
    shell: "touch {{output}}"
rule job:
    input: lambda wildcards: f"done-{{int(wildcards.number) - 1}}"
    output: "done-{{number,[1-9][0-9]*}}"
    shell: "touch {{output}}"
"""


def run(folder: Path, environment: dict[str, str], *words: str) -> float:
    """Seconds of a run of the workflow there."""
    command = [str(Path(sys.executable).parent / "snakemake"), *words]
    began = time.perf_counter()
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if process.returncode:
        sys.exit(process.stderr[-3000:])
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--look", type=int, help="seconds until the first look at a job; default: the profile's")
    arguments = parser.parse_args()
    if reason := unavailable_reason():
        sys.exit(f"no Slurm here: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder, "here"), Path(folder, "there")
        for place in (here, there):
            place.mkdir()
            (place / "Snakefile").write_text(WORKFLOW.format(jobs=arguments.jobs))
        seconds = run(here, dict(os.environ), "--cores", "1")
        print(f"without a cluster: {seconds / arguments.jobs:.2f} s a job")
        with Cluster() as cluster:
            profile = str(PROJECT / "config/profiles/slurm")
            words = ["--profile", profile, "--slurm-status-command", "squeue"]
            words += ["--slurm-init-seconds-before-status-checks", str(arguments.look)] if arguments.look else []
            seconds = run(there, cluster.environment, *words)
            times = cluster.run("squeue", "--states=all", "--noheader", "--Format=TimeUsed").split()
        running = statistics.fmean(60 * int(m) + int(s) for m, s in (one.split(":") for one in times))
        print(f"on Slurm: {seconds / arguments.jobs:.1f} s a job, running {running:.1f} s of them ({len(times)} jobs)")


if __name__ == "__main__":
    main()
