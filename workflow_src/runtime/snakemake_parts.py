"""The parts of Snakemake that rules and `continuum plan` use and no documentation promises."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import workflow_src
from workflow_src.errors import ConfigError, InputError, nearest
from workflow_src.registry import analyses, engines, families, metrics


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


def planned_rules(workflow: Any) -> set[str]:
    """Names of the rules of which jobs will run."""
    return {job.rule.name for job in workflow.dag.jobs if workflow.dag.needrun(job)}


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


def read_settings(words: Sequence[str]) -> dict[str, Any]:
    """The settings of the words after `--config`, as Snakemake reads them. Raises ValueError for another word."""
    from snakemake.cli import parse_config

    return parse_config(words)


class GraphJob:
    """A job of Snakemake's graph: its rule and files, whether it would run, and why."""

    def __init__(self, dag: Any, job: Any):
        self._dag, self._job = dag, job
        self.rule: str = job.rule.name
        self.wildcards: dict[str, str] = job.wildcards_dict
        # False for a target, which only collects files.
        self.has_work: bool = not job.rule.norun
        self.output: Any = job.output
        self.params: Any = job.params
        self.resources: Mapping[str, Any] = job.resources
        self.benchmark = Path(job.benchmark) if job.benchmark else None
        # Jobs that make its inputs, each with these files.
        self.inputs: dict[GraphJob, set[str]] = {}

    @property
    def runs(self) -> bool:
        return bool(self._dag.needrun(self._job))

    @property
    def has_run(self) -> bool:
        """Whether Snakemake knows of an earlier run of it."""
        return bool(self._dag.workflow.persistence.has_metadata(self._job))

    @property
    def reason(self) -> Any:
        """Why it would run: the attributes of Snakemake's `Reason`."""
        return self._dag.reason(self._job)

    def changed_params(self) -> tuple[set[str], set[str]]:
        """Params of its last run that it has not now, and those that it had not then."""
        changed = self._dag.workflow.persistence.params_changed(self._job)
        return (set(changed.only_old), set(changed.only_new)) if changed else (set(), set())

    @property
    def settings_function(self) -> Any:
        """The function that computes the settings of its rule; None where the rule has none."""
        return self._job.rule.params.get("settings")


@contextlib.contextmanager
def job_graph(
    snakefile: Path,
    config: Mapping[str, Any],
    config_words: Sequence[str] = (),
    configfiles: Sequence[Path] = (),
    directory: Path | None = None,
    targets: Iterable[str] = (),
    forcerun: Iterable[str] = (),
) -> Iterator[tuple[list[GraphJob], Mapping[str, Any]]]:
    """The jobs that the arguments of `snakemake` give, of which none is run, and the names that the rules define.

    Changes of the environment by rules are undone in the end.

    `config` are the settings of `config_words`. Raises ConfigError for a target that is none, and InputError with
    Snakemake's message for anything else that it refuses.
    """
    # Importing them takes longer than most commands do.
    from snakemake.api import SnakemakeApi
    from snakemake.exceptions import MissingRuleException, RuleException, WorkflowError
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
    environment, targets, forcerun = dict(os.environ), list(targets), list(forcerun)
    try:
        with SnakemakeApi(output) as api:
            workflow_api = api.workflow(
                resource_settings=ResourceSettings(cores=1),
                config_settings=ConfigSettings(
                    config=config, configfiles=list(configfiles), config_args=list(config_words)
                ),
                snakefile=snakefile,
                workdir=directory,
            )
            settings = DAGSettings(
                targets=set(targets),
                forcerun=set(forcerun),
                # As the profiles do.
                force_incomplete=True,
                print_dag_as=str(PrintDag.DOT),
            )
            workflow = workflow_api._workflow
            try:
                # Printing builds the graph, which the public API does not return.
                with contextlib.redirect_stdout(io.StringIO()):
                    workflow_api.dag(settings).printdag()
            except MissingRuleException as failure:
                raise _no_target({"--target": targets, "--forcerun": forcerun}, workflow) or failure from None
            yield _jobs(workflow.dag), workflow.globals
    except (WorkflowError, RuleException) as failure:
        message = " ".join(str(failure).split()).removesuffix(".")
        raise InputError(message or type(failure).__name__, "") from None
    finally:
        os.environ.clear()
        os.environ.update(environment)


def _jobs(dag: Any) -> list[GraphJob]:
    graph_jobs = {job: GraphJob(dag, job) for job in dag.jobs}
    for job, graph_job in graph_jobs.items():
        graph_job.inputs = {graph_jobs[other]: set(files) for other, files in dag.dependencies[job].items()}
    return list(graph_jobs.values())


def _no_target(options: Mapping[str, Iterable[str]], workflow: Any) -> ConfigError | None:
    """The error of the first word of an option that names neither a rule nor a file that a rule makes."""
    rules = {
        "--target": [rule.name for rule in workflow.rules if not rule.has_wildcards()],
        "--forcerun": [rule.name for rule in workflow.rules],
    }
    for option, words in options.items():
        for word in words:
            if word not in rules[option] and not any(rule.is_producer(word) for rule in workflow.rules):
                return ConfigError(
                    option,
                    word,
                    problem="it is neither a rule nor a file that a rule makes",
                    nearest_name=nearest(word, rules[option]),
                    hint="snakemake --list shows all rules",
                )
    return None
