"""The parts of Snakemake that rules use and no documentation promises; a test names those that a version lacks.

`continuum plan` (`cli/plan.py`) reads Snakemake's graph of jobs beside these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import workflow_src
from workflow_src.registry import analyses, engines, families, metrics

# Attributes that this module uses, by class. Dry runs test `global_resources`, which objects alone have.
PARTS = {
    "snakemake.dag:DAG": ("init", "new_wildcards"),
    "snakemake.workflow:Workflow": (
        "cores",
        "dryrun",
        "executor_plugin",
        "is_main_process",
        "local_exec",
        "modifier",
        "register_resource",
    ),
}


def show_all_wildcards() -> None:
    """Make nodes of `snakemake --dag` show all wildcards of a job.

    By default Snakemake leaves out those that earlier jobs have too, so that an export would not name its system.
    """
    from snakemake.dag import DAG

    def all_wildcards(_dag: Any, job: Any) -> set[Any]:
        return set(job.wildcards.items())

    DAG.new_wildcards = all_wildcards


def force(files: Iterable[str]) -> None:
    """Make Snakemake run the jobs of these files, as if `--force` named them."""
    from snakemake.dag import DAG

    initialise, forced = DAG.init, list(files)

    async def initialise_forced(dag: Any, *arguments: Any, **options: Any) -> None:
        dag.forcefiles.update(forced)
        await initialise(dag, *arguments, **options)

    DAG.init = initialise_forced


def configuration_files(workflow: Any) -> list[Path]:
    """Configuration files of the command line; none where another workflow includes this one with its own."""
    return [] if workflow.modifier.skip_configfile else [Path(path) for path in workflow.overwrite_configfiles]


def runs_jobs(workflow: Any) -> bool:
    """Whether jobs are run, not only planned."""
    return bool(workflow.executor_plugin) and not workflow.dryrun


def is_main(workflow: Any) -> bool:
    """Whether this process is the user's Snakemake, not one that runs a job on another machine."""
    return bool(workflow.is_main_process)


def is_local(workflow: Any) -> bool:
    """Whether jobs run on this machine."""
    return bool(workflow.local_exec)


def places_on_gpus(workflow: Any, jobs_per_gpu: int) -> int:
    """Places of jobs on a GPU where Snakemake counts the GPUs of this machine (`--resources gpu=…`), else 1.

    It counts places from then on.
    """
    if "gpu" not in workflow.global_resources:
        return 1
    workflow.register_resource("gpu", jobs_per_gpu * workflow.global_resources["gpu"].value)
    return jobs_per_gpu


def plain_names(workflow: Any) -> Callable[[str], str]:
    """A function from the name of a rule, as another workflow that includes this one has it, to its name here."""
    before, _, after = workflow.modifier.modify_rulename("RULE").partition("RULE")
    return lambda name: name.removeprefix(before).removesuffix(after)


def forget(workflow: Any, *names: str) -> None:
    """Remove rules that others were made from, which cannot run by themselves."""
    for name in names:
        del workflow._rules[workflow.modifier.modify_rulename(name)]


def cores(workflow: Any, otherwise: int) -> int:
    """The cores that Snakemake was given; `otherwise` where it was given none, as on a cluster."""
    from snakemake.exceptions import WorkflowError

    try:
        return int(workflow.cores)
    except WorkflowError:
        return otherwise


def describe(workflow: Any, targets: Mapping[str, tuple[list[str], str]]) -> None:
    """Give rules the words that `snakemake --list` shows: what their stage does, or what their target has."""
    # What rules that share a stage differ in.
    subjects = {analysis.rule_name: analysis.title for analysis in analyses().values()}
    subjects |= {engine.export_rule: engine.name for engine in engines().values() if engine.export_rule}
    subjects |= {metric.rule: metric.name for metric in metrics().values() if metric.program}
    for family in families().values():
        names = [subjects[family.training_rule]] if family.training_rule in subjects else []
        subjects[family.training_rule] = ", ".join([*names, family.name])
    for rule in workflow.rules:
        if stage := getattr(rule.params, "stage", None):
            rule.docstring = " ".join(filter(None, [_summary(stage), subjects.get(rule.name)]))
        elif rule.name in targets:
            rule.docstring = f"Target: {targets[rule.name][1]}."
        elif rule.name == "all":
            rule.docstring = "Default target: the report, with all that it needs."


def _summary(stage: str) -> str:
    """What a stage does: the first paragraph of its module, which is not imported."""
    text = (Path(workflow_src.__file__).parent / "stages" / f"{stage}.py").read_text(encoding="utf-8")
    paragraph = re.match(r'"""(?:Stage(?: \w+)?: )?(.*?)(?:"""|\n\n)', text, re.DOTALL)
    summary = " ".join(paragraph[1].split()) if paragraph else ""
    return summary[:1].upper() + summary[1:]
