"""The plan of an experiment, the jobs that Snakemake would run: by stage and system, with reasons, hours and memory.

Snakemake alone decides what runs: its graph of jobs is read here, with its reasons and its records of files. Nothing is
run. Hours of a job are those that the same job took before, where its settings are the same, else its operations by a
rate (`work.py`).
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import networkx as nx

from workflow_src.cli.calibration import Rates, calibrate, load_warning, saved_rates
from workflow_src.cli.changes import changes
from workflow_src.cli.configuration import settings_of
from workflow_src.cli.work import (
    Sizes,
    Work,
    automatic,
    core_hours,
    disk_bytes,
    gpu_hours,
    numbered,
    read_encoded,
    sizes,
    total,
    work_of,
)
from workflow_src.config import Plan
from workflow_src.config.costs import parameters, updates, vocabulary_size
from workflow_src.config.files import PROJECT
from workflow_src.config.resources import gpus
from workflow_src.config.texts import RAW, base_of, system_behind
from workflow_src.registry import metrics
from workflow_src.runtime.snakemake_parts import GraphJob, JobGraph, job_graph

# Stages in the order of the flow. Others, of rules that are added, come after them under the name of their rule.
STAGES = {
    "data": "corpus, subwords",
    "import": "import",
    "train": "train",
    "distil": "distil",
    "keep_likely": "keep likely pairs",
    "export": "export",
    "translate": "translate",
    "bundles": "finish bundles",
    "compare_rows": "compare rows",
    "measure_speed": "measure speed",
    "analyse": "analyse",
    "report": "report",
}
# Stages of rules with another name; those of trainings, exports and analyses follow from declarations.
RULES = {
    **dict.fromkeys(("download", "clean", "normalise", "learn_subwords"), "data"),
    **dict.fromkeys(("download_monolingual", "normalise_monolingual"), "data"),
    "import_model": "import",
    **dict.fromkeys(("distill", "merge_distilled"), "distil"),
    "score_pairs": "keep_likely",
    **dict.fromkeys(("choose_settings", "decode_shard", "decode", "score_quality"), "translate"),
}


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


@dataclasses.dataclass
class Node:
    """Jobs of a stage for one system; `system` is empty where a stage is of no single one.

    `rules` has (jobs that would run, all jobs) by rule. Hours are of the jobs that would run.
    """

    stage: str
    system: str
    rules: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    reasons: list[Reason] = dataclasses.field(default_factory=list)
    work: list[Work] = dataclasses.field(default_factory=list)
    # Hours of a core, and of GPUs, of jobs that ran before with the same settings.
    measured_hours: float = 0.0
    measured_gpu_hours: float = 0.0
    gpu_hours: tuple[float, float] | None = None
    core_hours: float | None = None
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
        """Floating-point operations of its work; None where it has none, or none that is known."""
        return total(known) if (known := [w.operations for w in self.work if w.operations is not None]) else None

    @property
    def tokens(self) -> float | None:
        """Target positions of trainings, distillation and scoring; None as `operations`."""
        return total(known) if (known := [w.tokens for w in self.work if w.tokens is not None]) else None

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
    nodes: Mapping[tuple[str, str], Node]
    device: str
    measured: bool
    sizes: Sizes
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
        return total([node.core_hours for node in self.nodes.values()]) if self.measured else None

    @property
    def gpu_hours(self) -> tuple[float, float]:
        ranges = [node.gpu_hours for node in self.nodes.values() if node.gpu_hours]
        return total(low for low, _ in ranges), total(high for _, high in ranges)

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
        corpus = sizes(plan, request.pairs, request.length, _encoded(jobs))
        settings, rates = automatic(plan), None
        # Without the number of pairs, hours of later jobs are not known either.
        unknown = bool(settings) and corpus.pairs is None and not request.everything
        counted = None if unknown else numbered(plan, corpus)
        has_gpu = gpus(plan.config.runtime.device) > 0
        nodes, graph = _nodes(jobs, plan, counted, corpus, request, has_gpu)
        if counted:
            measures = measure == "anew" or (measure == "missing" and not has_gpu)
            rates = calibrate(counted, corpus.length, measure == "anew") if measures else saved_rates(counted)
            _add_hours(nodes.values(), counted, rates, has_gpu)
    names = (*plan.loaded.systems, *dict.fromkeys(node.system for node in nodes.values() if node.system))
    return Overview(
        plan.experiment,
        plan.recipe.name,
        tuple(dict.fromkeys(names)),
        graph,
        nodes,
        device=plan.config.runtime.device,
        jobs_per_gpu=plan.config.runtime.jobs_per_gpu,
        measured=rates is not None or (not has_gpu and _all_measured(nodes.values())),
        sizes=corpus,
        warning=load_warning(rates) if rates else "",
        auto=tuple(settings),
        vocabulary_size=vocabulary_size(counted) if counted else None,
        disk=disk_bytes(counted, corpus) if counted else None,
        after=_after(plan),
    )


def _all_measured(nodes: Iterable[Node]) -> bool:
    work = [work for node in nodes for work in node.work]
    return bool(work) and all(each.measured for each in work)


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


def _subject(job: GraphJob, plan: Plan) -> tuple[str, str]:
    """Stage and system of a job."""
    rule, wildcards = job.rule, job.wildcards
    system = wildcards.get("system") or wildcards.get("teacher") or ""
    if rule == "encode":
        # Distilled text is encoded when its teacher has written it.
        system = system_behind(wildcards["text"]) or ""
        return ("distil", system) if system else ("data", "")
    if rule in plan.training_rules:
        return "train", system
    if rule == "finish_bundle":
        return "bundles", ""
    if any(rule == metrics()[name].rule for name in plan.program_settings):
        return "translate", system
    if rule.startswith("export_"):
        return "export", system
    if rule == "analyse" or any(rule == analysis.rule for analysis in plan.analyses.values()):
        return "analyse", ""
    if any(rule == plan.rule_on("compare_rows", name) for name in plan.compared_sets):
        return "compare_rows", ""
    return RULES.get(rule, rule), system


def _nodes(
    jobs: JobGraph, plan: Plan, counted: Plan | None, corpus: Sizes, request: Request, has_gpu: bool
) -> tuple[dict[tuple[str, str], Node], nx.DiGraph]:
    """Nodes and their order. `counted` is the plan with numbers in place of auto, where these are known."""
    subjects = {job: _subject(job, plan) for job in jobs.jobs if job.has_work}
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
        run, count = node.rules.get(job.rule, (0, 0))
        node.rules[job.rule] = (run + needed, count + 1)
        predecessors = {subjects[other] for other in jobs.inputs(job) if other in subjects} - {key}
        graph.add_edges_from((other, key) for other in predecessors)
        if needed:
            node.memory = max(node.memory, job.resources.get("mem_mb", 0))
            work = work_of(counted, job.rule, job.wildcards, corpus) if counted else None
            if (duration := durations.get(_alike(job))) is not None:
                if has_gpu and (gpu_count := job.resources.get("gpu", 0)):
                    node.measured_gpu_hours += duration[0] * gpu_count / 3600
                else:
                    node.measured_hours += duration[1] / 3600
            node.work += [dataclasses.replace(work, measured=duration is not None)] if work else []
            if counted and key[0] == "train":
                system = counted.system(key[1])
                joint = counted.recipe.subwords.joint
                node.updates, node.parameters = updates(system), parameters(system, vocabulary_size(counted), joint)
        if job.runs:
            anew = job.reason.updated_input_run
            rerun = {subjects[other] for other, files in jobs.inputs(job).items() if anew & files}
            _add_reasons(node, _reasons(job, [nodes[other] for other in keys if other in rerun - {key}]))
    return nodes, graph


def _alike(job: GraphJob) -> tuple[str, ...]:
    """What jobs that take equally long have in common: all but the seed and the number of a shard."""
    wildcards = {name: value for name, value in job.wildcards.items() if name not in ("seed", "shard")}
    return job.rule, *(f"{name}={value}" for name, value in sorted(wildcards.items()))


def _durations(jobs: Iterable[GraphJob]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Seconds on the clock and of all cores that jobs took when they ran last, with the settings that they have now.

    Of jobs that are alike, those with the longest times.
    """
    durations: dict[tuple[str, ...], tuple[float, float]] = {}
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


def _reasons(job: GraphJob, rerun: list[Node]) -> list[Reason]:
    """Why a job runs, as Snakemake says; `rerun` are the other nodes with jobs that make its inputs anew."""
    reason, reasons = job.reason, []
    # Snakemake stops comparing once a job follows another one, so changes of the job itself are looked up here.
    contents = getattr(job.params, "own", None) or {}
    prefix = setting_prefix(job.rule, job.wildcards)
    before, now = job.changed_params()
    # Rules that a user adds have no such function.
    default_settings = getattr(job.function_of_param("settings"), "defaults", None)
    defaults = {}
    if default_settings and (before or now):
        defaults = json.loads(default_settings(SimpleNamespace(**job.wildcards)))
    for change in changes(before, now, prefix, defaults):
        path = change.name.removeprefix(f"{prefix}.")
        if path in contents:
            reasons.append(Reason("updated", f"{path} changed"))
            continue
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


def setting_prefix(rule: str, wildcards: Mapping[str, str]) -> str:
    """The place in a configuration of the settings of a rule, which begins their names: `systems.score`."""
    if rule.startswith("train_"):
        return f"systems.{wildcards['system']}"
    if rule == "distill" or rule == "merge_distilled":
        return f"distillation.{wildcards['teacher']}"
    if rule == "score_pairs" or rule == "keep_likely":
        return f"likelihood.{wildcards['system']}"
    if rule in ("decode", "decode_shard", "choose_settings"):
        return f"decodes.{wildcards['search']}"
    return {
        "download": "recipe.dataset",
        "download_monolingual": "recipe.monolingual",
        "normalise_monolingual": "recipe",
        "clean": "recipe",
        "normalise": "recipe",
        "encode": "recipe",
        "learn_subwords": "recipe.subwords",
    }.get(rule, "")


def _files(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _add_hours(nodes: Iterable[Node], plan: Plan, rates: Rates | None, has_gpu: bool) -> None:
    """Hours of jobs that ran before are of GPUs where they took some, else of a core; those of others are counted."""
    for node in nodes:
        on_gpu, on_core = node.measured_gpu_hours, node.measured_hours
        ranges = [gpu_hours(plan, work) for work in node.work if not (has_gpu and work.measured)]
        known = [hours for hours in ranges if hours]
        if known or on_gpu:
            node.gpu_hours = (on_gpu + total(low for low, _ in known), on_gpu + total(high for _, high in known))
        rest = [work for work in node.work if on_gpu or not work.measured]
        if on_core or (node.work and (rates or not rest)):
            node.core_hours = on_core + (total(core_hours(rates, work) for work in rest) if rates else 0.0)
