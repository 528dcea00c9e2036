"""The plan of an experiment, the jobs that Snakemake would run: by stage and system, with reasons and hours.

Snakemake alone decides what runs: its graph of jobs is read here, with its reasons and its records of files. Nothing is
run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import rich.box
import rich.table
import rich.text

from workflow_src.cli.calibration import Rates, calibrate, load_warning, saved_rates
from workflow_src.cli.changes import changes
from workflow_src.cli.estimate import duration
from workflow_src.cli.work import GPU, Sizes, Work, automatic, core_hours, gpu_hours, numbered, sizes, total, work_of
from workflow_src.config import Plan
from workflow_src.config.compose import PROJECT
from workflow_src.config.texts import system_behind
from workflow_src.errors import InputError
from workflow_src.registry import metrics

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

# Columns of a terminal that the table fits into, and of them those of numbers and between columns.
TERMINAL, NUMBERS = 80, 28


@dataclasses.dataclass(frozen=True)
class Request:
    """Arguments of Snakemake: the words after its options of these names, and targets."""

    configfiles: Sequence[Path] = ()
    config: Sequence[str] = ()
    directory: Path | None = None
    targets: Sequence[str] = ()
    forcerun: Sequence[str] = ()


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
    gpu_hours: tuple[float, float] | None = None
    core_hours: float | None = None

    @property
    def run(self) -> int:
        """Jobs that would run."""
        return sum(run for run, _ in self.rules.values())

    @property
    def jobs(self) -> int:
        return sum(jobs for _, jobs in self.rules.values())

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
    # About hours of a core of this machine that was busy when it was measured; else empty.
    warning: str = ""
    jobs_per_gpu: int = 1

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
        return total([low for low, _ in ranges]), total([high for _, high in ranges])


def overview(request: Request, calibrating: bool = False) -> Overview:
    """The plan of an experiment from Snakemake's graph of jobs. `calibrating`: measure this machine, where it was not.

    Raises ConfigError with Snakemake's message for a configuration or a target that it refuses.
    """
    with _dag(request) as (dag, plan):
        corpus, rates = sizes(plan), None
        # Without the number of pairs, hours of later jobs are not known either.
        counted = None if automatic(plan) and corpus.pairs is None else numbered(plan, corpus)
        nodes, graph = _nodes(dag, plan, counted, corpus)
        if counted:
            rates = calibrate(counted, corpus.length) if calibrating else saved_rates(counted)
            _add_hours(nodes.values(), counted, rates)
    names = (*plan.loaded.systems, *dict.fromkeys(node.system for node in nodes.values() if node.system))
    return Overview(
        plan.experiment,
        plan.recipe.name,
        tuple(dict.fromkeys(names)),
        graph,
        nodes,
        device=plan.config.runtime.device,
        jobs_per_gpu=plan.config.runtime.jobs_per_gpu,
        measured=rates is not None,
        warning=load_warning(rates) if rates else "",
    )


@contextlib.contextmanager
def _dag(request: Request) -> Iterator[tuple[Any, Plan]]:
    """Snakemake's graph of jobs with their reasons to run, and the `Plan` of its rules."""
    # Importing them takes longer than the other commands do.
    from snakemake.api import SnakemakeApi
    from snakemake.cli import parse_config
    from snakemake.exceptions import RuleException, WorkflowError
    from snakemake.settings.types import (
        ConfigSettings,
        DAGSettings,
        OutputSettings,
        PrintDag,
        Quietness,
        ResourceSettings,
    )

    output = OutputSettings(
        dryrun=True, quiet={Quietness.ALL}, log_level_override=logging.CRITICAL, enable_file_logging=False
    )
    try:
        values = parse_config(request.config)
    except ValueError as failure:
        raise InputError("--config:", _message(failure)) from None
    try:
        config = ConfigSettings(config=values, configfiles=list(request.configfiles), config_args=request.config)
        with SnakemakeApi(output) as api:
            workflow = api.workflow(
                resource_settings=ResourceSettings(cores=1),
                config_settings=config,
                snakefile=PROJECT / "Snakefile",
                workdir=request.directory,
            )
            settings = DAGSettings(
                targets=set(request.targets),
                forcerun=set(request.forcerun),
                # As the profiles do.
                force_incomplete=True,
                print_dag_as=str(PrintDag.DOT),
            )
            # Printing builds the graph, which the public API does not return.
            with contextlib.redirect_stdout(io.StringIO()):
                workflow.dag(settings).printdag()
            parsed = workflow._workflow
            yield parsed.dag, parsed.globals["plan"]
    except (WorkflowError, RuleException) as failure:
        raise InputError(_message(failure), "") from None


def _message(failure: Exception) -> str:
    """Snakemake's message in one line, without the full stop that ends it."""
    return " ".join(str(failure).split()).removesuffix(".") or type(failure).__name__


def _subject(job: Any, plan: Plan) -> tuple[str, str]:
    """Stage and system of a job."""
    rule, wildcards = job.rule.name, job.wildcards_dict
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


def _nodes(dag: Any, plan: Plan, counted: Plan | None, corpus: Sizes) -> tuple[dict[tuple[str, str], Node], nx.DiGraph]:
    """Nodes and their order. `counted` is the plan with numbers in place of auto, where these are known."""
    subjects = {job: _subject(job, plan) for job in dag.jobs if not job.rule.norun}
    order = [*STAGES, *sorted({stage for stage, _ in subjects.values()} - set(STAGES))]
    systems = ["", *plan.loaded.systems]
    keys = sorted(set(subjects.values()), key=lambda key: (order.index(key[0]), systems.index(key[1])))
    nodes = {key: Node(*key) for key in keys}
    graph = nx.DiGraph()
    graph.add_nodes_from(keys)
    for job in sorted(subjects, key=lambda job: (job.rule.name, sorted(job.wildcards_dict.items()))):
        key = subjects[job]
        node, needed = nodes[key], dag.needrun(job)
        run, jobs = node.rules.get(job.rule.name, (0, 0))
        node.rules[job.rule.name] = (run + needed, jobs + 1)
        predecessors = {subjects[other] for other in dag.dependencies[job] if other in subjects} - {key}
        graph.add_edges_from((other, key) for other in predecessors)
        if needed:
            work = work_of(counted, job.rule.name, job.wildcards_dict, corpus) if counted else None
            node.work += [work] if work else []
            anew = dag.reason(job).updated_input_run
            rerun = {subjects[other] for other, files in dag.dependencies[job].items() if anew & files}
            _add_reasons(node, _reasons(dag, job, [nodes[other] for other in keys if other in rerun - {key}]))
    return nodes, graph


def _add_reasons(node: Node, reasons: list[Reason]) -> None:
    """Add a job's reasons to those of its node, alike ones together."""
    for reason in reasons:
        equal = next((r for r in node.reasons if (r.kind, r.text) == (reason.kind, reason.text)), None)
        if equal:
            equal.jobs += 1
        else:
            node.reasons.append(reason)


def _reasons(dag: Any, job: Any, rerun: list[Node]) -> list[Reason]:
    """Why a job runs, as Snakemake says; `rerun` are the other nodes with jobs that make its inputs anew."""
    reason, persistence, reasons = dag.reason(job), dag.workflow.persistence, []
    # Snakemake stops comparing once a job follows another one, so changes of the job itself are looked up here.
    contents = getattr(job.params, "own", None) or {}
    prefix = setting_prefix(job.rule.name, job.wildcards_dict)
    changed = persistence.params_changed(job)
    defaults = json.loads(job.rule.params.settings.defaults(job.wildcards)) if changed else {}
    for change in changes(changed.only_old, changed.only_new, prefix, defaults):
        path = change.name.removeprefix(f"{prefix}.")
        if path in contents:
            reasons.append(Reason("updated", f"{path} changed"))
            continue
        reasons.append(Reason("setting", str(change), name=change.name, old=change.old, new=change.new))
    if reason.forced:
        reasons.append(Reason("forced", "forced"))
    if reason.missing_output:
        missing = sorted(map(str, reason.missing_output))
        if persistence.has_metadata(job):
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


def _add_hours(nodes: Any, plan: Plan, rates: Rates | None) -> None:
    for node in nodes:
        ranges = [hours for hours in (gpu_hours(plan, work) for work in node.work) if hours]
        if ranges:
            node.gpu_hours = (total([low for low, _ in ranges]), total([high for _, high in ranges]))
        if rates and node.work:
            node.core_hours = total([core_hours(rates, work) for work in node.work])


def hours_text(overview: Overview, node: Node | Overview) -> str:
    """Hours of one core where this machine was measured, else GPU-hours; nothing where a node has no such work."""
    if overview.measured:
        return duration(node.core_hours) if node.core_hours else ""
    if not node.gpu_hours or not node.gpu_hours[1]:
        return ""
    low, high = map(duration, node.gpu_hours)
    return low if low == high else f"{low} to {high}"


def as_table(overview: Overview) -> rich.table.Table:
    """A row a node for the terminal; finished nodes are dim."""
    table = rich.table.Table(
        box=rich.box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=summary(overview),
        title_justify="left",
        title_style="bold",
        caption=hours_caption(overview),
        caption_justify="left",
    )
    hours = "core-hours" if overview.measured else "GPU-hours"
    # So that 80 columns are enough, reasons alone are wrapped.
    for head in ("stage", "system", "run", "done"):
        table.add_column(head, justify="right" if head in ("run", "done") else "left", no_wrap=True)
    table.add_column("why", overflow="fold")
    table.add_column(hours, justify="right", no_wrap=True)
    room = TERMINAL - NUMBERS
    for side in ("title", "system"):
        room -= max((len(getattr(node, side)) for node in overview.nodes.values()), default=0)
    for node in overview.nodes.values():
        why = rich.text.Text("\n".join(_wrappable(reason, room) for reason in node.why))
        counts = (str(node.run or ""), str(node.jobs - node.run or ""))
        table.add_row(
            node.title, node.system, *counts, why, hours_text(overview, node), style=None if node.run else "dim"
        )
    return table


def _wrappable(reason: str, width: int) -> str:
    """A reason with line breaks in names of settings and files that are longer, after dots and slashes."""
    words = []
    for word in reason.split(" "):
        lines = [""]
        for part in re.split(r"(?<=[./])", word):
            if lines[-1] and len(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        words.append("\n".join(lines))
    return " ".join(words)


def summary(overview: Overview) -> str:
    """One line: the number of jobs that would run, and their hours."""
    if not overview.run:
        return f"{overview.experiment}: nothing to be done, {overview.jobs} jobs are done"
    hours = hours_text(overview, overview)
    text = f"{overview.experiment}: {overview.run} of {overview.jobs} jobs would run"
    return f"{text}, {hours} of one {'core' if overview.measured else 'GPU'}" if hours else text


def hours_caption(overview: Overview) -> str:
    """The caption of a plan: whether hours are of a core of this machine, or of a GPU."""
    if overview.measured:
        return "Hours are of one core of this machine; analyses and measuring speed are not counted."
    shared = f" {overview.jobs_per_gpu} jobs at a time share a GPU." if overview.jobs_per_gpu > 1 else ""
    return f"Hours are of one {GPU}, each job by itself; analyses and measuring speed are not counted.{shared}"


def as_json(overview: Overview) -> dict[str, Any]:
    """The overview for programs."""
    keys = list(overview.nodes)
    return {
        "experiment": overview.experiment,
        "recipe": overview.recipe,
        "jobs": overview.jobs,
        "run": overview.run,
        "gpu_hours": overview.gpu_hours,
        "core_hours": overview.core_hours,
        "nodes": [
            {
                "stage": node.stage,
                "system": node.system or None,
                "jobs": node.jobs,
                "run": node.run,
                "rules": {rule: {"run": run, "jobs": jobs} for rule, (run, jobs) in node.rules.items()},
                "reasons": [{k: v for k, v in dataclasses.asdict(r).items() if v is not None} for r in node.reasons],
                "gpu_hours": node.gpu_hours,
                "core_hours": node.core_hours,
                "after": [keys.index(other) for other in overview.graph.predecessors(key)],
            }
            for key, node in overview.nodes.items()
        ],
    }
