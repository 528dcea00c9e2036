"""What many jobs cost: the time of a dry run with 1,000 decodes, and the scheduler's overhead for each job.

    python tests/benchmarks/many_jobs.py [--decodes 1000] [--run 30]

The dry run plans an experiment whose decodes differ in their length penalty. Then a miniature teacher is trained and
`--run` decodes are made one after the other: overhead is the time of the run, less what the jobs took themselves and
less a start of Snakemake with nothing to do, divided by the jobs. Everything lies in a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]


def experiment(decodes: int) -> dict:
    """The experiment smoke with `decodes` beam searches of its teacher instead of its own, and no analyses."""
    content = yaml.safe_load((PROJECT / "config/experiments/smoke.yaml").read_text())
    content["decodes"] = [
        {
            "system": "teacher",
            "search": "beam",
            "beam": 2,
            "length_penalty": round(0.5 + i / 10000, 4),
            "name": f"d-{i}",
        }
        for i in range(decodes)
    ]
    content["analyses"] = {name: {"enabled": False} for name in content["analyses"]}
    return content


def snakemake(folder: Path, *words: str) -> tuple[float, float, str]:
    """Seconds by the clock, seconds of computing, and what was printed."""
    command = [str(Path(sys.executable).parent / "snakemake"), *words, "--snakefile", str(PROJECT / "Snakefile")]
    command += ["--configfile", str(folder / "many.yaml")]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ))
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        sys.exit(process.stderr[-3000:])
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, process.stdout + process.stderr


def write(folder: Path, decodes: int) -> None:
    (folder / "many.yaml").write_text(yaml.safe_dump(experiment(decodes), sort_keys=False))


def dry_runs(folder: Path, decodes: int) -> None:
    write(folder, decodes)
    for target in ("translations", "report"):
        seconds, computing, output = snakemake(folder, target, "--dry-run")
        jobs = int(re.findall(r"^total +(\d+)$", output, re.MULTILINE)[-1])
        print(f"dry run of {target}: {jobs:,} jobs in {seconds:.1f} s ({computing:.1f} s of computing)")


def overhead(folder: Path, decodes: int) -> None:
    write(folder, decodes)
    snakemake(folder, "bundles", "--cores", "1")
    seconds, _, _ = snakemake(folder, "translations", "--cores", "1")
    start, _, _ = snakemake(folder, "translations", "--cores", "1")
    measured = sorted((folder / "benchmarks/smoke/decode").glob("*.tsv"))
    jobs = [float(path.read_text().splitlines()[1].split("\t")[0]) for path in measured]
    assert len(jobs) == decodes
    each = (seconds - start - sum(jobs)) / decodes
    print(
        f"{decodes} decodes of 40 sentences one after the other: {seconds:.1f} s, of which jobs {sum(jobs):.1f} s, the "
        f"start {start:.1f} s; overhead {each:.2f} s a job of {sum(jobs) / decodes:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decodes", type=int, default=1000)
    parser.add_argument("--run", type=int, default=30, help="decodes that are really made; 0: none")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dry_runs(Path(folder), arguments.decodes)
    if arguments.run:
        with tempfile.TemporaryDirectory() as folder:
            overhead(Path(folder), arguments.run)


if __name__ == "__main__":
    main()
