"""What a job would take: hours of a GPU and of a core, as long as it took before, or else by its operations."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import math
from collections.abc import Iterable, Mapping

from workflow_src.cli.calibration import Rates, core_hours
from workflow_src.cli.operations import Operations
from workflow_src.cli.sizes import CountedSizes
from workflow_src.config.costs import gpu_rates
from workflow_src.config.rules import Rule, Work
from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json
from workflow_src.runtime.snakemake_parts import GraphJob

# Wall-clock seconds of a job that ran before, and seconds of all its cores.
Duration = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of a job that would run: its work with networks, hours of a GPU, at least and at most, hours of a core, and
    floating-point operations.

    None where it has none, or none that is known.
    """

    work: Work | None = None
    gpu_hours: tuple[float, float] | None = None
    core_hours: float | None = None
    operations: float | None = None


def total(numbers: Iterable[float | None]) -> float | None:
    """The sum of the numbers that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return math.fsum(known) if known else None


@dataclasses.dataclass(frozen=True)
class Counting:
    """What costs are counted with; the plan of `operations` has numbers in place of auto. `durations`: of jobs that ran
    before."""

    operations: Operations
    sizes: CountedSizes
    rates: Rates | None
    has_gpu: bool
    durations: Mapping[tuple[str, ...], Duration]


def cost(counting: Counting, rule: Rule, job: GraphJob) -> Cost:
    """The cost of a job: hours that it took before, or else those of its operations."""
    plan = counting.operations.plan
    work = rule.work(plan, job.wildcards, counting.sizes) if rule.work else None
    operations = counting.operations.of(work) if work else None
    duration = counting.durations.get(_alike(job))
    if duration and counting.has_gpu and (gpu_count := job.resources.get("gpu", 0)):
        return Cost(work, (duration[0] * gpu_count / 3600,) * 2, operations=operations)
    gpu_hours = hours = None
    if work and operations is not None:
        low, high = gpu_rates(plan.system(work.system), work.training)
        gpu_hours = operations / high / 3600, operations / low / 3600
        hours = core_hours(counting.rates, operations, work.training) if counting.rates else None
    return Cost(work, gpu_hours, duration[1] / 3600 if duration else hours, operations)


def _alike(job: GraphJob) -> tuple[str, ...]:
    """What jobs that take equally long have in common: all but the seed and the number of a shard."""
    wildcards = {name: value for name, value in job.wildcards.items() if name not in ("seed", "shard")}
    return job.rule, *(f"{name}={value}" for name, value in sorted(wildcards.items()))


def durations(jobs: Iterable[GraphJob]) -> dict[tuple[str, ...], Duration]:
    """Seconds on the clock and of all cores that jobs took, with the settings that they have now.

    Of jobs that are alike, those with the longest times.
    """
    longest: dict[tuple[str, ...], Duration] = {}
    for job in jobs:
        if job.benchmark and job.benchmark.is_file() and not any(job.changed_params()):
            with open(job.benchmark, encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    with contextlib.suppress(KeyError, TypeError, ValueError):
                        # Snakemake does not measure the time of the cores of a short job: "NA".
                        cores = row["s"] if row["cpu_time"] == "NA" else row["cpu_time"]
                        duration = _of_all_runs(job, (float(row["s"]), float(cores)))
                        longest[_alike(job)] = max(longest.get(_alike(job), (0.0, 0.0)), duration)
    return longest


def _of_all_runs(job: GraphJob, of_last_run: Duration) -> Duration:
    """The duration of a job with the earlier runs of a training: the last one went on from a saved state."""
    seconds, cores = of_last_run
    minutes = 0.0
    if "config" in job.output.keys():
        with contextlib.suppress(ArtifactError):
            minutes = read_json(job.output.config).get("minutes") or 0.0
    stretch = max(1.0, 60 * minutes / max(seconds, 1e-9))
    return seconds * stretch, cores * stretch
