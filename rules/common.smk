"""Shared by all rules: the checked configuration, the environment of jobs, wildcards, and the targets."""

import json
import os
import re
import shlex
import sys
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

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
from workflow_src.config import Plan, costs, load
from workflow_src.config.files import CONFIG_FOLDER, experiment_file, experiment_names, read_yaml
from workflow_src.config.load import check_own_name
from workflow_src.data.corpus import monolingual_lines
from workflow_src.data.download import changed_sum
from workflow_src.jobs import RUN, Document
from workflow_src.records.configuration import FILES, replaced_report
from workflow_src.records.dates import check_dates, contents
from workflow_src.records.provenance import lost_files
from workflow_src.config.resolved import Decode
from workflow_src.spec import SearchSettings
from workflow_src.config.texts import LIKELY, MONOLINGUAL, system_behind, RAW
from workflow_src.config.plan.paths import BUNDLES
from workflow_src.config.priorities import AWAITED, priorities
from workflow_src.config.resources import Requests, gpus
from workflow_src.registry import analyses, engines, families, metrics, roles
from workflow_src.spec import BASE

snakemake_parts.show_all_wildcards()

# Jobs end with the Snakemake that runs them, also where it is killed.
os.environ[guard.VARIABLE] = guard.identity()

try:
    # Snakemake takes the last of two equal keys without a word. A workflow that includes this one may have other files.
    for configuration in snakemake_parts.configuration_files(workflow):
        read_yaml(configuration)
    check_own_name(config)
    plan = Plan(load(config))
    costs.check(plan)
    # Otherwise an input function would end with an error of many lines.
    for word in sys.argv[1:]:
        plan.check_target(word)
except InputError as error:
    raise WorkflowError(str(error)) from None

# The user's configuration files, or that of the shipped experiment. The report names them.
CONFIGURATION = [path for path in map(Path, workflow.configfiles) if path.resolve().parent != CONFIG_FOLDER]
if not CONFIGURATION and plan.experiment in experiment_names():
    CONFIGURATION = [experiment_file(plan.experiment)]
if snakemake_parts.is_main(workflow):
    os.environ[FILES] = os.pathsep.join(os.path.abspath(path) for path in CONFIGURATION)
    if warning := replaced_report(Path(plan.report, "results.json"), CONFIGURATION):
        logger.warning(f"warning: {warning}")
    if warning := changed_sum(Path(plan.raw("raw", "json")), plan.loaded.dataset.files):
        logger.warning(f"warning: {warning}")


onstart:
    try:
        check_dates([f"results/{plan.recipe.name}", f"results/{plan.experiment}", *plan.own_inputs])
    except InputError as error:
        raise WorkflowError(str(error)) from None
    # Not before, because Snakemake sets its own handlers after it has read the rules. On a cluster it cancels jobs.
    if snakemake_parts.is_local(workflow):
        guard.stop_jobs_at_signals(logger)


COMPARED, DEFAULTS = plan.compared(), plan.defaults()
# Settings of the machine reach the commands as resources, because changed resources rerun nothing.
RUNTIME = plan.config.runtime
GPUS = gpus(RUNTIME.device)
# Where Snakemake counts the GPUs of this machine (`--resources gpu=…`), it counts places of jobs on them.
os.environ[gpu_locks.SHARING] = str(RUNTIME.jobs_per_gpu)
PLACES = snakemake_parts.places_on_gpus(workflow, RUNTIME.jobs_per_gpu)
# Memory and time of every job, by the sizes of models and corpus; more at each retry.
needs = Requests(plan, gpu=GPUS > 0, monolingual=monolingual_lines(plan) if plan.reads_monolingual else None)
# What trainings wait for goes first.
priority_of_training = priorities(needs)
# A training on several nodes starts its processes with srun by itself: `mpi` makes Slurm's executor leave that to it. One
# task a node; tasks_per_gpu=0 keeps the executor from making it one a GPU.
SEVERAL_NODES = (
    {"nodes": RUNTIME.nodes, "tasks": RUNTIME.nodes, "tasks_per_gpu": 0, "mpi": "srun"} if RUNTIME.nodes > 1 else {}
)

ANY_DECODE = Decode(system="{system}", search="", name="{search}", values=SearchSettings(), splits=())
# Inputs of roles are named role_NAME, because a role may have the name of another input.
ROLE = "role_"
FIRST_SEED = plan.config.seeds[0]
LANGUAGES = [plan.recipe.source, plan.recipe.target]
ENCODED = plan.encoded("{text}", "{split}")
ARRAYS = [".source.bin", ".source.offsets.npy", ".target.bin", ".target.offsets.npy"]
SUBWORDS = f"{plan.subwords}/subwords.json"
SYSTEMS = list(plan.loaded.systems)
REPORT = f"{plan.report}/index.html"
LOGS = f"logs/{plan.recipe.name}"
BENCHMARKS = f"benchmarks/{plan.recipe.name}"
EXPERIMENT_LOGS = f"logs/{plan.experiment}"
EXPERIMENT_BENCHMARKS = f"benchmarks/{plan.experiment}"


wildcard_constraints:
    system="|".join(SYSTEMS),
    teacher="|".join(plan.teachers) or "none",
    text="[^/]+",
    search="[^/]+",
    split="|".join(["train", *plan.loaded.held_out]),
    seed=r"\d+",
    shard=r"\d+",
    shards=r"\d+",
    kind="|".join([BUNDLES, *(engine.exports for engine in engines().values() if engine.exports)]),


def systems_of(rule_name):
    """Constraint of the wildcard `system` in a training rule: the systems that it makes."""
    return one_of(plan.systems_of(rule_name))


def one_of(systems):
    """Constraint of the wildcard `system`: one of these names."""
    # A system's name has no space: nothing matches where an experiment has no such system.
    return "|".join(systems) or "no such system"


def folder_of(file):
    """A function of a job: the folder that a file lies in, such as `input.bundle`."""
    return lambda job: os.path.dirname(attrgetter(file)(job))


def records_of(shards):
    """The record beside each shard, which the job that joins shards reads."""
    return [f"{os.path.splitext(shard)[0]}.json" for shard in shards]


def prefix_of(file):
    """A function of a job: the prefix of the encoded split whose PREFIX.json is a file, such as `input.dev`."""
    return lambda job: os.path.splitext(attrgetter(file)(job))[0]


def prefixes_of(files):
    """`prefix_of` where a list of files is named."""
    return lambda job: [os.path.splitext(file)[0] for file in attrgetter(files)(job)]


def input_if_any(name):
    """A function of a job: its input `name`, or None where it has none of that name."""
    return lambda job: job.input[name] if name in job.input.keys() else None


# The command of every rule but trainings. Snakemake compares this text, and a job of which it differs runs again.
COMMAND = "python -m workflow_src.stages.{params.stage} --job {params.job} --log {log:q} --threads {threads}"
JOBS = "work/jobs"
# The settings of the machine for all jobs: no job's document has them, and nothing reruns when they change.
RUN_DOCUMENT = Document(f"{JOBS}/run", plan.run_settings())
os.environ[RUN] = os.path.abspath(RUN_DOCUMENT.path)


def stage(name, settings, **options):
    """Params for running the stage `name`: `settings`, which Snakemake compares, and `job`, which it does not.

    `settings` is a function of the plan and wildcards: the settings that change the result, as JSON. `options` are the
    other inputs of the stage by name: functions of the job (its wildcards, input and output), or attributes of it, such
    as `input.source`. Empty ones are left out. `job` is the path of the document with all of them (`jobs.Document`).
    """

    # Params that are derived from files are not compared.
    def job_document(wildcards, input, output):
        job = SimpleNamespace(wildcards=wildcards, input=input, output=output)
        values = {
            option: attrgetter(value)(job) if isinstance(value, str) else value(job)
            for option, value in options.items()
        }
        values = {option: plain(value) for option, value in values.items() if value or value == 0}
        document = Document(f"{JOBS}/{name}", {"settings": json.loads(settings(plan, wildcards))} | values)
        # Not where jobs are only planned.
        if snakemake_parts.runs_jobs(workflow):
            document.write()
            RUN_DOCUMENT.write()
        return str(document.path)

    def compared(wildcards):
        return settings(COMPARED, wildcards)

    # For `continuum plan`.
    compared.defaults = lambda wildcards: settings(DEFAULTS, wildcards)
    return {"stage": name, "settings": compared, "job": job_document}


def plain(value):
    """A file, several files, or another value of a job as JSON content."""
    return (
        str(value) if isinstance(value, str) else list(map(str, value)) if isinstance(value, (list, tuple)) else value
    )


def batch_of_decode(job):
    """The number of sentences that a decode translates together."""
    return plan.decode(job.wildcards.system, job.wildcards.search).batch


def measured_raw(wildcards):
    """The description of the encoded raw pairs, which fix max_length for other training texts where it is auto."""
    return (
        {"measured": plan.encoded(RAW, "train") + ".json"} if plan.awaits_raw(wildcards.text, wildcards.split) else {}
    )


def role_inputs(wildcards, filled):
    """Weights of systems by role, as a system has them: `base`, and `role_NAME` for other roles of its family."""
    return {
        name if name == BASE else f"{ROLE}{name}": plan.weights(system, wildcards.seed)
        for name, system in filled.items()
    }


def training_inputs(wildcards):
    """Inputs of every training rule, by the names that its command uses."""
    system = plan.system(wildcards.system)
    inputs = {
        "train": [plan.encoded(text, "train") + ".json" for text in system.texts],
        "dev": plan.encoded("raw", "dev") + ".json",
        "subwords": SUBWORDS,
        # A reversed system translates into sources.
        "reference": plan.corpus("dev", "source") if system.reversed else plan.reference("dev"),
        "summary": plan.corpus_summary,
    }
    # Beside the summary: the text of placeholders, which outputs get back before they are scored.
    if plan.recipe.placeholder_kinds:
        inputs["source"] = plan.corpus("dev", "source")
    inputs |= role_inputs(wildcards, system.filled)
    if plan.initial_weights(system.name, wildcards.seed):
        inputs["initial"] = plan.initial_weights(system.name, wildcards.seed)
    return inputs


def options_of_roles(job):
    """Files of the systems in other roles than the base that a system is built on, by role."""
    return {name.removeprefix(ROLE): str(job.input[name]) for name in job.input.keys() if name.startswith(ROLE)}


def systems_of_roles(job):
    """Folders of the systems that a decode works with beside its own, by role."""
    return {role: os.path.dirname(job.input[role]) for role in roles() if role in job.input.keys()}


def search_inputs(wildcards):
    """Bundles of the systems that a decode works with beside its own, by role, such as the one that ranks."""
    by_role = plan.systems_in_roles(plan.decode(wildcards.system, wildcards.search))
    return {role: plan.bundle_file(system, wildcards.seed) for role, system in by_role.items()}


def decode_inputs(wildcards):
    """Bundles of the other systems that a decode works with, and its settings chosen on dev, if any."""
    decode = plan.decode(wildcards.system, wildcards.search)
    chosen = {"chosen": plan.chosen(decode, wildcards.seed)} if decode.tune else {}
    return search_inputs(wildcards) | chosen


def backward_scores(wildcards):
    """Scores of the pairs by a reversed system, and its weights, where pairs are scored in both directions."""
    backward = plan.likelihood(wildcards.system).backward
    if backward is None:
        return {}
    return {
        "backward_model": plan.likelihood_weights(backward),
        "backward_shards": plan.likelihood_shards(backward),
        "backward_records": records_of(plan.likelihood_shards(backward)),
    }


def bundle_inputs(wildcards):
    """Inputs of an export: the weights, those of the systems that it is built on or carries, and the subwords."""
    system = plan.system(wildcards.system)
    carried = {f"{ROLE}{role}": plan.weights(name, wildcards.seed) for role, name in system.carries.items()}
    return {
        "model": plan.weights(system.name, wildcards.seed),
        "subwords": SUBWORDS,
        **role_inputs(wildcards, system.served_with),
        **carried,
    }


def finished_from(wildcards):
    """The export that a finished bundle is made from, by the kind of its folder; None: the bundle."""
    return None if wildcards.kind == BUNDLES else wildcards.kind


def finish_inputs(wildcards):
    """Inputs of a finished bundle: the exported folder, and the files with figures of its rows on dev."""
    export = finished_from(wildcards)
    rows = plan.measured_on_dev(wildcards.system, export)
    return {
        "bundle": plan.exported_file(wildcards.system, wildcards.seed, export),
        "dev": [file for row in rows for file in plan.dev_figures(row, wildcards.seed).values()],
    }


def decoding_bundle(wildcards):
    """The bundle.json of the folder that a decode translates with: it is written last."""
    return plan.decoded_with(plan.decode(wildcards.system, wildcards.search), wildcards.seed)


def computed_figures(wildcards):
    """Figures of a row's sentences that programs of metrics computed."""
    decode = plan.decode(wildcards.system, wildcards.search)
    return plan.computed_figures(decode, wildcards.seed, wildcards.split)


def all_cores(wildcards):
    """The cores that Snakemake was given; those of the setting where it was given none, as on a cluster."""
    return snakemake_parts.cores(workflow, RUNTIME.speed_threads)


def bundle_folders(job):
    """The folder of each decoded system; `input.bundles` lists them in that order."""
    return {system: os.path.dirname(bundle) for system, bundle in zip(DECODED, job.input.bundles)}


def export_folders(job):
    """The folders that decodes of other engines read, by KIND/SYSTEM."""
    return {
        f"{export}/{system}": os.path.dirname(bundle)
        for export in EXPORTED
        for system, bundle in zip(plan.exported_to(export), job.input[export])
    }


def analysis_inputs(analysis):
    """Inputs of an analysis: the bundles it reads, the text of its split, and translations where it reads some."""
    return {
        "bundles": [plan.bundle_file(system, FIRST_SEED) for system in analysis.systems],
        "source": plan.corpus(analysis.split, "source"),
        "target": plan.corpus(analysis.split, "target"),
        "reference": plan.reference(analysis.split),
        **({"details": list(analysis.reads)} if analysis.reads else {}),
    }


def analysis_bundles(job):
    """The folder of each bundle by its system, which its path names."""
    folders = [Path(bundle).parent for bundle in job.input.bundles]
    return {folder.parent.parent.name: str(folder) for folder in folders}


# Whether the experiment has such systems or not, `--forcerun` and `--set-resources` may name them.
TRAININGS = list(dict.fromkeys(family.training_rule for family in families().values() if not family.imported))
# Rules whose families are counted at once, on one CPU.
COUNTED = {family.training_rule for family in families().values() if family.fit}
PROGRAMS = [metric for metric in metrics().values() if metric.program]
IMPORTED = one_of(plan.imported)
OWN_SYSTEMS = one_of([system for system in SYSTEMS if system not in plan.imported])
EXPORTING = [engine for engine in engines().values() if engine.exports]
DECODED = plan.exported
# Speed and examples are taken from the first seed.
EXPORTED_BUNDLES = [plan.bundle_file(system, FIRST_SEED) for system in DECODED]
EXPORTED = {
    engine.exports: [
        plan.export_file(engine.exports, system, FIRST_SEED) for system in plan.exported_to(engine.exports)
    ]
    for engine in EXPORTING
}
# Bundles for users; jobs read the exported ones.
FINISHED = [plan.finished_file(*bundle) for bundle in plan.finished]
# A bundle has weights and subwords whose names differ by system, so that no rule declares them as outputs. Where one is
# lost, its bundle is made anew.
LOST = [file for file in [*(plan.exported_file(*bundle) for bundle in plan.finished), *FINISHED] if lost_files(file)]
if LOST and snakemake_parts.is_main(workflow):
    snakemake_parts.force(LOST)
TRAINED = plan.trained
IMPORTS = [plan.bundle_file(*bundle) for bundle in plan.imports]
# Systems that learn from a teacher's outputs are not teachers.
TEACHERS = [
    (system, seed)
    for system, seed in TRAINED
    if plan.system(system).family.autoregressive and not plan.system(system).teachers
]
# Encoding refuses sentences that are too long to be translated, which is better before trainings than after. No training
# has a test set as its input; they are encoded first of all.
CHECKED = [f"{plan.encoded('raw', name)}.json" for name in plan.loaded.dataset.test_sets]
# Of texts that no system makes: they can be looked at before the first training.
ENCODED_SPLITS = [("raw", split) for split in plan.loaded.held_out]
ENCODED_SPLITS += [(text, "train") for text in plan.encoded_texts if not system_behind(text)]
# Targets beside the rules `download` and `report`: their files, and what `snakemake --list` says of them.
TARGETS = {
    "normalised": ([plan.corpus_summary], "Target: normalised text of every split."),
    "subwords": ([SUBWORDS], "Target: subword models."),
    "encoded": (
        [f"{plan.encoded(*split)}.json" for split in ENCODED_SPLITS],
        "Target: arrays of ids of every split, before any training.",
    ),
    "teachers": (
        [plan.weights(*teacher) for teacher in TEACHERS] + IMPORTS + CHECKED,
        "Target: autoregressive systems that learn from no other's outputs.",
    ),
    "distilled": (
        [plan.distilled_text(*distilled) for distilled in plan.distilled] + CHECKED,
        "Target: translations of the training source by teachers.",
    ),
    "systems": ([plan.weights(*trained) for trained in TRAINED] + IMPORTS + CHECKED, "Target: all trained systems."),
    "bundles": (FINISHED + CHECKED, "Target: a folder to translate with for every decoded system."),
    "chosen": ([plan.chosen(*row) for row in plan.tuned] + CHECKED, "Target: settings of searches that dev chooses."),
    "translations": ([plan.translation(*row) for row in plan.rows] + CHECKED, "Target: translations of every decode."),
    "quality": ([plan.quality(*row) for row in plan.rows] + CHECKED, "Target: scores of every decode."),
}


# What rules that share a stage differ in.
SUBJECTS = {analysis.rule_name: analysis.title for analysis in analyses().values()}
SUBJECTS |= {engine.export_rule: engine.name for engine in EXPORTING}
SUBJECTS |= {metric.rule: metric.name for metric in PROGRAMS}
SUBJECTS |= {
    name: ", ".join(family.name for family in families().values() if family.training_rule == name) for name in TRAININGS
}


def describe(rules):
    """Give rules the words that `snakemake --list` shows: what their stage does, or what their target has."""
    for each in rules:
        if stage_name := getattr(each.params, "stage", None):
            each.docstring = " ".join(filter(None, [stage_summary(stage_name), SUBJECTS.get(each.name)]))
        elif each.name in TARGETS:
            _, each.docstring = TARGETS[each.name]
        elif each.name == "all":
            each.docstring = "Default target: the report, with all that it needs."


def stage_summary(stage):
    """What a stage does: the first paragraph of its module, which is not imported."""
    text = Path(PROJECT, "workflow_src/stages", f"{stage}.py").read_text(encoding="utf-8")
    paragraph = re.match(r'"""(?:Stage(?: \w+)?: )?(.*?)(?:"""|\n\n)', text, re.DOTALL)
    summary = " ".join(paragraph[1].split()) if paragraph else ""
    return summary[:1].upper() + summary[1:]
