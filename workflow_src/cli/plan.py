"""The plan of an experiment, the jobs that Snakemake would run: by stage and system, with reasons, hours and memory.

Snakemake alone decides what runs: its graph of jobs is read here, with its reasons and its records of files. Nothing is
run. Hours of a job are those that the same job took before, where its settings are the same, else its operations
(`operations.py`) by a rate: of one core, as it was measured (`calibration.py`), and of one GPU, within a range
(`config/costs.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import networkx as nx

from workflow_src.cli.calibration import calibrate, load_warning, saved_rates
from workflow_src.cli.changes import changes
from workflow_src.cli.configuration import settings_of
from workflow_src.cli.job_costs import Cost, Counting, cost, durations, total
from workflow_src.cli.operations import Operations
from workflow_src.cli.sizes import CountedSizes, automatic, disk_bytes, numbered, read_encoded, sizes
from workflow_src.config import Plan
from workflow_src.config.costs import updates
from workflow_src.config.files import PROJECT
from workflow_src.config.resources import gpus
from workflow_src.config.rules import STAGES, Rule, Work, rule_of, rule_table
from workflow_src.config.texts import RAW, base_of, system_behind
from workflow_src.runtime.snakemake_parts import GraphJob, job_graph

Key = tuple[str, str]


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
    # Measure this machine: anew, or once where it has no GPU and was not measured before.
    measure: Literal["anew", "once", "never"] = "never"


@dataclasses.dataclass(frozen=True)
class Reason:
    """A reason why jobs of a node run: its kind, and its subject in words; of a changed setting, name and values."""

    kind: str
    text: str
    name: str | None = None
    old: str | None = None
    new: str | None = None


@dataclasses.dataclass
class Node:
    """Jobs of a stage for one system; `system` is empty where a stage is of no single one.

    `runs` are jobs that would run by rule, `rules` all jobs; `reasons` count the jobs that have each. `costs` are of
    the jobs that would run.
    """

    stage: str
    system: str
    runs: Counter[str] = dataclasses.field(default_factory=Counter)
    rules: Counter[str] = dataclasses.field(default_factory=Counter)
    reasons: Counter[Reason] = dataclasses.field(default_factory=Counter)
    costs: list[Cost] = dataclasses.field(default_factory=list)
    # Megabytes that the largest job asks for.
    memory: int = 0
    # Trained parameters, and updates of a job, of a training.
    parameters: int | None = None
    updates: int | None = None

    @property
    def run(self) -> int:
        """Jobs that would run."""
        return self.runs.total()

    @property
    def jobs(self) -> int:
        return self.rules.total()

    @property
    def work(self) -> list[Work]:
        return [cost.work for cost in self.costs if cost.work]

    @property
    def operations(self) -> float | None:
        return total(cost.operations for cost in self.costs)

    @property
    def tokens(self) -> float | None:
        return total(work.tokens for work in self.work)

    @property
    def gpu_hours(self) -> tuple[float, float] | None:
        ranges = [cost.gpu_hours for cost in self.costs if cost.gpu_hours]
        return (math.fsum(low for low, _ in ranges), math.fsum(high for _, high in ranges)) if ranges else None

    @property
    def core_hours(self) -> float | None:
        return total(cost.core_hours for cost in self.costs)

    @property
    def title(self) -> str:
        return STAGES.get(self.stage, self.stage.replace("_", " "))

    @property
    def why(self) -> list[str]:
        """Reasons in words; that the node follows others is said only where it has no reason of its own."""
        direct = {reason: jobs for reason, jobs in self.reasons.items() if reason.kind != "follows"}
        words = [reason.text + (f" ({jobs} jobs)" if 1 < jobs < self.run else "") for reason, jobs in direct.items()]
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

    @functools.cached_property
    def all(self) -> Node:
        """All jobs as those of one node, without reasons."""
        nodes = self.nodes.values()
        return Node(
            "all",
            "",
            sum((node.runs for node in nodes), Counter()),
            sum((node.rules for node in nodes), Counter()),
            costs=[cost for node in nodes for cost in node.costs],
            memory=max((node.memory for node in nodes), default=0),
        )

    @property
    def core_hours(self) -> float | None:
        return self.all.core_hours if self.measured else None

    @property
    def training_tokens(self) -> float:
        """Target positions of all trainings, with padding."""
        return total(work.tokens for work in self.all.work if work.training) or 0.0


def overview(request: Request) -> Overview:
    """The plan of an experiment from Snakemake's graph of jobs.

    Raises ConfigError for a target that is none, and for everything that is counted where a size is auto and pairs are
    not known; InputError with Snakemake's message for a configuration that it refuses.
    """
    with job_graph(
        PROJECT / "Snakefile",
        settings_of(request.config),
        request.config,
        request.configfiles,
        request.directory,
        request.targets,
        request.forcerun,
    ) as (jobs, names_of_rules):
        plan: Plan = names_of_rules["plan"]
        counted_sizes = sizes(plan, request.pairs, request.length, _encoded(jobs))
        settings = automatic(plan)
        # Without the number of pairs, hours of later jobs are not known either.
        unknown = bool(settings) and counted_sizes.pairs is None and not request.everything
        counted = None if unknown else numbered(plan, counted_sizes)
        has_gpu = gpus(plan.config.runtime.device) > 0
        rates = None if request.measure == "anew" else saved_rates()
        if request.measure == "anew" or (request.measure == "once" and not has_gpu and rates is None):
            rates = calibrate()
        known_durations = {} if request.pairs or request.length else durations(jobs)
        operations = Operations(counted, counted_sizes) if counted else None
        counting = Counting(operations, counted_sizes, rates, has_gpu, known_durations) if operations else None
        nodes, graph = _nodes(jobs, plan, counting, request.everything)
        disk = disk_bytes(operations, counted_sizes) if operations else None
        if operations:
            operations.keep()
    names = (*plan.loaded.systems, *(node.system for node in nodes.values() if node.system))
    working = [cost for node in nodes.values() for cost in node.costs if cost.work]
    all_took = bool(working) and all(cost.core_hours is not None for cost in working)
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
        vocabulary_size=counted.recipe.subwords.size if counted else None,
        disk=disk,
        after=_after(plan),
    )


def _encoded(jobs: Iterable[GraphJob]) -> dict[str, Any] | None:
    """What encoding counted of the raw training pairs; None where Snakemake would encode them again.

    Augmented text has as many pairs, and a few more subwords.
    """
    summaries = {
        job.wildcards["text"]: Path(job.output.summary)
        for job in jobs
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


def _subject(job: GraphJob, rule: Rule) -> Key:
    """Stage and system of a job."""
    wildcards = job.wildcards
    if job.rule == "encode" and (teacher := system_behind(wildcards["text"])):
        # Distilled text is encoded when its teacher has written it.
        return "distil", teacher
    system = wildcards.get("system") or wildcards.get("teacher") or ""
    return rule.stage or job.rule, system if rule.by_system else ""


def _nodes(
    jobs: list[GraphJob], plan: Plan, counting: Counting | None, everything: bool
) -> tuple[dict[Key, Node], nx.DiGraph]:
    """Nodes and their order, with costs where these can be counted."""
    table = rule_table(plan)
    rules = {job: rule_of(plan, table, job.rule, job.wildcards) for job in jobs if job.has_work}
    subjects = {job: _subject(job, rule) for job, rule in rules.items()}
    order = [*STAGES, *sorted({stage for stage, _ in subjects.values()} - set(STAGES))]
    systems = ["", *plan.loaded.systems]
    keys = sorted(set(subjects.values()), key=lambda key: (order.index(key[0]), systems.index(key[1])))
    nodes = {key: Node(*key) for key in keys}
    graph = nx.DiGraph()
    graph.add_nodes_from(keys)
    for job in sorted(subjects, key=lambda job: (job.rule, sorted(job.wildcards.items()))):
        key = subjects[job]
        node = nodes[key]
        node.rules[job.rule] += 1
        makers = {other: files for other, files in job.inputs.items() if subjects.get(other, key) != key}
        graph.add_edges_from((subjects[other], key) for other in makers)
        if everything or job.runs:
            node.runs[job.rule] += 1
            node.memory = max(node.memory, job.resources.get("mem_mb", 0))
            if counting:
                node.costs.append(cost(counting, rules[job], job))
            if counting and node.stage == "train":
                system = counting.operations.plan.system(node.system)
                node.updates = updates(system)
                node.parameters = counting.operations.parameters(system)
        if job.runs:
            anew = {subjects[other] for other, files in makers.items() if job.reason.updated_input_run & files}
            node.reasons.update(_reasons(job, rules[job].settings, [nodes[other] for other in keys if other in anew]))
    return nodes, graph


def _reasons(job: GraphJob, place: str, rerun: list[Node]) -> list[Reason]:
    """Why a job runs, as Snakemake says.

    `place` begins the names of its settings, as `systems.{system}`; `rerun` are the other nodes with jobs that make its
    inputs anew.
    """
    reason = job.reason
    reasons: list[Reason] = []
    # Snakemake stops comparing once a job follows another one, so changes of the job itself are looked up here.
    # The params of a rule that a user adds are no settings, and have no defaults.
    contents = getattr(job.params, "own", None) or {}
    place = place.format(**job.wildcards)
    default_settings = getattr(job.settings_function, "defaults", None)
    before, now = job.changed_params()
    defaults = {}
    if default_settings and (before or now):
        defaults = json.loads(default_settings(SimpleNamespace(**job.wildcards)))
    for change in changes(before, now, place, defaults):
        if (path := change.name.removeprefix(f"{place}.")) in contents:
            reasons.append(Reason("updated", f"{path} changed"))
        else:
            reasons.append(Reason("setting", str(change), change.name, change.old, change.new))
    if reason.missing_output and not job.has_run:
        reasons.append(Reason("new", "not made yet"))
    files = (
        ("missing", "missing", reason.missing_output if job.has_run else ()),
        ("incomplete", "incomplete", reason.incomplete_output),
        ("updated", "newer input", reason.updated_input - reason.updated_input_run),
    )
    reasons += [Reason(kind, f"{problem} {_named(paths)}") for kind, problem, paths in files if paths]
    changed = (
        ("forced", "forced", reason.forced),
        ("inputs", "another set of inputs", reason.input_changed),
        ("command", "another command in the rule", reason.code_changed),
        ("environment", "another software environment", reason.software_stack_changed),
    )
    reasons += [Reason(kind, text) for kind, text, holds in changed if holds]
    reasons += [Reason("follows", f"{node.title} {node.system}".rstrip()) for node in rerun]
    return reasons


def _named(paths: Collection[str]) -> str:
    """The first of the paths, and how many more there are."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{min(map(str, paths))}{more}"
