"""Shared by several tests: running Snakemake, and a project whose stages only write empty files."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import hypothesis
import pytest
from filelock import FileLock
from snakemake_server import DRY_RUNS
from stage_server import STAGE_SERVER

from workflow_src.registry import engines, families
from workflow_src.runtime import garbage

# Before torch is imported, here and in children: equal bits are promised for one thread, and the threads of several
# processes that share few cores wait for each other in loops.
os.environ["OMP_NUM_THREADS"] = "1"
# Corpora of this machine change no test.
os.environ.pop("CONTINUUM_MIRRORS", None)

garbage.collect_rarely()

# A busy machine is slow, not wrong.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")

PROJECT = Path(__file__).resolve().parents[1]
DRY_RUNS.unchanged.add(PROJECT)
# Documents of jobs are not written where nothing runs.
WRITING = """
import workflow_src.records.documents

class Written(workflow_src.records.documents.JobDocument):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.write()

workflow_src.records.documents.JobDocument = Written

include: {snakefile!r}
"""


def pytest_addoption(parser):
    parser.addoption("--family", action="append", help="tests of this family alone, by its exact name; may be repeated")


def pytest_collection_modifyitems(config, items):
    """Leave the tests of the families that `--family` names, whose parameter `family` or `case` begins with one."""
    chosen = config.getoption("--family")
    if not chosen:
        return
    if unknown := sorted(set(chosen) - set(families())):
        raise pytest.UsageError(f"--family {unknown[0]}: no such family; there are {', '.join(families())}")
    parameters = [getattr(getattr(item, "callspec", None), "params", {}) for item in items]
    kept = [str(values.get("family", values.get("case"))).split(",")[0] in chosen for values in parameters]
    config.hook.pytest_deselected(items=[item for item, keep in zip(items, kept, strict=True) if not keep])
    items[:] = [item for item, keep in zip(items, kept, strict=True) if keep]


def pytest_configure(config):
    """Restore handlers of signals: `nohup make test &` makes the suite ignore some, and children inherit that."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGUSR1, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1})
    STAGE_SERVER.prepare()
    if not hasattr(config, "workerinput"):
        STAGE_SERVER.open()


def pytest_unconfigure():
    STAGE_SERVER.close()


def pytest_itemcollected(item):
    """Tests of a whole run of the workflow are marked as such: they wait for it, or make another."""
    if "smoke_run" in item.fixturenames:
        item.add_marker("runs")


def pytest_collection_finish():
    """Let garbage collection skip imported modules and tests: exporting a graph makes millions of objects."""
    garbage.collect_rarely()


@pytest.fixture(autouse=True)
def pretended_gpu(request):
    """Tests marked `gpu` run on a GPU where there is one, else on a pretended one."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    import torch

    if torch.cuda.is_available():
        yield
        return
    from pretended_cuda import pretended

    with pretended():
        yield


def _command(words: tuple[str, ...], snakefile: Path, forked: bool = False) -> list[str]:
    if forked:
        programs = STAGE_SERVER.programs()
        return [str(programs / "python3"), str(programs / "snakemake"), "--snakefile", str(snakefile), *words]
    return [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(snakefile), *words]


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return environment | {"PATH": os.defpath}


def command_and_environment(*words: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of `snakemake`, for tests that start it by themselves."""
    return _command(words, PROJECT / "Snakefile"), _environment()


def dry_run(
    *words: str, snakefile: Path = PROJECT / "Snakefile", folder: Path, describe: bool = True
) -> subprocess.CompletedProcess:
    """The finished `snakemake --dry-run WORDS` in `folder`, without the time that starting Snakemake takes."""
    return DRY_RUNS(["--snakefile", str(snakefile), "--dry-run", *words], folder, snakefile.parent, describe)


def scheduled(*words: str, project: Path = PROJECT, folder: Path) -> dict[str, int]:
    """Jobs by rule that a dry run would run, target rules left out."""
    return counted(dry_run(*words, snakefile=project / "Snakefile", folder=folder, describe=False))


def counted(process: subprocess.CompletedProcess) -> dict[str, int]:
    """Jobs by rule that a dry run has listed, target rules left out."""
    assert process.returncode == 0, process.stderr + process.stdout
    text = process.stdout + process.stderr
    if "Nothing to be done" in text:
        return {}
    table = text.split("Job stats:")[-1].split("total")[0]
    counts = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
    assert counts, text
    targets = {
        "all",
        "normalised",
        "subwords",
        "encoded",
        "teachers",
        "distilled",
        "systems",
        "bundles",
        "chosen",
        "translations",
        "quality",
    }
    return {name: count for name, count in counts.items() if name not in targets}


@pytest.fixture(scope="session", autouse=True)
def end_of_dry_runs():
    yield
    DRY_RUNS.close()


def snakemake(
    *words: str,
    snakefile: Path = PROJECT / "Snakefile",
    folder: Path,
    seconds: float = 900,
    forked: bool = False,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess:
    """Run Snakemake in `folder` as a user would from there, without an activated environment.

    `forked`: jobs are forks of a process that has imported torch, for runs of many short ones. `variables` are added to
    the environment.
    """
    command, environment = _command(words, snakefile, forked), _environment() | dict(variables or {})
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)


def snakemake_started(*words: str, folder: Path, forked: bool = False) -> subprocess.Popen:
    """Snakemake as `snakemake` runs it, not waited for; its output goes to snakemake.txt."""
    command = _command(words, PROJECT / "Snakefile", forked)
    with open(folder / "snakemake.txt", "w") as output:
        return subprocess.Popen(command, cwd=folder, env=_environment(), stdout=output, stderr=output)


def wait_for(condition: Callable[[], bool], seconds: float, running: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        assert running is None or running.poll() is None, "it ended by itself"
        time.sleep(0.05)


def log_contains(path: Path, text: str) -> bool:
    return path.is_file() and text in path.read_text()


FAKE_STAGE = """
import argparse, json, pathlib, sys

stage = pathlib.Path(sys.argv[0]).stem
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--job")
document = json.loads(pathlib.Path(parser.parse_known_args()[0].job).read_text())
names = ("output", "output_folder", "output_prefix", "output_text", "output_scores", "raw", "summary", "languages")
arguments = argparse.Namespace(**{name: document.get(name) for name in names})
settings = document["settings"]
languages = arguments.languages or settings.get("languages", (None,))
sets = [*settings.get("test", ())] if stage == "download" else []
if arguments.raw:
    sets = [path.stem for path in pathlib.Path(arguments.raw).parent.glob(f"*.{languages[0]}")]
pairs = [f"{split}.{code}" for split in {"train", "dev", *sets} | ({"test"} if set(sets) <= {"train", "dev"} else set())
         for code in languages]
references = [f"{split}.reference.{languages[-1]}" for split in ("dev", "test", *sets)]
system = ["model.safetensors", "config.json", "training.jsonl"]
files = {
    "download": [*pairs, "raw.json"],
    "clean": [*pairs, "raw.json"],
    "normalise": [*pairs, *references, "corpus.json"],
    "learn_subwords": ["subwords.json"],
    "encode": [".source.bin", ".source.offsets.npy", ".target.bin", ".target.offsets.npy", ".json"],
    "train": system,
    "export_bundle": ["bundle.json"],
    "export_engine": ["bundle.json"],
    "import_model": ["bundle.json"],
    "finish_bundle": ["bundle.json"],
    "report": ["provenance.json", "results.md", "rows.csv", "figures.csv", "figures/one.svg", "index.html"],
}
paths = [arguments.output, arguments.output_text, arguments.output_scores]
if arguments.summary:
    paths += [f"{pathlib.Path(arguments.summary).parent}/{name}" for name in files[stage]]
if arguments.output_folder:
    paths += [f"{arguments.output_folder}/{name}" for name in files[stage]]
if arguments.output_prefix:
    paths += [arguments.output_prefix + name for name in files[stage]]
if "shard" in document:
    paths.append(arguments.output.removesuffix("l"))
elif stage == "decode":
    paths += [arguments.output.removesuffix(".txt") + ending for ending in (".jsonl", ".json")]
elif stage == "merge_distilled":
    paths.append(str(pathlib.Path(arguments.output_text).with_suffix(".json")))
for path in map(pathlib.Path, filter(None, paths)):
    path.parent.mkdir(parents=True, exist_ok=True)
    # Estimates read the settings of what describes the corpus.
    record = {"stage": stage, "provenance": {"settings": settings}}
    path.write_text(json.dumps(record) if path.name in ("raw.json", "corpus.json", "subwords.json") else stage)
"""
STAGES = sorted({path.stem for path in (PROJECT / "workflow_src/stages").glob("*.py")} - {"__init__"})
# Rules that run the stages `train` and `export_engine`.
TRAININGS = sorted({family.training_rule for family in families().values() if not family.imported})
EXPORTS = sorted({engine.export_rule for engine in engines().values() if engine.exports})


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, request) -> Path:
    """A folder for files of all processes of pytest: one of several has a folder of its own in it."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if hasattr(request.config, "workerinput") else folder


@pytest.fixture(scope="session")
def hollow_project(shared_folder) -> Path:
    """A clone elsewhere, with a space in its path: the real rules and configuration, stages that write empty files."""
    project = shared_folder / "a clone/continuum"
    with FileLock(shared_folder / "hollow-project.lock"):
        if not project.exists():
            _make_hollow_project(project.with_name("half-made"))
            project.with_name("half-made").rename(project)
    DRY_RUNS.unchanged.add(project)
    return project


def _make_hollow_project(project: Path) -> None:
    for folder in ("config", "rules", "envs", "workflow_src"):
        shutil.copytree(PROJECT / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__", "stages"))
    shutil.copy(PROJECT / "Snakefile", project)
    stages = project / "workflow_src/stages"
    stages.mkdir()
    (stages / "__init__.py").touch()
    for stage in STAGES:
        (stages / f"{stage}.py").write_text(FAKE_STAGE)


@pytest.fixture(scope="session")
def hollow_run(hollow_project, shared_folder) -> Path:
    """A finished run of the experiment `smoke` by `hollow_project`; tests that change it copy it.

    CONTINUUM_HOLLOW_RUN names a folder that has one, or is to get it.
    """
    folder = Path(os.environ.get("CONTINUUM_HOLLOW_RUN", shared_folder / "hollow-run"))
    with FileLock(f"{folder}.lock"):
        if not (folder / "results/smoke/report/index.html").exists():
            folder.mkdir(parents=True, exist_ok=True)
            words = ("--cores", "2", "--config", "experiment=smoke")
            process = snakemake(*words, snakefile=hollow_project / "Snakefile", folder=folder)
            assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture(scope="session")
def smoke_run(shared_folder) -> Path:
    """The folder of a whole run of the experiment `smoke`, with its real stages; one for all processes of pytest.

    CONTINUUM_SMOKE_RUN names a folder that has one, or is to get it.
    """
    folder = Path(os.environ.get("CONTINUUM_SMOKE_RUN", shared_folder / "smoke"))
    with FileLock(f"{folder}.lock"):
        if not (folder / "results/smoke/report/index.html").exists():
            folder.mkdir(parents=True, exist_ok=True)
            _run_smoke(folder)
    return folder


def copy_of_run(run: Path, names: Iterable[str], folder: Path) -> None:
    """Copy folders of a run, and what Snakemake keeps of its jobs, to `folder`, which goes on from there."""
    for name in (*names, ".snakemake/metadata"):
        shutil.copytree(run / name, folder / name)


def _run_smoke(folder: Path) -> None:
    smoke = str(PROJECT / "config/experiments/smoke.yaml")
    process = snakemake("--cores", "2", "--configfile", smoke, folder=folder, forked=True)
    logs = "\n".join(f"{path}: {path.read_text()[-1000:]}" for path in sorted(folder.glob("logs/**/*.log")))
    assert process.returncode == 0, f"{process.stderr[-3000:]}\n{logs[-6000:]}"
