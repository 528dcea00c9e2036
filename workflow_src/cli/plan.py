"""The plan of an experiment, the jobs that Snakemake would run: by stage and system, with reasons, hours and memory.

Snakemake alone decides what runs: its graph of jobs is read here, with its reasons and its records of files. Nothing is
run. Hours of a job are those that the same job took before, where its settings are the same, else its operations by a
rate: of one core, as it was measured (`calibration.py`), and of one GPU, within a range (`config/costs.py`).
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import networkx as nx

from workflow_src.cli.calibration import Rates, calibrate, load_warning, saved_rates
from workflow_src.cli.calibration import core_hours as core_hours_of
from workflow_src.cli.changes import changed_files, changes
from workflow_src.cli.changes import parameters as recorded_parameters
from workflow_src.cli.configuration import settings_of
from workflow_src.cli.sizes import CountedSizes, automatic, disk_bytes, numbered, read_encoded, sizes
from workflow_src.config import Plan
from workflow_src.config.costs import parameters, updates, vocabulary_size
from workflow_src.config.files import PROJECT
from workflow_src.config.resources import gpus
from workflow_src.config.rules import STAGES, Rule, rule_of, rule_table
from workflow_src.config.texts import RAW, base_of, system_behind
from workflow_src.runtime.snakemake_parts import GraphJob, JobGraph, job_graph

Key = tuple[str, str]
# Wall-clock seconds of a job that ran before, and seconds of all its cores.
Duration = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Request:
    """Arguments of Snakemake: the words after its options of these names, and targets."""

    configfiles: Sequence[Path] = ()
    config: Sequence[str] = ()
    directory: Path | None = None
    targets: Sequence[str] = ()
    forcerun: Sequence[str] = ()
    # Training pairs and mean subwords of a sentence, in place of counted ones.
    pairs: int | None = None
    length: float | None = None
    # Count every job, as where nothing was made yet.
    everything: bool = False


@dataclasses.dataclass
class Reason:
    """A reason why jobs of a node run: its kind, its subject in words, and the number of jobs."""

    kind: str
    text: str
    jobs: int = 1
    # Of a changed setting.
    name: str | None = None
    old: str | None = None
    new: str | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of a job that would run: floating-point operations and target positions of networks, hours of a GPU, at least and
    at most, and of a core. None where it has none, or none that is known."""

    operations: float | None = None
    tokens: float | None = None
    gpu_hours: tuple[float, float] | None = None
    core_hours: float | None = None
    # It trains or translates.
    works: bool = False


def total(numbers: Iterable[float | None]) -> float | None:
    """The sum of the numbers that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return math.fsum(known) if known else None


def total_range(ranges: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    """The sums of both ends of the ranges that are known; None where none is."""
    known = [each for each in ranges if each is not None]
    return (math.fsum(low for low, _ in known), math.fsum(high for _, high in known)) if known else None


@dataclasses.dataclass
class Node:
    """Jobs of a stage for one system; `system` is empty where a stage is of no single one.

    `rules` has (jobs that would run, all jobs) by rule; `costs` are of the jobs that would run.
    """

    stage: str
    system: str
    rules: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    reasons: list[Reason] = dataclasses.field(default_factory=list)
    costs: list[Cost] = dataclasses.field(default_factory=list)
    # Megabytes that the largest job asks for.
    memory: int = 0
    # Of a training: trained parameters, and updates of a job.
    parameters: int | None = None
    updates: int | None = None

    @property
    def run(self) -> int:
        """Jobs that would run."""
        return sum(run for run, _ in self.rules.values())

    @property
    def jobs(self) -> int:
        return sum(jobs for _, jobs in self.rules.values())

    @property
    def operations(self) -> float | None:
        return total(cost.operations for cost in self.costs)

    @property
    def tokens(self) -> float | None:
        return total(cost.tokens for cost in self.costs)

    @property
    def gpu_hours(self) -> tuple[float, float] | None:
        return total_range(cost.gpu_hours for cost in self.costs)

    @property
    def core_hours(self) -> float | None:
        return total(cost.core_hours for cost in self.costs)

    @property
    def title(self) -> str:
        return STAGES.get(self.stage, self.stage.replace("_", " "))

    @property
    def why(self) -> list[str]:
        """Reasons in words; that the node follows others is said only where it has no reason of its own."""
        direct = [reason for reason in self.reasons if reason.kind != "follows"]
        words = [reason.text + (f" ({reason.jobs} jobs)" if 1 < reason.jobs < self.run else "") for reason in direct]
        followed = [reason.text for reason in self.reasons if reason.kind == "follows"]
        if words or not followed:
            return words
        more = f" and {len(followed) - 1} more" if len(followed) > 1 else ""
        # The last one is the nearest.
        return [f"follows {followed[-1]}{more}"]


@dataclasses.dataclass(frozen=True)
class Overview:
    """The graph of an experiment's nodes, in the order of the flow; edges lead to nodes that read files."""

    experiment: str
    recipe: str
    systems: tuple[str, ...]
    graph: nx.DiGraph
    nodes: Mapping[Key, Node]
    sizes: CountedSizes
    # Whether hours of a core are known of all work.
    measured: bool = False
    # Whether jobs would run on a GPU.
    has_gpu: bool = False
    # Every job is counted, done or not.
    everything: bool = False
    # About hours of a core of this machine that was busy when it was measured; else empty.
    warning: str = ""
    jobs_per_gpu: int = 1
    # Settings that are auto; subwords of the vocabulary, where these are known.
    auto: tuple[str, ...] = ()
    vocabulary_size: int | None = None
    # Bytes of the whole experiment, downloads not counted; None where the vocabulary is not known.
    disk: float | None = None
    # Systems that a training waits for, by the trained system.
    after: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    @property
    def run(self) -> int:
        return sum(node.run for node in self.nodes.values())

    @property
    def jobs(self) -> int:
        return sum(node.jobs for node in self.nodes.values())

    @property
    def core_hours(self) -> float | None:
        return total(node.core_hours for node in self.nodes.values()) if self.measured else None

    @property
    def gpu_hours(self) -> tuple[float, float] | None:
        return total_range(node.gpu_hours for node in self.nodes.values())

    @property
    def training_tokens(self) -> float:
        """Target positions of all trainings, with padding."""
        return total(node.tokens for node in self.nodes.values() if node.stage == "train") or 0.0

    @property
    def rules(self) -> dict[str, tuple[int, int]]:
        """(jobs that would run, all jobs) by rule."""
        counts: dict[str, tuple[int, int]] = {}
        for node in self.nodes.values():
            for rule, (run, jobs) in node.rules.items():
                before = counts.get(rule, (0, 0))
                counts[rule] = before[0] + run, before[1] + jobs
        return counts

    @property
    def memory(self) -> int:
        """Megabytes that the largest job asks for."""
        return max((node.memory for node in self.nodes.values()), default=0)


def overview(request: Request, measure: Literal["missing", "anew"] | None = None) -> Overview:
    """The plan of an experiment from Snakemake's graph of jobs.

    `measure` this machine: anew, or where it has no GPU and was not measured before. Raises ConfigError for a target
    that is none, and for everything that is counted where a size is auto and pairs are not known; InputError with
    Snakemake's message for a configuration that it refuses.
    """
    with _graph_of(request) as (jobs, plan):
        counted_sizes = sizes(plan, request.pairs, request.length, _encoded(jobs))
        settings = automatic(plan)
        # Without the number of pairs, hours of later jobs are not known either.
        unknown = bool(settings) and counted_sizes.pairs is None and not request.everything
        counted = None if unknown else numbered(plan, counted_sizes)
        has_gpu = gpus(plan.config.runtime.device) > 0
        rates = None if measure == "anew" else saved_rates()
        if measure == "anew" or (measure == "missing" and not has_gpu and rates is None):
            rates = calibrate()
        nodes, graph = _nodes(jobs, plan, counted, _Counting(counted_sizes, rates, has_gpu), request)
    names = (*plan.loaded.systems, *(node.system for node in nodes.values() if node.system))
    work = [cost for node in nodes.values() for cost in node.costs if cost.works]
    all_took = bool(work) and all(cost.core_hours is not None for cost in work)
    return Overview(
        plan.experiment,
        plan.recipe.name,
        tuple(dict.fromkeys(names)),
        graph,
        nodes,
        counted_sizes,
        measured=counted is not None and (rates is not None or (not has_gpu and all_took)),
        has_gpu=has_gpu,
        everything=request.everything,
        warning=load_warning(rates) if rates else "",
        jobs_per_gpu=plan.config.runtime.jobs_per_gpu,
        auto=tuple(settings),
        vocabulary_size=vocabulary_size(counted) if counted else None,
        disk=disk_bytes(counted, counted_sizes) if counted else None,
        after=_after(plan),
    )


def _encoded(jobs: JobGraph) -> dict[str, Any] | None:
    """What encoding counted of the raw training pairs; None where Snakemake would encode them again.

    Augmented text has as many pairs, and a few more subwords.
    """
    summaries = {
        job.wildcards["text"]: Path(job.output.summary)
        for job in jobs.jobs
        if job.rule == "encode"
        and job.wildcards["split"] == "train"
        and base_of(job.wildcards["text"]) == RAW
        and not job.runs
    }
    return read_encoded(summaries[min(summaries)]) if summaries else None


def _after(plan: Plan) -> dict[str, list[str]]:
    systems = [system for system in plan.loaded.systems.values() if not system.family.imported]
    waited = {system.name: [name for name in system.built_on if name not in plan.imported] for system in systems}
    return {name: list(dict.fromkeys(names)) for name, names in waited.items() if names}


@contextlib.contextmanager
def _graph_of(request: Request) -> Iterator[tuple[JobGraph, Plan]]:
    """Snakemake's graph of jobs with their reasons to run, and the `Plan` of its rules."""
    with job_graph(
        PROJECT / "Snakefile",
        settings_of(request.config),
        request.config,
        request.configfiles,
        request.directory,
        request.targets,
        request.forcerun,
    ) as graph:
        yield graph, graph.names["plan"]


@dataclasses.dataclass(frozen=True)
class _Counting:
    """What hours are counted with."""

    sizes: CountedSizes
    rates: Rates | None
    has_gpu: bool

    def cost(self, plan: Plan, rule: Rule, job: GraphJob, duration: Duration | None) -> Cost:
        """The cost of a job; `duration` is that of such a job that ran before."""
        work = rule.work(plan, job.wildcards, self.sizes) if rule.work else None
        operations, tokens = (work.operations, work.tokens) if work else (None, None)
        gpu_hours = work.gpu_hours(plan) if work else None
        core_hours = None
        if duration and self.has_gpu and (gpu_count := job.resources.get("gpu", 0)):
            gpu_hours = (duration[0] * gpu_count / 3600,) * 2
        elif duration:
            core_hours = duration[1] / 3600
        elif work and self.rates:
            core_hours = core_hours_of(self.rates, work)
        return Cost(operations, tokens, gpu_hours, core_hours, works=work is not None)


def _subject(job: GraphJob, rule: Rule) -> Key:
    """Stage and system of a job."""
    wildcards = job.wildcards
    if job.rule == "encode" and (teacher := system_behind(wildcards["text"])):
        # Distilled text is encoded when its teacher has written it.
        return "distil", teacher
    system = wildcards.get("system") or wildcards.get("teacher") or ""
    return rule.stage or job.rule, system if rule.by_system else ""


def _nodes(
    jobs: JobGraph, plan: Plan, counted: Plan | None, counting: _Counting, request: Request
) -> tuple[dict[Key, Node], nx.DiGraph]:
    """Nodes and their order. `counted` is the plan with numbers in place of auto, where these are known."""
    table = rule_table(plan)
    rules = {job: rule_of(plan, table, job.rule, job.wildcards) for job in jobs.jobs if job.has_work}
    subjects = {job: _subject(job, rule) for job, rule in rules.items()}
    order = [*STAGES, *sorted({stage for stage, _ in subjects.values()} - set(STAGES))]
    systems = ["", *plan.loaded.systems]
    keys = sorted(set(subjects.values()), key=lambda key: (order.index(key[0]), systems.index(key[1])))
    nodes = {key: Node(*key) for key in keys}
    graph = nx.DiGraph()
    graph.add_nodes_from(keys)
    # Of other sizes than those that are asked about, nothing is known.
    durations = {} if request.pairs or request.length else _durations(subjects)
    for job in sorted(subjects, key=lambda job: (job.rule, sorted(job.wildcards.items()))):
        key = subjects[job]
        node, needed = nodes[key], request.everything or job.runs
        run, all_jobs = node.rules.get(job.rule, (0, 0))
        node.rules[job.rule] = (run + needed, all_jobs + 1)
        predecessors = {subjects[other] for other in jobs.inputs(job) if other in subjects} - {key}
        graph.add_edges_from((other, key) for other in predecessors)
        if needed:
            node.memory = max(node.memory, job.resources.get("mem_mb", 0))
        if needed and counted:
            node.costs.append(counting.cost(counted, rules[job], job, durations.get(_alike(job))))
            if key[0] == "train":
                system = counted.system(key[1])
                joint = counted.recipe.subwords.joint
                node.updates, node.parameters = updates(system), parameters(system, vocabulary_size(counted), joint)
        if job.runs:
            anew = job.reason.updated_input_run
            rerun = {subjects[other] for other, files in jobs.inputs(job).items() if anew & files}
            follows = [nodes[other] for other in keys if other in rerun - {key}]
            _add_reasons(node, _reasons(job, rules[job].settings, follows))
    return nodes, graph


def _alike(job: GraphJob) -> tuple[str, ...]:
    """What jobs that take equally long have in common: all but the seed and the number of a shard."""
    wildcards = {name: value for name, value in job.wildcards.items() if name not in ("seed", "shard")}
    return job.rule, *(f"{name}={value}" for name, value in sorted(wildcards.items()))


def _durations(jobs: Iterable[GraphJob]) -> dict[tuple[str, ...], Duration]:
    """Seconds on the clock and of all cores that jobs took when they ran last, with the settings that they have now.

    Of jobs that are alike, those with the longest times.
    """
    durations: dict[tuple[str, ...], Duration] = {}
    for job in jobs:
        if job.benchmark and job.benchmark.is_file() and not any(job.changed_params()):
            with open(job.benchmark, encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    with contextlib.suppress(KeyError, TypeError, ValueError):
                        # Of a short job, the time of its cores is not measured: "NA".
                        cores = row["s"] if row["cpu_time"] == "NA" else row["cpu_time"]
                        durations[_alike(job)] = max(
                            durations.get(_alike(job), (0.0, 0.0)), (float(row["s"]), float(cores))
                        )
    return durations


def _add_reasons(node: Node, reasons: list[Reason]) -> None:
    """Add a job's reasons to those of its node, alike ones together."""
    for reason in reasons:
        equal = next((r for r in node.reasons if (r.kind, r.text) == (reason.kind, reason.text)), None)
        if equal:
            equal.jobs += 1
        else:
            node.reasons.append(reason)


def _reasons(job: GraphJob, place: str, rerun: list[Node]) -> list[Reason]:
    """Why a job runs, as Snakemake says.

    `place` begins the names of its settings, as `systems.{system}`; `rerun` are the other nodes with jobs that make its
    inputs anew.
    """
    reason = job.reason
    reasons: list[Reason] = []
    # Snakemake stops comparing once a job follows another one, so changes of the job itself are looked up here.
    old, new = map(recorded_parameters, job.changed_params())
    if old != new:
        # Rules that a user adds have no such function.
        default_settings = getattr(job.function_of_param("settings"), "defaults", None)
        defaults = json.loads(default_settings(SimpleNamespace(**job.wildcards))) if default_settings else {}
        reasons += [Reason("updated", f"{path} changed") for path in changed_files(old, new)]
        for change in changes(old, new, place.format(**job.wildcards), defaults):
            reasons.append(Reason("setting", str(change), name=change.name, old=change.old, new=change.new))
    if reason.forced:
        reasons.append(Reason("forced", "forced"))
    if reason.missing_output:
        missing = sorted(map(str, reason.missing_output))
        if job.has_run:
            reasons.append(Reason("missing", f"missing {_files(missing)}"))
        else:
            reasons.append(Reason("new", "not made yet"))
    if reason.incomplete_output:
        reasons.append(Reason("incomplete", f"incomplete {_files(sorted(map(str, reason.incomplete_output)))}"))
    updated = sorted(map(str, reason.updated_input - reason.updated_input_run))
    if updated:
        reasons.append(Reason("updated", f"newer input {_files(updated)}"))
    if reason.input_changed:
        reasons.append(Reason("inputs", "another set of inputs"))
    if reason.code_changed:
        reasons.append(Reason("command", "another command in the rule"))
    if reason.software_stack_changed:
        reasons.append(Reason("environment", "another software environment"))
    reasons += [Reason("follows", f"{node.title} {node.system}".rstrip()) for node in rerun]
    return reasons


def _files(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
