"""Shared by all rules: the checked configuration, the environment of jobs, wildcards, and the params of stages."""

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

# Jobs import `workflow_src` from here, wherever Snakemake was started. Without PYTHONSAFEPATH a folder of that name in
# the working directory would come first.
PROJECT = str(Path(workflow.current_basedir).parent)
sys.path.insert(0, PROJECT)
os.environ.update(PYTHONPATH=os.pathsep.join(filter(None, [PROJECT, os.environ.get("PYTHONPATH")])), PYTHONSAFEPATH="1")
if find_spec("torch"):
    # `.venv/bin/snakemake` without an activated environment: jobs get the same Python. Conda's environments, if they
    # are used, come before this.
    os.environ.update(PATH=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]))

# Threads of a job that wait for each other leave their core to other processes. By default they spin, and two threads
# of a training beside other jobs are slower than one, by up to ten times.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# The report shows this command; jobs on other machines inherit the variable.
os.environ.setdefault("CONTINUUM_COMMAND", shlex.join(["snakemake", *sys.argv[1:]]))
import workflow_src

if not Path(workflow_src.__file__).resolve().is_relative_to(Path(PROJECT).resolve()):
    raise WorkflowError(
        f"a package workflow_src was imported from {Path(workflow_src.__file__).parent} before Continuum's own, in "
        f"{PROJECT}, was needed: rename the other one, or run Continuum by itself."
    )

from workflow_src.runtime import garbage, guard, snakemake_parts
from workflow_src.runtime import gpus as gpu_locks

garbage.collect_rarely()

from workflow_src.errors import InputError
from workflow_src.config import Plan, costs
from workflow_src.config.experiment import with_text_keys
from workflow_src.config.files import CONFIG_FOLDER, experiment_file, experiment_names, read_yaml
from workflow_src.config.load import check_own_name, composed, load_composed
from workflow_src.data.corpus import check_named_files, check_own_texts, unreadable_texts
from workflow_src.data.download import changed_sum
from workflow_src.records.configuration import keep_configuration, keep_files, kept_configuration, replaced_report
from workflow_src.records.dates import check_dates, contents
from workflow_src.records.provenance import lost_files, lost_subwords
from workflow_src.runtime.rule_params import RuleParams, folder_of, folders_by_system, prefix_of, weights_in_roles
from workflow_src.spec import BASE
from workflow_src.config.texts import LIKELY, MONOLINGUAL
from workflow_src.config.plan.inputs import records_of
from workflow_src.config.plan.paths import BUNDLES
from workflow_src.config.priorities import AWAITED, priorities
from workflow_src.config.resources import Requests, gpus
from workflow_src.registry import engines, families, import_plugins, metrics

snakemake_parts.show_all_wildcards()

# Jobs end with the Snakemake that runs them, also where it is killed.
os.environ[guard.VARIABLE] = guard.identity()

try:
    # Snakemake takes the last of two equal keys without a word. A workflow that includes this one may have other files.
    for configuration in snakemake_parts.configuration_files(workflow):
        read_yaml(configuration)
    check_own_name(config)
    begun_with = None if snakemake_parts.is_main(workflow) else kept_configuration(str(config.get("experiment")))
    settings = composed(begun_with or config)
    plan = Plan(load_composed(settings))
    costs.check(plan)
    # Otherwise an input function would end with an error of many lines.
    for word in sys.argv[1:]:
        plan.check_target(word)
except InputError as error:
    raise WorkflowError(str(error)) from None

# The user's configuration files, or that of the shipped experiment. The report names them.
CONFIGURATION = [path for path in map(Path, workflow.configfiles) if path.resolve() != CONFIG_FOLDER / "config.yaml"]
if not CONFIGURATION and plan.experiment in experiment_names():
    CONFIGURATION = [experiment_file(plan.experiment)]
if snakemake_parts.is_main(workflow):
    keep_files(CONFIGURATION)
    warnings = changed_sum(Path(plan.files.raw_summary), plan.loaded.dataset.files), lost_subwords(plan.files.subwords)
    for warning in filter(None, warnings):
        logger.warning(f"warning: {warning}")


onstart:
    try:
        own_files = [path for _, path in plan.own_inputs]
        check_dates([f"results/{plan.recipe.name}", f"results/{plan.experiment}"] + own_files)
        if snakemake_parts.is_main(workflow):
            # Snakemake deletes the outputs of a job before it starts.
            planned = set(map(plain_name, snakemake_parts.planned_rules(workflow)))
            if "download" in planned:
                check_own_texts(plan)
            if "download_monolingual" in planned:
                check_named_files(plan.own_monolingual.items())
            warning = replaced_report(Path(plan.report, "provenance.json"), CONFIGURATION)
            if warning and "report" in planned:
                logger.warning(f"warning: {warning}")
            # Before a training of hours, rather than in the job after it that uses the object.
            import_plugins()
            keep_configuration(plan.experiment, with_text_keys(settings))
    except InputError as error:
        raise WorkflowError(str(error)) from None
    # Not before, because Snakemake sets its own handlers after it has read the rules. On a cluster it cancels jobs.
    if snakemake_parts.is_local(workflow):
        guard.stop_jobs_at_signals(logger)


RUNTIME = plan.config.runtime
GPUS = gpus(RUNTIME.device)
# Where Snakemake counts the GPUs of this machine (`--resources gpu=…`), it counts places of jobs on them.
os.environ[gpu_locks.SHARING] = str(RUNTIME.jobs_per_gpu)
PLACES = snakemake_parts.places_on_gpus(workflow, RUNTIME.jobs_per_gpu)
# Memory and time of every job, by the sizes of models and corpus; more at each retry.
needs = Requests(plan, gpu=GPUS > 0)
# What trainings wait for goes first.
priority_of_training = priorities(needs)

# Patterns of all files (`config/plan/paths.py`), whose wildcards are those of the rules.
FILES = plan.files
ARRAYS = [".source.bin", ".source.offsets.npy", ".target.bin", ".target.offsets.npy"]
LOGS = f"logs/{plan.recipe.name}"
BENCHMARKS = f"benchmarks/{plan.recipe.name}"
EXPERIMENT_LOGS = f"logs/{plan.experiment}"
EXPERIMENT_BENCHMARKS = f"benchmarks/{plan.experiment}"
# Whether the experiment has such systems or not, `--forcerun` and `--set-resources` may name them.
TRAININGS = list(dict.fromkeys(family.training_rule for family in families().values() if not family.imported))
# Rules whose families are counted at once, on one CPU.
COUNTED = {family.training_rule for family in families().values() if family.fit}
PROGRAMS = [metric for metric in metrics().values() if metric.program]
EXPORTING = [engine for engine in engines().values() if engine.exports]
# A bundle has weights and subwords whose names differ by system, so that no rule declares them as outputs. Where one is
# lost, its bundle is made anew. A text with a sentence longer than a model's positions is encoded again, which ends the
# run before trainings.
BUNDLE_FILES = [*(plan.exported_file(*bundle) for bundle in plan.finished), *plan.finished_bundles]
if snakemake_parts.is_main(workflow):
    snakemake_parts.force([*filter(lost_files, BUNDLE_FILES), *unreadable_texts(plan)])


def one_of(systems):
    """Constraint of the wildcard `system`: one of these names."""
    # A system's name has no space: nothing matches where an experiment has no such system.
    return "|".join(systems) or "no such system"


wildcard_constraints:
    system=one_of(plan.loaded.systems),
    teacher="|".join(plan.teachers) or "none",
    text="[^/]+",
    search="[^/]+",
    split="|".join(["train", *plan.loaded.held_out]),
    seed=r"\d+",
    shard=r"\d+",
    shards=r"\d+",
    kind="|".join([BUNDLES, *(engine.exports for engine in EXPORTING)]),


def shown(file, caption, category, shows, **options):
    """A file that Snakemake's own report shows."""
    return report(file, caption=f"captions/{caption}.rst", category=category, labels={"shows": shows}, **options)


plain_name = snakemake_parts.plain_names(workflow)
# What jobs ask a cluster for.
CPU = {
    "mem_mb": lambda wildcards, attempt, rulename: needs.memory(plain_name(rulename), wildcards, attempt),
    "runtime": lambda wildcards, attempt, rulename: needs.minutes(plain_name(rulename), wildcards, attempt),
    "slurm_partition": needs.partition(gpu=False),
}
GPU = CPU | {"slurm_partition": needs.partition(gpu=True), "gpu": GPUS}
# A training on several nodes starts its processes with srun by itself: `mpi` makes Slurm's executor leave that to it. One
# task a node; tasks_per_gpu=0 keeps the executor from making it one a GPU.
SEVERAL_NODES = (
    {"nodes": RUNTIME.nodes, "tasks": RUNTIME.nodes, "tasks_per_gpu": 0, "mpi": "srun"} if RUNTIME.nodes > 1 else {}
)
COUNTING = CPU | {"gpu": 0, "launch": "python -m"}
TRAINING = GPU | SEVERAL_NODES | {"gpu": GPUS * RUNTIME.devices * RUNTIME.nodes, "launch": RUNTIME.launch}

NOT_LIKELY = f"(?!{LIKELY}-by-)[^/]+"
# Where there are shards they are only joined, which needs no GPU.
DECODE = GPU | {
    "slurm_partition": lambda wildcards, input: needs.partition(gpu=not input.shards),
    "gpu": lambda wildcards, input: 0 if input.shards else GPUS,
}
# A node to itself, and every place on its GPU. Not in the profile, whose resources any --set-resources replaces.
MEASURING = GPU | {"slurm_extra": "--exclusive", "gpu": GPUS * PLACES}

# Params of rules; those of rules that would be long with them have a name.
params = RuleParams(plan, lambda: snakemake_parts.runs_jobs(workflow))
stage = params.stage
OPTIONS = "--job {params.job} --run {params.run} --log {log:q} --threads {threads}"
# The command of every rule but trainings. Snakemake compares this text, and a job of which it differs runs again.
COMMAND = f"python -m workflow_src.stages.{{params.stage}} {OPTIONS}"
