"""The rules: dry runs, and the jobs that rerun after a change."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml
from configurations import read_configuration
from conftest import EXPORTS, PROJECT, STAGES, TRAININGS, WRITING, counted, dry_run, scheduled, snakemake
from counted_jobs import jobs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from stage_server import python_module

from workflow_src import registry
from workflow_src.config import Plan, load_experiment
from workflow_src.config.files import experiment_names
from workflow_src.jobs import read_inputs
from workflow_src.records.documents import read_document

SMOKE = str(PROJECT / "config/experiments/smoke.yaml")
BIN = Path(sys.executable).parent
# A workflow that includes ours.
MODULE = (
    "module continuum:\n    snakefile: {snakefile!r}\n    config: {{'experiment': 'smoke'}}\n\n"
    "use rule * from continuum as continuum_*\n"
)


def described(*words: str, folder: Path) -> str:
    """What a dry run says of its jobs without messages: of a job with one, Snakemake shows the message alone."""
    text = f"include: {str(PROJECT / 'Snakefile')!r}\n\nfor each in workflow.rules:\n    each.message = None\n"
    (folder / "telling.smk").write_text(text)
    process = dry_run(*words, snakefile=folder / "telling.smk", folder=folder)
    assert process.returncode == 0, process.stderr + process.stdout
    return process.stdout + process.stderr


def requested(*words: str, folder: Path) -> dict[str, dict[str, str]]:
    """Resources that the jobs of a dry run request, by rule; of several jobs of a rule, the last one's."""
    text = described(*words, folder=folder)
    jobs = re.findall(r"^(?:local)?rule (\w+):\n((?:    .*\n)+)", text, re.MULTILINE)
    lines = [(rule, re.search(r"^    resources: (.*)$", description, re.MULTILINE)) for rule, description in jobs]
    return {rule: dict(word.split("=", 1) for word in line[1].split(", ")) for rule, line in lines if line}


# Dry runs


# Linux takes no argument of 131,072 bytes, and a cluster's command holds this one.
LONGEST_COMMAND = 8192


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_plans_the_jobs_that_the_estimate_counts_in_short_commands(name, tmp_path):
    process = dry_run("--printshellcmds", "--config", f"experiment={name}", folder=tmp_path)
    planned = jobs(Plan(load_experiment(name)))
    assert counted(process) == planned
    commands = commands_of(process)
    assert len(commands) == sum(planned.values())
    assert max(len(command.encode()) for command in commands) < LONGEST_COMMAND


def commands_of(process: subprocess.CompletedProcess) -> list[str]:
    """Commands that a dry run has printed."""
    return re.findall(r"^Shell command: (?!None)(.*)$", process.stdout + process.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("record", "maker"),
    [("distilled/teacher/train.json", "merge_distilled"), ("translations/lvm/seed-1/prior-mean/test.json", "decode")],
)
def test_a_record_is_made_by_its_name(record, maker, tmp_path):
    assert scheduled(f"results/smoke/{record}", "--configfile", SMOKE, folder=tmp_path)[maker] == 1


def test_damaged_counts_of_monolingual_text_leave_other_jobs_alone(tmp_path):
    counts = tmp_path / "results/smoke/corpus/monolingual.json"
    counts.parent.mkdir(parents=True)
    counts.write_text("{")
    (tmp_path / "news.de").write_text("ein Satz\n")
    text = yaml.safe_load(CHANGES["text of one language"][0])
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"experiment": "smoke", **text}))
    assert scheduled("teachers", "--configfile", "mine.yaml", folder=tmp_path)["train_teacher"] == 1


def test_a_key_that_stands_twice_in_a_file_of_the_command_line_is_refused(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("experiment: smoke\nseeds: [1]\nseeds: [2]\n")
    process = dry_run("--configfile", str(path), folder=tmp_path)
    assert process.returncode == 1 and f"{path} " in process.stdout + process.stderr
    assert '"seeds" twice' in process.stdout + process.stderr


def test_the_default_is_the_demo_and_its_dry_run_imports_no_torch(tmp_path):
    # A module of that name which cannot be imported makes any attempt fail.
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [str(BIN / "snakemake"), "-s", str(PROJECT / "Snakefile"), "--dry-run", "--quiet", "all"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert scheduled(folder=tmp_path) == jobs(Plan(load_experiment("demo")))


@pytest.mark.parametrize(
    ("target", "last"),
    [
        ("download", {"download"}),
        ("normalised", {"normalise"}),
        ("subwords", {"learn_subwords"}),
        ("teachers", {"train_teacher"}),
        ("encoded", {"encode"}),
        ("distilled", {"merge_distilled"}),
        ("systems", {"train_refiner", "train_nat", "train_language_model"}),
        ("bundles", {"finish_bundle"}),
        ("chosen", {"choose_settings"}),
        ("translations", {"decode"}),
        ("quality", {"score_quality"}),
        ("report", {"report"}),
    ],
)
def test_targets_stop_where_their_name_says(target, last, tmp_path):
    flow = [
        *("download", "download_monolingual", "clean", "clean_monolingual", "normalise", "normalise_monolingual"),
        "learn_subwords",
        *("encode", "train_teacher", "distill", "merge_distilled", "score_pairs", "keep_likely"),
        *sorted(set(TRAININGS) - {"train_teacher", "train_refiner"}),
        *("train_refiner", "export_bundle", *EXPORTS, "choose_settings", "decode_shard", "decode", "score_quality"),
        *("finish_bundle", "compare_rows", "measure_speed", "analyse", *ANALYSES, "report"),
    ]
    planned = scheduled(target, "--configfile", SMOKE, folder=tmp_path)
    assert max(planned, key=flow.index) in last


@pytest.mark.parametrize("how", ["from the folder", "--directory", "module"])
def test_the_package_beside_the_snakefile_is_used_whatever_lies_in_the_folder(how, hollow_project, tmp_path):
    for package in ("", "config", "stages"):
        (tmp_path / "workflow_src" / package).mkdir(exist_ok=True)
        (tmp_path / "workflow_src" / package / "__init__.py").write_text("raise SystemExit('a decoy was imported')\n")
    snakefile, words = hollow_project / "Snakefile", ["normalised", "--cores", "1", "--config", "experiment=smoke"]
    if how == "module":
        snakefile = tmp_path / "Snakefile"
        snakefile.write_text(MODULE.format(snakefile=str(hollow_project / "Snakefile")))
        words = ["continuum_normalised", "--cores", "1"]
    if how == "--directory":
        words += ["--directory", str(tmp_path)]
    folder = hollow_project.parent if how == "--directory" else tmp_path
    process = snakemake(*words, snakefile=snakefile, folder=folder)
    assert process.returncode == 0, process.stderr
    assert json.loads((tmp_path / "results/smoke/corpus/corpus.json").read_text())["stage"] == "normalise"


def test_a_package_of_that_name_that_was_imported_before_is_reported(tmp_path):
    foreign = tmp_path / "workflow_src"
    foreign.mkdir()
    (foreign / "__init__.py").touch()
    (tmp_path / "Snakefile").write_text("import workflow_src\n\n" + MODULE.format(snakefile=str(PROJECT / "Snakefile")))
    process = dry_run("continuum_report", snakefile=tmp_path / "Snakefile", folder=tmp_path)
    output = process.stdout + process.stderr
    assert process.returncode == 1 and f"a package workflow_src was imported from {foreign} before" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--config", "experiment=dmo"], "experiment is 'dmo'; allowed: "),
        (["--config", "sedes=[1]"], "sedes: no such setting; allowed: "),
        (["--config", "seeds=[one]"], "seeds[0] is 'one'; "),
        (["--config", "runtime={device: tpu}"], "runtime.device is 'tpu'; "),
    ],
)
def test_a_wrong_setting_ends_snakemake_with_a_sentence(words, sentence, tmp_path):
    process = dry_run(*words, folder=tmp_path)
    assert process.returncode == 1
    output = process.stdout + process.stderr
    assert sentence in output
    assert "Traceback" not in output
    assert [path.name for path in tmp_path.iterdir()] in ([], [".snakemake"])


@pytest.mark.parametrize(
    ("runtime", "command"),
    [
        ("{}", "python -m workflow_src.stages.train"),
        (
            "{devices: 2}",
            "PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 PET_SHUTDOWN_TIMEOUT=300 "
            "python -m torch.distributed.run --nproc-per-node 2 --standalone -m -- workflow_src.stages.train",
        ),
        (
            "{devices: 4, nodes: 2}",
            "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 python -m torch.distributed.run --nproc-per-node 4 "
            "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint $(hostname):$((20000 + RANDOM % 20000)) --rdzv-id $RANDOM "
            "-m -- workflow_src.stages.train",
        ),
    ],
)
def test_torchrun_starts_trainings_of_more_than_one_device(runtime, command, tmp_path):
    words = ["--printshellcmds", "--configfile", SMOKE, "--config", f"runtime={runtime}"]
    process = dry_run(*words, folder=tmp_path)
    assert process.returncode == 0, process.stderr
    lines = (process.stdout + process.stderr).splitlines()
    commands = [line.strip() for line in lines if "stages.train --job" in line and "/train_teacher/" in line]
    assert len(commands) == 1 and f"{command} --job" in commands[0]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--set-resources", "train_lvm:mem_mb=64000", "train_lvm:runtime=2880"],
        ["--set-resources", "train_lvm:gpu_model=a100"],
        ["--set-resources", "train_lvm:slurm_extra='--gpus-per-node=4'"],
        ["--default-resources", "slurm_extra='--exclude=node7'"],
        ["--default-resources", "constraint=ib"],
    ],
)
def test_speed_is_measured_on_a_node_of_its_own_whatever_else_is_asked_for(words, tmp_path):
    resources = requested("report", "--configfile", SMOKE, *words, folder=tmp_path)
    assert resources["measure_speed"]["slurm_extra"] == "--exclusive"
    if words:
        rule, name, value = re.match(r"(?:(\w+):)?(\w+)='?([^']*)", words[1]).groups()
        assert resources[rule or "train_lvm"][name] == value
    # Resources of rules in a profile are lost as soon as the command line sets any for a rule.
    profile = yaml.safe_load((PROJECT / "config/profiles/slurm/config.yaml").read_text())
    assert "set-resources" not in profile and "slurm_extra" not in str(profile)


def test_jobs_share_a_gpu_that_snakemake_counts_and_measuring_speed_has_it_alone(tmp_path):
    words = ["--configfile", SMOKE, "--config", "runtime={device: cuda, jobs_per_gpu: 5}"]
    counted = requested("report", *words, "--resources", "gpu=1", folder=tmp_path)
    assert (counted["measure_speed"]["gpu"], counted["train_lvm"]["gpu"], counted["decode"]["gpu"]) == ("5", "1", "1")
    # On a cluster every job gets a GPU.
    assert requested("report", *words, folder=tmp_path)["measure_speed"]["gpu"] == "1"


def test_a_decode_that_only_joins_shards_asks_for_no_gpu_and_little_time(tmp_path):
    content = yaml.safe_load(Path(SMOKE).read_text())
    content["decodes"] = [{"system": "teacher", "search": "beam", "beam": 4, "shards": 3}]
    content["recipe"]["limits"] = {"test": 1_000_000}
    content["runtime"] |= {"device": "cuda", "partition": "cpu", "gpu_partition": "gpu"}
    resources = {}
    for shards in (1, 3):
        content["decodes"][0]["shards"] = shards
        (tmp_path / "gpu.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        resources[shards] = requested("translations", "--configfile", "gpu.yaml", folder=tmp_path)
    names = ("gpu", "slurm_partition", "mem_mb", "runtime")
    assert [resources[3]["decode"].get(name) for name in names] == ["0", "cpu", "2000", "15"]
    for job in (resources[3]["decode_shard"], resources[1]["decode"]):
        assert [job[name] for name in names[:2]] == ["1", "gpu"] and int(job["mem_mb"]) > 6000


@pytest.mark.parametrize("how", ["--configfile", "--config", "check", "dataset"])
def test_yaml_that_builds_objects_is_refused_and_nothing_runs(how, hollow_project, tmp_path):
    trap = f"!!python/object/apply:os.mkdir ['{tmp_path / 'sprung'}']"
    (tmp_path / "evil.yaml").write_text(f"experiment: {trap}\n")
    if how == "check":
        command = python_module("workflow_src.cli", "check", str(tmp_path / "evil.yaml"))
        process = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    elif how == "dataset":
        project = shutil.copytree(hollow_project, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
        (project / "config/datasets/evil.yaml").write_text(f"name: {trap}\n")
        words = ("--config", "experiment=tatoeba", "recipe={dataset: evil}")
        process = dry_run(*words, snakefile=project / "Snakefile", folder=tmp_path)
    else:
        value = str(tmp_path / "evil.yaml") if how == "--configfile" else f"experiment={trap}"
        process = dry_run(how, value, folder=tmp_path)
    output = process.stdout + process.stderr
    assert process.returncode not in (0, 70) and "Traceback" not in output
    messages = {"--configfile": "not valid JSON or YAML", "--config": "allowed: an experiment of config/experiments/"}
    assert messages.get(how, "could not determine a constructor for the tag") in output
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("words", [["--dag"], ["--rulegraph"], ["--filegraph"]])
def test_graphs_are_drawn(words, tmp_path):
    process = dry_run(*words, "--configfile", SMOKE, folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "digraph" in process.stdout and "train_refiner" in process.stdout


def test_nodes_of_the_graph_of_jobs_name_what_they_are_of(tmp_path):
    process = dry_run("--dag", "--configfile", SMOKE, folder=tmp_path)
    nodes = [label.split(r"\n") for label in re.findall(r'\[label = "(.*?)", color', process.stdout)]
    parts_of_nodes = {
        "export_bundle": {"system", "seed"},
        "export_ctranslate2": {"system", "seed"},
        "choose_settings": {"system", "seed", "search"},
        "decode": {"system", "seed", "search", "split"},
        "score_quality": {"system", "seed", "search", "split"},
        "train_refiner": {"system", "seed"},
    }
    for rule, names in parts_of_nodes.items():
        wildcards_of_nodes = [{word.split(": ")[0] for word in words} for name, *words in nodes if name == rule]
        assert wildcards_of_nodes and wildcards_of_nodes == [names] * len(wildcards_of_nodes)
    # No two nodes say the same.
    assert len(set(map(tuple, nodes))) == len(nodes)


# Style of the rules


TELLING = """
include: {snakefile!r}

import json

PARTS = "input output log benchmark params resources conda_env message".split()
print("RULES", json.dumps({{
    each.name: [each.shellcmd, [part for part in PARTS if not getattr(each, part)], sorted(each.resources)]
    for each in workflow.rules if each.name not in ("all", *plan.targets)
}}))
"""


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("results/smoke/translations/lvm/seed-1/delta-11/test.txt", ("delta-11", 'did you mean "delta-1"?')),
        ("./results/smoke/translations/lvm/seed-1/delta-11/test.txt", ("delta-11", 'did you mean "delta-1"?')),
        ("results/smoke/translations/lvms/seed-1/delta-1/test.txt", ("lvms", 'did you mean "lvm"?')),
        ("results/smoke/systems/scores/seed-1/model.safetensors", ("scores", 'did you mean "score"?')),
    ],
)
def test_a_file_of_a_decode_that_is_none_is_refused_in_one_sentence(target, named, tmp_path):
    process = dry_run(target, "--configfile", SMOKE, "--quiet", "all", folder=tmp_path)
    said = process.stdout + process.stderr
    assert process.returncode != 0 and all(part in said for part in named)
    assert "KeyError" not in said and "InputFunctionException" not in said


def test_every_rule_is_described_where_rules_are_listed(tmp_path):
    process = snakemake("--list", "--configfile", SMOKE, folder=tmp_path)
    lines = [line for line in process.stdout.splitlines() if line]
    assert len(lines) > 30 and [line for line in lines if not re.fullmatch(r"\w+ \(.{15,}\)", line)] == []


def test_a_job_that_waits_in_a_queue_keeps_the_configuration_that_its_run_began_with(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text(Path(SMOKE).read_text().replace("experiment: smoke\n", "experiment: mine\n"))
    process = snakemake("normalised", "--cores", "1", "--configfile", str(own), folder=tmp_path)
    assert process.returncode == 0, process.stderr
    (began,) = (tmp_path / "work/jobs/configuration").iterdir()
    assert "vocabulary_size: 300" in own.read_text()
    own.write_text(own.read_text().replace("vocabulary_size: 300", "vocabulary_size: 310"))
    # As an executor starts a job on another machine, which inherits the variables of its run.
    words = (
        "--mode",
        "remote",
        "--target-jobs",
        "learn_subwords:",
        "--force",
        "--cores",
        "1",
        "--configfile",
        str(own),
    )
    variables = {"CONTINUUM_BEGUN": json.dumps({"mine": str(began.relative_to(tmp_path))})}
    process = snakemake(*words, folder=tmp_path, variables=variables)
    assert process.returncode == 0, process.stderr
    (document,) = (tmp_path / "work/jobs/learn_subwords").iterdir()
    assert json.loads(document.read_text())["settings"]["vocabulary_size"] == 300


# Says what Snakemake asks of Conda before it writes a Dockerfile; it makes no environment.
CONDA = """#!/bin/sh
case "$1" in
  info) echo '{"conda_version": "25.3.0", "conda_prefix": "/c", "root_prefix": "/c", "platform": "linux-64"}';;
  config) echo '{"get": {"channel_priority": "strict"}}';;
  *) echo "conda 25.3.0";;
esac
"""


def test_a_dockerfile_has_the_environments_of_all_rules(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "conda").write_text(CONDA)
    (programs / "conda").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    process = snakemake("--containerize", "--configfile", SMOKE, folder=tmp_path, variables={"PATH": path})
    assert process.returncode == 0 and process.stdout.startswith("FROM "), process.stderr
    environments = {path.name for path in (PROJECT / "envs").glob("*.yaml")}
    copied = {Path(line.split()[1]).name for line in process.stdout.splitlines() if line.startswith(("COPY", "ADD"))}
    assert copied == environments


def test_every_document_has_the_inputs_of_its_stage(tmp_path, monkeypatch):
    (tmp_path / "written.smk").write_text(WRITING.format(snakefile=str(PROJECT / "Snakefile")))
    content = yaml.safe_load(Path(SMOKE).read_text())
    content["recipe"] |= {"clean": {"numbers": {}}, "placeholders": True, "monolingual": [{"texts": {"de": "news.de"}}]}
    back = {"family": "transformer", "preset": "tiny", "reversed": True, "training": {"max_steps": 9}}
    texts = {"likely-by-teacher": 1, "monolingual-by-teacher": 0.5}
    content["systems"] |= {"back": back, "ctc": content["systems"]["ctc"] | {"data": texts}}
    content |= {"likelihood": {"teacher": {"backward": "back", "shards": 2}}, "metrics": {"comet": {"download": "a/b"}}}
    content["decodes"][0]["shards"] = 2
    content["recipe"]["subwords_from"] = "elsewhere"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/subwords.json").write_text("{}")
    (tmp_path / "news.de").write_text("text\n")
    overlay = tmp_path / "much.yaml"
    overlay.write_text(yaml.safe_dump(content, sort_keys=False))
    words = ("report", "--printshellcmds", "--configfile", str(overlay))
    process = dry_run(*words, snakefile=tmp_path / "written.smk", folder=tmp_path)
    assert process.returncode == 0, process.stderr
    (run,) = (tmp_path / "work/jobs/run").iterdir()
    ran, fields = set(), set()
    for command in commands_of(process):
        module, *line = shlex.split(command)[2:]
        stage = importlib.import_module(module)
        assert line[::2] == ["--job", "--run", "--log", "--threads"] and line[5].startswith("logs/")
        assert tmp_path / line[3] == run
        read_inputs(stage.Inputs, tmp_path / line[1], run, int(line[7]))
        ran.add(module.rpartition(".")[2])
        fields |= stage.Inputs.model_fields.keys()
    # A setting of the machine that no stage reads would have no effect.
    assert read_document(run).keys() <= fields
    # A system made elsewhere and its files take the place of another experiment.
    assert ran == {*STAGES} - {"import_model"}


def test_every_rule_states_everything(tmp_path):
    """In files and in loops over what is declared alike."""
    (tmp_path / "telling.smk").write_text(TELLING.format(snakefile=str(PROJECT / "Snakefile")))
    process = dry_run("--configfile", SMOKE, snakefile=tmp_path / "telling.smk", folder=tmp_path)
    rules = json.loads(re.search(r"^RULES (.*)$", process.stdout + process.stderr, re.MULTILINE)[1])
    programs = {metric.rule for metric in registry.metrics().values() if metric.program}
    assert rules.keys() > {*TRAININGS, *EXPORTS, *programs, "decode", "decode_shard", "download_monolingual"}
    for name, (command, missing, resources) in rules.items():
        # Snakemake compares the text, so that whatever may be edited is elsewhere.
        python, module, line = re.fullmatch(r"(.*) workflow_src\.stages\.(\S+) (.*)", command).groups()
        started = ("{resources.launch}", "train") if name in TRAININGS else ("python -m", "{params.stage}")
        assert (python, module) == started, name
        assert line == "--job {params.job} --run {params.run} --log {log:q} --threads {threads}", name
        # Downloads have no input files.
        assert set(missing) <= ({"input"} if name in ("download", "download_monolingual") else set()), name
        assert {"mem_mb", "runtime"} <= set(resources), f"rule {name} says no memory or time"


def pinned(lines: Iterable[str]) -> dict[str, str]:
    """Versions of packages by their names, of lines such as `torch==2.13.0`."""
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def locked() -> dict[str, str]:
    lines = (PROJECT / "requirements.lock").read_text().splitlines()
    return pinned(line for line in lines if line and not line.startswith("#"))


def test_the_environments_agree_with_the_lock():
    lock = locked()
    # Versions of a package index, which have no word for one machine.
    assert "setuptools" in lock and "+" not in "".join(lock.values())
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    # The extra `fast` is part of the environments: experiments compare with it.
    lines = project["dependencies"] + project["optional-dependencies"]["fast"]
    direct = {canonicalize_name(Requirement(line).name) for line in lines} - {"snakemake"}
    for kind in ("cpu", "gpu"):
        environment = yaml.safe_load((PROJECT / f"envs/{kind}.yaml").read_text())
        pip = environment["dependencies"][-1]["pip"]
        versions = pinned(line for line in pip if not line.startswith("--"))
        assert versions == {name: lock[name] for name in direct}
    # Packages of the stage that starts a metric's program; the others are the program's.
    environment = yaml.safe_load((PROJECT / "envs/comet.yaml").read_text())
    versions = pinned(environment["dependencies"][-1]["pip"])
    stage = {"torch", "pydantic", "pyyaml", "rich"}
    assert {name: versions[name] for name in stage} == {name: lock[name] for name in stage}


def _imported(path: Path) -> set[str]:
    """Packages that a module or a rule's file imports, but for those that only type checkers read."""
    text = path.read_text()
    if path.suffix != ".py":
        return set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
    tree = ast.parse(text)
    skipped = {id(node) for branch in ast.walk(tree) if _for_types(branch) for node in ast.walk(branch)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in skipped:
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def test_what_is_imported_is_declared_and_what_it_needs_is_locked():
    """On a machine that has nothing else: also what the packages import, by their own requirements."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    requirements = {canonicalize_name(line.name): line for line in map(Requirement, lines)}
    modules = [*(PROJECT / "workflow_src").rglob("*.py"), *(PROJECT / "rules").glob("*.smk"), PROJECT / "Snakefile"]
    # Programs of metrics run in environments of their own.
    imported = set().union(*(_imported(path) for path in modules if path.name != "program.py"))
    # `compression` comes with Python 3.14.
    foreign = imported - sys.stdlib_module_names - {"workflow_src", "compression"}
    distributions = importlib.metadata.packages_distributions()
    assert len(foreign) > 20
    assert not {
        name for name in foreign if not requirements.keys() & set(map(canonicalize_name, distributions.get(name, [])))
    }
    lock = locked()
    assert all(line.specifier.contains(lock[name]) for name, line in requirements.items())
    for name in lock:
        # Not every pinned package is for this machine.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            needed = map(Requirement, importlib.metadata.requires(name) or [])
            lines_here = (line for line in needed if not line.marker or line.marker.evaluate({"extra": ""}))
            here = {canonicalize_name(line.name) for line in lines_here}
            assert here <= lock.keys() or name == "torch", f"{name} needs {here - lock.keys()}"


# Reruns: in a clone elsewhere whose stages write empty files, run once


@pytest.fixture(scope="module")
def finished(hollow_run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    shutil.copytree(hollow_run, folder)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/subwords.json").write_text("{}")
    return folder


# Analyses of the experiment smoke in the order of their rules; lengths: of the latent-variable model, all searches.
# Rules that run again, with the number of their jobs.
ANALYSES = dict.fromkeys(
    ("estimate_marginal", "compare_tokens", "measure_lengths", "sample_translations", "map_latent_space"), 1
)
SHOWN = {"compare_rows": 1, "measure_speed": 1, "analyse": 1, "report": 1}
ENDS = SHOWN | ANALYSES
# Analyses that follow every refining system.
OF_REFINERS = {"estimate_marginal": 1, "compare_tokens": 1, "measure_lengths": 1}
CHOICE = {"choose_settings": 1}
# Systems that learn from the teacher's translations, beside the latent-variable model; two rows choose settings.
CTC = {"train_nat": 1, "train_language_model": 1, "choose_settings": 2}
LATENT = {"train_lvm": 1, "train_refiner": 2}
DISTILLED = {"distill": 2, "merge_distilled": 1, "encode": 1, **LATENT, **CTC}
BUNDLES = {"export_bundle": 6, "export_ctranslate2": 1, "finish_bundle": 7}


def decoded(rows: int) -> dict[str, int]:
    return {"decode": rows, "score_quality": rows}


AFTER_REFINER = {"train_refiner": 1, "export_bundle": 1, "finish_bundle": 1, **decoded(5), **CHOICE, **ENDS}
AFTER_CTC = {"train_nat": 1, "export_bundle": 1, "finish_bundle": 1, **decoded(4), **CHOICE, **SHOWN}
AFTER_LATENT = {**LATENT, "export_bundle": 3, "finish_bundle": 3, **decoded(8), **CHOICE, **ENDS}
AFTER_TEACHER = {"train_teacher": 1, **DISTILLED, **BUNDLES, **decoded(15), **ENDS}
AFTER_DISTILLATION = {**DISTILLED, "export_bundle": 5, "finish_bundle": 5, **decoded(12), **ENDS}
AFTER_SUBWORDS = AFTER_TEACHER | {"learn_subwords": 1, "encode": 4}
ALL = jobs(Plan(load_experiment("smoke")))
AFTER_DOWNLOAD = {rule: count for rule, count in ALL.items() if rule != "download"}
# Changes of a finished experiment that rerun nothing.
UNCHANGING = {
    "sentences distilled together": "distillation: {teacher: {batch: 7}}",
    "sentences decoded together": "decodes: "
    + json.dumps([decode | {"batch": 7} for decode in yaml.safe_load(Path(SMOKE).read_text())["decodes"]]),
    "how often training state is saved": (
        "systems: {teacher: {training: {save_every: 7}}, score: {training: {save_every: 7, max_skipped: 3}}, "
        "lvm: {training: {save_every: auto}}}"
    ),
    "device, threads, precision, logging": (
        "runtime: {device: cpu, training_threads: 1, precision: float32, compile: true, log_every: 7, devices: 2, "
        "save_minutes: 0.5, jobs_per_gpu: 2, speed_threads: 4, pythons: {comet: /some/python}, scoring_batch: 3}"
    ),
    "memory, time, GPUs and partitions of jobs": (
        "runtime: {device: cuda, partition: small, gpu_partition: large, longest_job: 7, largest_job: 900}"
    ),
    "mirrors": "mirrors: [/some/where, '/some where/else']\nallow_unpinned: true",
    "who computes the distillation": "distillation: {teacher: {engine: eager}}",
    "seed of the teacher, said explicitly": "distillation: {teacher: {seed: 1}}",
    "samples decoded together": "analyses: {marginal: {chunk: 3}}",
    "patience with downloads": "runtime: {download_attempts: 9, download_wait: 0.5, download_timeout: 5}",
    "text of one language that no system learns from": "recipe: {monolingual: [{texts: {de: news.de}}]}",
    "how likely pairs are that no system learns from": "likelihood: {teacher: {keep: 0.5}}",
}
# Rules that run again after a change, with the number of their jobs.
CHANGES = {
    "title, margin and published figures": (
        "report: {title: Another, margin: 1.0, expected: {greedy: 9.0}, expected_convention: tokenised}",
        {"report": 1},
    ),
    "how repetitions are removed": (
        "report: {remove_repetitions: words}",
        {**decoded(2), "choose_settings": 2, "finish_bundle": 7, "measure_lengths": 1}
        | {rule: 1 for rule in SHOWN if rule != "analyse"},
    ),
    "what a bundle searches with": (
        "systems: {ctc: {search_defaults: {ctc-beam: {word_bonus: 1.0}}}}",
        {"finish_bundle": 1, "report": 1},
    ),
    "a share of augmented pairs": ("systems: {ctc: {training: {augment: {upper: 0.1}}}}", {"encode": 1, **AFTER_CTC}),
    "metrics": ("metrics: [bleu, chrf, ter]", {"score_quality": 15, "compare_rows": 1, "report": 1}),
    "a metric that a program computes": (
        "metrics: {chrf: {}, comet: {download: some/model}}",
        {"score_comet": 15, "score_quality": 15, "compare_rows": 1, "report": 1},
    ),
    "number of examples": ("report: {examples: 4}", {"analyse": 1, "report": 1}),
    "samples of one analysis": ("analyses: {marginal: {samples: 11}}", {"estimate_marginal": 1, "report": 1}),
    # The report names it.
    "name of a preset": (
        "systems: {score: {preset: tiny, model: {dim: 32, feed_forward: 64, heads: 2, layers: 1, latent_dim: 2, "
        "dropout: 0.1}}}",
        {"report": 1},
    ),
    "an analysis switched off": ("analyses: {tokens: {enabled: false}}", {"report": 1}),
    "learning rate of the energy network": (
        "systems: {energy: {training: {learning_rate: 0.001}}}",
        {"train_refiner": 1, "export_bundle": 1, "finish_bundle": 1, **decoded(1), **SHOWN, **OF_REFINERS},
    ),
    "how speed is measured": ("speed: {repeats: 3}", {"measure_speed": 1, "report": 1}),
    "learning rate of a refiner": ("systems: {score: {training: {learning_rate: 0.001}}}", AFTER_REFINER),
    "learning rate of the teacher": ("systems: {teacher: {training: {learning_rate: 0.001}}}", AFTER_TEACHER),
    "tokeniser of BLEU": ("recipe: {bleu_tokeniser: char}", AFTER_TEACHER),
    "learning rate of the latent-variable model": ("systems: {lvm: {training: {learning_rate: 0.001}}}", AFTER_LATENT),
    "how finely a figure is drawn": ("analyses: {latent_space: {resolution: 8}}", {"map_latent_space": 1, "report": 1}),
    "one more system that nothing is decoded with": (
        "systems: {wide: {family: score, preset: miniature, model: {latent_dim: 2}, base: lvm, "
        "training: {max_steps: 20}}}",
        {"train_refiner": 1, "report": 1},
    ),
    # Files that are joined from other shards are joined anew, and all that follow from them are made anew.
    "number of shards": ("distillation: {teacher: {shards: 5}}", AFTER_DISTILLATION | {"distill": 5}),
    "beam of distillation": ("distillation: {teacher: {beam: 3}}", AFTER_DISTILLATION),
    "size of the subwords": ("recipe: {subwords: {vocabulary_size: 250}}", AFTER_SUBWORDS),
    "the longest training pairs": ("recipe: {max_length: 100}", AFTER_TEACHER | {"encode": 4}),
    "training pairs that test has too": ("recipe: {held_out: remove}", AFTER_DOWNLOAD),
    "what is normalised": ("recipe: {normalisation: {max_characters: 200}}", AFTER_DOWNLOAD),
    "tokenised text": ("recipe: {tokenised: {de: moses}}", AFTER_DOWNLOAD),
    "placeholders": ("recipe: {placeholders: true}", AFTER_DOWNLOAD),
    "a filter of the training text": ("recipe: {clean: {repeated: {}}}", {"clean": 1} | AFTER_DOWNLOAD),
    "positions of one model, which encoding looks at": (
        "systems: {lm: null, lvm: null, score: null, energy: null, ctc: null, "
        "teacher: {model: {max_positions: 100}}}\ndecodes: [{system: teacher, search: greedy}]\nanalyses: null",
        {"train_teacher": 1, "export_bundle": 1, "finish_bundle": 1, **decoded(1), **SHOWN},
    ),
    "subwords from elsewhere": ("recipe: {subwords_from: elsewhere}", AFTER_SUBWORDS),
    "another seed of the corpus": ("recipe: {dataset: {generator: {seed: 2}}}", ALL),
    "texts that a system learns from, and their weights": (
        "systems: {ctc: {data: {raw: 1, distilled-by-teacher: 0.5}}}",
        AFTER_CTC,
    ),
    "text of one language": (
        "recipe: {monolingual: [{texts: {de: news.de}}]}\n"
        "systems: {ctc: {data: {distilled-by-teacher: 1, monolingual-by-teacher: 0.5}}}",
        {"download_monolingual": 1, "normalise_monolingual": 1, "distill": 2, "merge_distilled": 1, "encode": 1}
        | AFTER_CTC,
    ),
    "pairs that a system finds likely": (
        "systems: {ctc: {data: likely-by-teacher}}",
        {"score_pairs": 1, "keep_likely": 1} | AFTER_CTC,
    ),
    "pairs that two systems find likely, one in each direction": (
        "systems: {ctc: {data: likely-by-teacher}, back: {family: transformer, preset: tiny, reversed: true, training: "
        "{max_steps: 9}}}\nlikelihood: {teacher: {backward: back}}",
        {"train_teacher": 1, "score_pairs": 2, "keep_likely": 1} | AFTER_CTC,
    ),
    "one more seed": (
        "seeds: [1, 2]",
        {"train_teacher": 1, **LATENT, **CTC, **BUNDLES, **decoded(15), "compare_rows": 1, "report": 1},
    ),
}


def test_changes_that_alter_no_result_rerun_nothing(finished, hollow_project, tmp_path):
    """All together: one that reran a job would do so beside the others too."""
    overlays = []
    for number, text in enumerate(UNCHANGING.values()):
        overlays.append(tmp_path / f"{number}.yaml")
        overlays[-1].write_text(f"experiment: smoke\n{text}\n")
    words = ("--configfile", *map(str, overlays))
    assert scheduled(*words, project=hollow_project, folder=finished) == {}


@pytest.mark.parametrize("split", ["dev", "test"])
def test_references_that_a_model_cannot_read_are_encoded_again(split, finished, hollow_project, tmp_path):
    """As after a change of `max_positions`: encoding refuses them before a training."""
    readable = Plan(load_experiment("smoke")).longest
    description = Path(f"results/smoke/encoded/raw/{split}.json")
    copy = shutil.copytree(finished, tmp_path / "copy")
    date = (copy / description).stat()
    for longest, expected in ((readable, {}), (readable + 1, {"encode": 1})):
        (copy / description).write_text(json.dumps({"longest": longest}))
        os.utime(copy / description, ns=(date.st_atime_ns, date.st_mtime_ns))
        words = (str(description), "--configfile", SMOKE)
        assert scheduled(*words, project=hollow_project, folder=copy) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reruns_what_it_touches_and_nothing_else(change, finished, hollow_project, tmp_path):
    text, expected = CHANGES[change]
    overlay = tmp_path / "change.yaml"
    overlay.write_text(f"experiment: smoke\n{text}\n")
    assert scheduled("--configfile", str(overlay), project=hollow_project, folder=finished) == expected


def run_to_the_end(*words: str, project: Path, folder: Path, cores: int = 1) -> None:
    words = ("--cores", str(cores), *words)
    process = snakemake(*words, snakefile=project / "Snakefile", folder=folder)
    assert process.returncode == 0, process.stderr


def edited(project: Path, folder: Path, edits: dict[str, tuple[str, str]]) -> Path:
    """A copy of a project in `folder`, in which each file has a text in place of another."""
    copy = shutil.copytree(project, folder / "edited", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (old, new) in edits.items():
        text = (copy / name).read_text()
        assert old in text, name
        (copy / name).write_text(text.replace(old, new, 1))
    return copy


def test_another_input_of_a_stage_and_settings_at_their_defaults_rerun_nothing(finished, hollow_project, tmp_path):
    """An input of a stage that changes no result; new settings of a training, a model, a search and a metric."""
    project = edited(
        hollow_project,
        tmp_path,
        {
            "workflow_src/runtime/rule_params.py": (
                '            "batch": lambda job: self.plan.decode_of(job.wildcards).batch,\n',
                "",
            ),
            "workflow_src/config/training.py": (
                "    accumulate: int =",
                "    sharpness: float = 0.5\n    accumulate: int =",
            ),
            "workflow_src/nn/settings.py": ("    dim: int", "    sharpness: float = 0.5\n    dim: int"),
            "workflow_src/searches/beam/__init__.py": (
                "    length_penalty: Annotated",
                "    sharpness: Annotated[float, Option()] = 0.5\n    length_penalty: Annotated",
            ),
            "workflow_src/config/preparation.py": (
                "class NormalisationConfig(Frozen):\n",
                "class NormalisationConfig(Frozen):\n    sharpness: float = 0.5\n\n",
            ),
        },
    )
    assert scheduled("--configfile", SMOKE, project=project, folder=finished) == {}


def test_a_changed_default_reruns_what_has_it(finished, hollow_project, tmp_path):
    edit = ("class BeamSettings(SearchSettings):\n", "class BeamSettings(SearchSettings):\n    defaults_number = 2\n\n")
    project = edited(hollow_project, tmp_path, {"workflow_src/searches/beam/__init__.py": edit})
    planned = scheduled("--configfile", SMOKE, project=project, folder=finished)
    assert planned["decode"] >= 2 and "train_teacher" not in planned


@pytest.mark.runs
def test_experiments_of_one_recipe_that_score_differently_leave_each_other_alone(finished, hollow_project, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    overlay = copy / "other.yaml"
    overlay.write_text(
        "experiment: other\nextends: smoke\nmetrics: [bleu, chrf, ter]\nreport: {remove_repetitions: words}\n"
    )
    words = ("--configfile", str(overlay))
    planned = scheduled(*words, project=hollow_project, folder=copy)
    assert planned["decode"] == planned["choose_settings"] == 2 and planned["score_quality"] == 15
    assert not {rule for rule in planned if rule.startswith(("train_", "export_", "distill"))}
    run_to_the_end(*words, project=hollow_project, folder=copy, cores=2)
    for configuration in (SMOKE, str(overlay)):
        assert scheduled("--configfile", configuration, project=hollow_project, folder=copy) == {}


@pytest.mark.runs
def test_no_two_jobs_share_a_log_or_a_benchmark(tmp_path):
    """Names of systems may end in what looks like a seed, and those of decodes like a split."""
    content = yaml.safe_load(Path(SMOKE).read_text())
    content["experiment"], content["seeds"] = "alike", [1, 11]
    for name in ("score-1", "score-1-score"):
        content["systems"][name] = content["systems"]["score"]
        content["decodes"] += [{"system": name, "search": "score", "steps": 1, "name": each} for each in ("a", "1-a")]
    content["analyses"] = {}
    (tmp_path / "alike.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    text = described("report", "--configfile", "alike.yaml", folder=tmp_path)
    for part in ("log", "benchmark"):
        paths = re.findall(rf"^    {part}: (.*?)(?: \(check log.*)?$", text, re.MULTILINE)
        assert len(paths) > 100 and len(set(paths)) == len(paths)


def test_a_changed_text_of_a_test_set_trains_nothing(finished, hollow_project, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    (copy / "results/smoke/corpus/test.de").write_text("another text")
    planned = scheduled("--configfile", SMOKE, project=hollow_project, folder=copy)
    assert planned["encode"] == 1 and planned["decode"] == 15
    assert not {rule for rule in planned if rule.startswith(("train_", "export_", "distill"))}


@pytest.mark.parametrize("target", ["teachers", "report"])
def test_test_sets_are_encoded_first_of_all(target, tmp_path):
    """Before trainings, because encoding refuses sentences that are too long to be translated."""
    text = described(target, "--configfile", SMOKE, folder=tmp_path)
    priorities = dict(re.findall(r"wildcards: text=\w+, split=(\w+)\n    priority: (\d+)", text))
    assert int(priorities["test"]) > int(priorities["dev"]) == int(priorities["train"])


def priorities_in_order(folder: Path, *settings: str) -> tuple[dict[str, int], nx.DiGraph]:
    """Priorities of the jobs of a dry run by their outputs, and which jobs read files of which."""
    text = described("report", "--config", *settings, folder=folder)
    graph, priorities, maker = nx.DiGraph(), {}, {}
    for description in re.findall(r"^(?:local)?rule \w+:\n((?:    .*\n)+)", text, re.MULTILINE):
        files = dict(re.findall(r"^    (input|output|priority): (.*)$", description, re.MULTILINE))
        job = files.get("output", "")
        graph.add_node(job, inputs=files.get("input", "").split(", "))
        priorities[job] = int(files.get("priority", 0))
        maker |= dict.fromkeys(job.split(", "), job)
    graph.add_edges_from((maker[file], job) for job in graph for file in graph.nodes[job]["inputs"] if file in maker)
    return priorities, graph


@pytest.mark.parametrize(
    "settings",
    [
        ["experiment=smoke", "seeds=[1, 2, 3]"],
        # Pupils that take far longer than their teacher, one that others wait for and one that none waits for.
        ["experiment=smoke", "systems={lvm: {training: {max_steps: 100000}}, ctc: {training: {max_steps: 900000}}}"],
        [
            "experiment=smoke",
            "systems={lvm: {training: {max_steps: 900000}}}",
            "seeds=[1, 2]",
            "distillation={teacher: {seed: 2}}",
        ],
        ["experiment=recommended", "seeds=[2, 1]"],
        ["experiment=smoke", "systems={lvm: {data: {likely-by-teacher: 1, distilled-by-teacher: 1}}}"],
        [
            "experiment=smoke",
            "systems={lvm: {data: monolingual-by-teacher}}",
            "recipe={monolingual: [{texts: {de: more.de}}]}",
        ],
    ],
    ids=["distilled", "long pupils", "second seed", "no teacher", "likely", "monolingual"],
)
def test_what_trainings_wait_for_starts_before_trainings_that_none_waits_for(settings, tmp_path):
    priorities, graph = priorities_in_order(tmp_path, *settings)
    trainings = {job for job in graph if "training.jsonl" in job}
    waiting = {job: nx.descendants(graph, job) & trainings for job in graph}
    assert len(trainings) >= 6 and any(waiting[job] for job in trainings)
    # Before there is text, no training is ready.
    text = next(job for job in graph if "subwords.json" in job)
    for job in trainings:
        assert all(priorities[job] > priorities[other] for other in waiting[job])
        # Of one system's seeds, that which distills comes first.
        seeds = [other for other in trainings if re.sub(r"seed-\d+", "", other) == re.sub(r"seed-\d+", "", job)]
        assert all(priorities[job] > priorities[other] for other in seeds if waiting[job] > waiting[other])
    awaited = {job for job in graph.nodes - nx.ancestors(graph, text) - {text} if waiting[job]}
    assert min(priorities[job] for job in awaited) > max(priorities[job] for job in trainings - awaited)
    # Every other job is less than any training.
    assert max(priorities[job] for job in graph.nodes - awaited - trainings if "encoded" not in job) <= min(
        priorities[job] for job in trainings
    )


def test_of_trainings_that_none_waits_for_the_longest_starts_first(tmp_path):
    for longest in ("score", "energy"):
        budget = f"systems={{{longest}: {{training: {{max_steps: 100000}}}}}}"
        priorities, _ = priorities_in_order(tmp_path, "experiment=smoke", budget)
        (own,) = (priorities[job] for job in priorities if f"systems/{longest}/" in job and "training.jsonl" in job)
        others = [
            priorities[job]
            for name in ("score", "energy", "ctc")
            for job in priorities
            if name != longest and f"systems/{name}/" in job and "training.jsonl" in job
        ]
        assert others and own > max(others)


@pytest.mark.runs
def test_hints_and_sums_of_downloads_download_nothing_anew(hollow_project, tmp_path):
    """A sum that is pinned after the first download, what a help text says, and where else copies lie."""
    names = [f"{split}.{code}" for split in ("train", "dev", "test") for code in ("de", "en")]
    files = {name: {"url": f"https://example.org/{name}"} for name in names}

    def words(**changes) -> tuple[str, ...]:
        own_text(tmp_path, **{"files": files} | changes)
        return "normalised", "--configfile", "mine.yaml"

    run_to_the_end(*words(), project=hollow_project, folder=tmp_path)
    pinned = {name: file | {"sha256": "0" * 64, "size": 7} for name, file in files.items()}
    later = words(files=pinned, folder_hint="Put it here.", licence="CC0", homepage="https://example.org")
    assert scheduled(*later, project=hollow_project, folder=tmp_path) == {}
    moved = {name: file | {"url": f"https://example.org/2/{name}"} for name, file in files.items()}
    assert scheduled(*words(files=moved), project=hollow_project, folder=tmp_path) == {"download": 1, "normalise": 1}


SHOWN = {"decode": 1, "score_quality": 1, "compare_rows": 1, "measure_speed": 1, "analyse": 1, "report": 1}
UNSHOWN = {name: count for name, count in SHOWN.items() if name != "analyse"}


def one_more_system(content: dict) -> None:
    content["systems"]["wide"] = content["systems"]["score"] | {"training": {"max_steps": 25}}
    content["decodes"].append({"system": "wide", "search": "score", "steps": 1})


def one_more_value(content: dict) -> None:
    decode = next(decode for decode in content["decodes"] if decode.get("name") == "adaptive")
    decode["tune"]["step_size"].append(1.5)


# A field of a decode by its number, or a function that changes the experiment; and the jobs that rerun.
CHANGED_DECODES = {
    # The examples show the translation of the largest beam, and the most steps of each search.
    "width of a beam": ((1, {"beam": 3, "name": "beam-2"}), SHOWN),
    "width of a beam that names its row": ((1, {"beam": 3}), SHOWN),
    "length penalty": ((1, {"length_penalty": 0.6, "name": "beam-2"}), SHOWN),
    "refinement steps": ((4, {"steps": 2, "name": "delta-1"}), SHOWN),
    # Dev measures this one, which has the most steps.
    "steps where dev chooses": ((9, {"steps": 4}), SHOWN | {"choose_settings": 1, "finish_bundle": 1}),
    "lengths tried": ((8, {"lengths": 3, "name": "latent-search-2x2-1"}), UNSHOWN),
    "one more number of refinement steps": (lambda content: content["decodes"][5]["steps"].append(4), SHOWN),
    "number of shards of a decode": (
        (1, {"shards": 4}),
        {"decode_shard": 4, "decode": 1, "score_quality": 1, "compare_rows": 1, "report": 1},
    ),
    "one more value to choose from": (one_more_value, UNSHOWN | CHOICE | {"finish_bundle": 1}),
    "one more system": (
        one_more_system,
        {"train_refiner": 1, "export_bundle": 1, "finish_bundle": 1, **SHOWN, **OF_REFINERS},
    ),
}


@pytest.mark.parametrize("case", CHANGED_DECODES)
def test_a_changed_decode_reruns_itself_and_what_shows_it(case, finished, hollow_project, tmp_path):
    change, expected = CHANGED_DECODES[case]
    content = yaml.safe_load(Path(SMOKE).read_text())
    if callable(change):
        change(content)
    else:
        number, fields = change
        content["decodes"][number] |= fields
    overlay = tmp_path / "change.yaml"
    overlay.write_text(yaml.safe_dump(content, sort_keys=False))
    assert scheduled("--configfile", str(overlay), project=hollow_project, folder=finished) == expected


def test_a_changed_input_reruns_what_reads_it(finished, hollow_project, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    assert scheduled("--configfile", SMOKE, project=hollow_project, folder=copy) == {}
    (copy / "results/smoke/systems/score/seed-1/model.safetensors").write_text("other weights")
    follows = {name: count for name, count in CHANGES["learning rate of a refiner"][1].items() if "train" not in name}
    assert scheduled("--configfile", SMOKE, project=hollow_project, folder=copy) == follows


@pytest.mark.parametrize("how", ["from the folder", "--directory"])
def test_a_bundle_that_has_lost_a_file_is_made_anew(how, finished, hollow_project, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    words = ("--directory", str(copy)) if how == "--directory" else ()
    place = {"project": hollow_project, "folder": tmp_path if words else copy}
    bundle = copy / "results/smoke/systems/score/seed-1/bundle"
    written = (bundle / "bundle.json").stat()
    (bundle / "bundle.json").write_text(json.dumps({"provenance": {"files": {"score.safetensors": "0" * 64}}}))
    os.utime(bundle / "bundle.json", ns=(written.st_atime_ns, written.st_mtime_ns))
    (bundle / "score.safetensors").write_text("weights")
    assert scheduled("--configfile", SMOKE, *words, **place) == {}
    (bundle / "score.safetensors").unlink()
    planned = scheduled("--configfile", SMOKE, *words, **place)
    assert planned["export_bundle"] == 1 and planned["decode"] == 5
    assert not {rule for rule in planned if rule.startswith("train_")}


def test_a_rule_is_forced_by_its_name(finished, hollow_project):
    """And what reads its outputs."""
    words = ("--configfile", SMOKE, "--forcerun", "train_refiner")
    rerun = scheduled(*words, project=hollow_project, folder=finished)
    assert rerun["train_refiner"] == 2 and rerun["report"] == 1
    assert not {rule for rule in rerun if rule.startswith("train_")} - {"train_refiner"}


def test_changes_rerun_the_same_from_another_folder_and_as_a_module(finished, hollow_project, tmp_path):
    text, expected = CHANGES["learning rate of a refiner"]
    overlay = tmp_path / "change.yaml"
    overlay.write_text(f"experiment: smoke\n{text}\n")
    words = ("--directory", str(finished), "--configfile", str(overlay))
    assert scheduled(*words, project=hollow_project, folder=tmp_path) == expected
    # A module's log and benchmark files, and all its outputs, lie in the same places; its rules have other names.
    (tmp_path / "Snakefile").write_text(
        MODULE.format(snakefile=str(hollow_project / "Snakefile")).replace(
            "{'experiment': 'smoke'}", str({"experiment": "smoke"} | yaml.safe_load(text))
        )
    )
    words = ("continuum_report", "--directory", str(finished))
    planned = scheduled(*words, project=tmp_path, folder=tmp_path)
    assert planned == {f"continuum_{rule}": count for rule, count in expected.items()}


TWO_MODULES = """
module one:
    snakefile: "{snakefile}"
    config: {{"experiment": "smoke", "runtime": {{"download_wait": 0.5}}}}

use rule * from one as one_*

module two:
    snakefile: "{snakefile}"
    config: {{"experiment": "second", "extends": "smoke", "recipe": {{"name": "second"}}}}

use rule * from two as two_*
"""


def test_two_modules_have_settings_of_the_machine_each(tmp_path):
    (tmp_path / "Snakefile").write_text(TWO_MODULES.format(snakefile=PROJECT / "Snakefile"))
    process = snakemake(
        "one_download", "two_download", "--cores", "1", snakefile=tmp_path / "Snakefile", folder=tmp_path
    )
    assert process.returncode == 0, process.stderr
    assert all((tmp_path / f"results/{recipe}/raw/train.de").exists() for recipe in ("smoke", "second"))
    waits = {json.loads(path.read_text())["patience"]["first_wait"] for path in (tmp_path / "work/jobs/run").iterdir()}
    assert len(waits) == 2 and 0.5 in waits


def sharded(folder: Path, count: int, decodes: int | None = None) -> str:
    """The experiment smoke with its first decodes (or all) spread over `count` jobs, as a file in `folder`."""
    content = yaml.safe_load(Path(SMOKE).read_text())
    content["decodes"] = content["decodes"][:decodes]
    for decode in content["decodes"]:
        decode["shards"] = count
    (folder / "sharded.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return str(folder / "sharded.yaml")


def test_a_thousand_decodes_are_planned_in_seconds(tmp_path):
    """The limit is far above the 7 to 8 s of CPU time that it took on a quiet machine: it finds work that grows with
    the square."""
    content = yaml.safe_load(Path(SMOKE).read_text())
    content["decodes"] = [
        {"system": "teacher", "search": "beam", "beam": 2, "length_penalty": 0.5 + i / 1000, "name": f"d-{i}"}
        for i in range(1000)
    ]
    content["analyses"] = {name: {"enabled": False} for name in content["analyses"]}
    content["experiment"] = "many"
    (tmp_path / "many.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    began = os.times()
    words = ("--dry-run", "translations", "--configfile", str(tmp_path / "many.yaml"))
    planned = counted(snakemake(*words, folder=tmp_path))
    ended = os.times()
    assert planned["decode"] == 1000 and sum(planned.values()) == 1008
    assert ended.children_user + ended.children_system - began.children_user - began.children_system < 20


@pytest.mark.runs
def test_decodes_in_shards(finished, hollow_project, tmp_path):
    whole = sharded(tmp_path, 3)
    expected = jobs(Plan(read_configuration(whole)))
    assert expected["decode_shard"] == 3 * expected["decode"] == 45
    assert scheduled("--configfile", whole, project=hollow_project, folder=tmp_path) == expected
    copy = shutil.copytree(finished, tmp_path / "copy")
    words = ("translations", "--configfile", sharded(tmp_path, 3, decodes=1))
    run_to_the_end(*words, project=hollow_project, folder=copy, cores=2)
    for count, expected in {1: {"decode": 1}, 3: {}, 4: {"decode_shard": 4, "decode": 1}}.items():
        other = ("translations", "--configfile", sharded(tmp_path, count, decodes=1))
        assert scheduled(*other, project=hollow_project, folder=copy) == expected
    folder = copy / "results/smoke/translations/teacher/seed-1/greedy"
    shard, text = folder / "test.shards/1-of-3.jsonl", folder / "test.txt"
    # A shard that no job needs any more is not made anew; one that is missing for the joining is, alone.
    words = ("translations", "--configfile", sharded(tmp_path, 3, decodes=1))
    shard.unlink()
    assert scheduled(*words, project=hollow_project, folder=copy) == {}
    text.unlink()
    assert scheduled(*words, project=hollow_project, folder=copy) == {"decode_shard": 1, "decode": 1}
    shard.write_text("decode")
    shard.with_suffix(".json").unlink()
    assert scheduled(*words, project=hollow_project, folder=copy) == {"decode_shard": 1, "decode": 1}


def test_a_lost_shard_of_distillation_is_made_anew_alone(finished, hollow_project, tmp_path):
    words = ("distilled", "--configfile", SMOKE)
    copy = shutil.copytree(finished, tmp_path / "copy")
    folder = copy / "results/smoke/distilled/teacher"
    (folder / "train.shards/1-of-2.jsonl").unlink()
    assert scheduled(*words, project=hollow_project, folder=copy) == {}
    (folder / "train.en").unlink()
    assert scheduled(*words, project=hollow_project, folder=copy) == {"distill": 1, "merge_distilled": 1}
    (folder / "train.shards/1-of-2.jsonl").write_text("distill")
    (folder / "train.shards/0-of-2.json").unlink()
    assert scheduled(*words, project=hollow_project, folder=copy)["distill"] >= 1


def own_text(folder: Path, splits: Iterable[str] = ("train", "dev", "test"), **settings: Any) -> None:
    """An experiment `mine` on text files of one line in `folder`, mine.yaml, with settings of its dataset."""
    dataset = {"name": "mine", "languages": ["de", "en"], "kind": "files", "generator": None, **settings}
    for split in splits:
        dataset[split] = [{"texts": {code: f"{split}.{code}" for code in ("de", "en")}}]
        for code in ("de", "en"):
            (folder / f"{split}.{code}").write_text("one line\n")
    own = {"experiment": "mine", "extends": "smoke", "recipe": {"name": "mine", "dataset": dataset}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(own))


@pytest.mark.runs
def test_one_more_test_set_is_translated_and_nothing_is_trained_for_it(hollow_project, tmp_path):
    own_text(tmp_path, ["train", "dev", "news", "talks"])
    overlay = tmp_path / "mine.yaml"
    content = yaml.safe_load(overlay.read_text())
    dataset = content["recipe"]["dataset"]
    dataset["test"] = {name: dataset.pop(name) for name in ("news", "talks")}
    content |= {"only": ["ctc"], "test": ["news"], "decodes": [{"system": "ctc", "search": "ctc-greedy"}]}

    def words(**changes) -> tuple[str, str]:
        overlay.write_text(yaml.safe_dump(content | changes))
        return "--configfile", str(overlay)

    run_to_the_end(*words(), project=hollow_project, folder=tmp_path, cores=2)
    new_jobs = {"decode": 1, "score_quality": 1, "compare_rows_on_talks": 1, "report": 1}
    assert scheduled(*words(test=["news", "talks"]), project=hollow_project, folder=tmp_path) == new_jobs
    assert scheduled(*words(), project=hollow_project, folder=tmp_path) == {}


@pytest.mark.runs
def test_own_text_changed_makes_the_corpus_anew(hollow_project, tmp_path):
    own_text(tmp_path)
    words = ("normalised", "--configfile", "mine.yaml")
    run_to_the_end(*words, project=hollow_project, folder=tmp_path)
    assert scheduled(*words, project=hollow_project, folder=tmp_path) == {}
    # Another date is no change, and another text is one whatever its date.
    (tmp_path / "train.de").touch()
    assert scheduled(*words, project=hollow_project, folder=tmp_path) == {}
    (tmp_path / "train.en").write_text("another line\n")
    os.utime(tmp_path / "train.en", times=(1e9, 1e9))
    assert scheduled(*words, project=hollow_project, folder=tmp_path) == {"download": 1, "normalise": 1}


@pytest.mark.parametrize("name", ["config/mine.yaml", "a:b.yaml"])
def test_a_report_from_another_file_is_replaced_with_a_warning(name, hollow_project, tmp_path):
    project = edited(hollow_project, tmp_path, {})
    # The first job ends the run.
    (project / "workflow_src/stages/download.py").write_text("raise SystemExit(1)")
    (project / name).write_text("experiment: mine\nextends: smoke\n")
    report = project / "results/mine/report/provenance.json"
    report.parent.mkdir(parents=True)
    recorded = {"configuration": {"other.yaml": "1"}, "created": "2026-01-01"}
    report.write_text(json.dumps({"provenance": recorded}))
    for target in ("report", "normalised"):
        words = ("--cores", "1", target, "--configfile", name)
        process = snakemake(*words, snakefile=project / "Snakefile", folder=project)
        assert (f"a report from {name} replaces it" in process.stderr) == (target == "report")


@pytest.mark.runs
def test_a_missing_own_text_leaves_the_corpus_that_is_there(hollow_project, tmp_path):
    own_text(tmp_path)
    words = ("--cores", "1", "normalised", "--configfile", "mine.yaml")
    run_to_the_end(*words[2:], project=hollow_project, folder=tmp_path)
    texts = sorted((tmp_path / "results/mine/raw").iterdir())
    configuration = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(configuration.replace("train.en", "trian.en"))
    process = snakemake(*words, snakefile=hollow_project / "Snakefile", folder=tmp_path)
    assert process.returncode != 0 and "trian.en does not exist" in process.stderr
    assert sorted((tmp_path / "results/mine/raw").iterdir()) == texts


@pytest.mark.runs
def test_another_split_reads_no_file_anew(hollow_project, tmp_path):
    words = ("normalised", "--configfile", "mine.yaml")
    for seed, expected in ((1, {"download": 1, "normalise": 1}), (2, {"normalise": 1})):
        own_text(tmp_path, ["train"], split={"method": "connected-groups", "dev": 5, "test": 5, "seed": seed})
        assert scheduled(*words, project=hollow_project, folder=tmp_path) == expected
        run_to_the_end(*words, project=hollow_project, folder=tmp_path)
        assert scheduled(*words, project=hollow_project, folder=tmp_path) == {}


@pytest.mark.runs
def test_a_changed_filter_cleans_anew(hollow_project, tmp_path):
    own_text(tmp_path)
    words = ("normalised", "--configfile", "mine.yaml")
    content = yaml.safe_load((tmp_path / "mine.yaml").read_text())

    def planned(clean, **recipe_part):
        recipe = content["recipe"] | {"clean": clean}
        recipe["dataset"] = recipe["dataset"] | recipe_part
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content | {"recipe": recipe}, sort_keys=False))
        return scheduled(*words, project=hollow_project, folder=tmp_path)

    first = {"numbers": {}, "length": {"max_words": 50}}
    assert planned(first) == {"download": 1, "clean": 1, "normalise": 1}

    run_to_the_end(*words, project=hollow_project, folder=tmp_path)
    assert planned(first) == planned({"numbers": {"min_share": 1.0}, "length": {"max_words": 50}}) == {}
    assert planned({"length": {"max_words": 50}, "numbers": {}}) == {"clean": 1, "normalise": 1}
    assert planned(first | {"length": {"max_words": 51}}) == {"clean": 1, "normalise": 1}
    assert planned({}) == {"normalise": 1}
    # Scores are read with the texts.
    (tmp_path / "train.tsv").write_text("eins\tone\t0.7\n")
    table = {"table": "train.tsv", "columns": {"de": 0, "en": 1}, "score_column": 2, "minimum_score": 0.5}
    assert planned(first, train=[table]) == {"download": 1, "clean": 1, "normalise": 1}
    run_to_the_end(*words, project=hollow_project, folder=tmp_path)
    assert planned(first, train=[table]) == {}
    assert planned(first | {"score": {"minimum": 0.6}}, train=[table]) == {"download": 1, "clean": 1, "normalise": 1}


@pytest.mark.runs
def test_files_dated_in_the_future(hollow_project, tmp_path):
    """Own text serves as it is; Snakemake would fail after a job that reads such a file, so it does not begin."""
    own_text(tmp_path)
    ahead = time.time() + 7200
    for path in tmp_path.glob("*.en"):
        os.utime(path, times=(ahead, ahead))
    words, snakefile = ("--cores", "1", "normalised", "--configfile", "mine.yaml"), hollow_project / "Snakefile"
    run_to_the_end(*words[2:], project=hollow_project, folder=tmp_path)
    assert scheduled(*words[2:], project=hollow_project, folder=tmp_path) == {}
    raw = "results/mine/raw/train.en"
    os.utime(tmp_path / raw, times=(ahead, ahead))
    process = snakemake(*words, "--forcerun", "normalise", snakefile=snakefile, folder=tmp_path)
    assert process.returncode == 1 and f"{raw} is dated in the future (" in process.stderr
    assert f"run `touch {raw}`" in process.stderr and "Normalising" not in process.stderr
    os.utime(tmp_path / raw)
    # A distilled text of the user's own is an input of jobs.
    (tmp_path / "bought.en").write_text("one\n")
    os.utime(tmp_path / "bought.en", times=(ahead, ahead))
    further_words = ("--config", "recipe={distilled: {bought: bought.en}}", "systems={lvm: {data: bought}}")
    process = snakemake(*words, *further_words, "--forcerun", "normalise", snakefile=snakefile, folder=tmp_path)
    assert process.returncode == 1 and "bought.en is dated in the future (" in process.stderr
    # So is every file of a model that was made elsewhere.
    os.utime(tmp_path / "bought.en")
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("model.bin", "config.json", "shared_vocabulary.json", "source.spm", "target.spm"):
        (outside / name).touch()
    os.utime(outside / "model.bin", times=(ahead, ahead))
    system = "systems={outside: {family: ctranslate2, model: {folder: outside}}}"
    process = snakemake(*words, "--config", system, "--forcerun", "normalise", snakefile=snakefile, folder=tmp_path)
    assert process.returncode == 1 and "outside/model.bin is dated in the future (" in process.stderr


def test_the_last_line_of_ci_says_what_was_left_out(tmp_path):
    for folder in (".ci", "config/experiments", ".venv/bin", "envs"):
        (tmp_path / folder).mkdir(parents=True)
    for file in (".ci/run", "envs/comet.yaml"):
        shutil.copy(PROJECT / file, tmp_path / file)
    (tmp_path / "config/experiments/smoke.yaml").touch()
    skipped = "SKIPPED [2] tests/test_slurm.py:40: no Slurm here: munged is not installed"

    def last_line(output: str, status: int = 0) -> tuple[int, str]:
        for program in ("make", ".venv/bin/snakemake", ".venv/bin/python"):
            answer = f"echo '{output}'\nexit {status}\n" if program.endswith("python") else ""
            (tmp_path / program).write_text(f"#!/bin/sh\ncase $* in *pytest*) {answer or ':'}\n;; esac\n")
            (tmp_path / program).chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if name != "CI"}
        environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
        process = subprocess.run(["bash", tmp_path / ".ci/run"], env=environment, capture_output=True, text=True)
        return process.returncode, (process.stdout.splitlines() or [""])[-1]

    assert last_line("2 passed") == (0, "everything passed")
    left_out = "everything else passed; left out: tests/test_slurm.py:40: no Slurm here: munged is not installed"
    assert last_line(skipped) == (0, left_out)
    assert last_line(skipped, 1)[0] == 1


@pytest.mark.parametrize("mark", ["runs", "graphs"])
def test_make_collects_every_file_with_marked_tests(mark):
    """Its targets name few files: collecting all tests takes half a minute."""
    (words,) = re.findall(
        rf"^test-{mark}: setup\n\t.*? -m \S*{mark}.*? (tests/.*)$", (PROJECT / "Makefile").read_text(), re.M
    )
    collected = {path for word in words.split() for path in PROJECT.glob(word)}
    pattern = re.compile(rf"mark\.{mark}\b" + ("|smoke_run" if mark == "runs" else ""))
    marked = {
        path for path in (PROJECT / "tests").rglob("test_*.py") if pattern.search(path.read_text(encoding="utf-8"))
    }
    assert marked and all(collected & {path, *path.parents} for path in marked)
