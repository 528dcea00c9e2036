"""The workflow on a real Slurm of two nodes: whole, with a training cancelled, past its time, on nodes that fail.

    python -m pytest -m "slurm and not slow"      what CI runs
    python -m pytest -m slurm                     all of it

Every result is compared, byte by byte, with that of a run on this machine without a cluster. CONTINUUM_SMOKE_RUN names
the folder of a finished local run of the experiment `smoke`, which saves making one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import smoke_check
import yaml
from configurations import read_configuration
from conftest import PROJECT, copy_of_run, snakemake
from counted_jobs import jobs
from slurm_cluster import Cluster, Job, unavailable_reason

from workflow_src.config import Plan

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]
SMOKE = PROJECT / "config/experiments/smoke.yaml"
TEACHER = "results/smoke/systems/teacher/seed-1/model.safetensors"
TEACHER_JOB = "rule_train_teacher"
STATE = "work/smoke/teacher/seed-1"
QUICK = [
    "--slurm-status-command=squeue",
    "--slurm-init-seconds-before-status-checks=2",
    "--latency-wait=10",
]


@pytest.fixture
def cluster():
    if find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip("snakemake_executor_plugin_slurm is not installed (extra slurm)")
    if reason := unavailable_reason():
        pytest.skip(f"no Slurm here: {reason}")
    with Cluster() as cluster:
        yield cluster
        # Runs that a failed test has left.
        for run in Run.started:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
        Run.started.clear()


class Run:
    """Snakemake with the profile slurm, in a folder, on a cluster, while a test looks on or interferes."""

    started: list[subprocess.Popen] = []

    def __init__(self, cluster: Cluster, folder: Path, *words: str, **environment: str):
        folder.mkdir(exist_ok=True)
        self.cluster = cluster
        self.folder = folder
        self.screen = folder / "screen.txt"
        # A run whose executor has lost its jobs waits for ever: an interrupt makes it cancel them and leave.
        command = [
            "timeout",
            "--foreground",
            "-s",
            "INT",
            "-k",
            "60",
            "1200",
            str(Path(sys.executable).parent / "snakemake"),
        ]
        command += ["--snakefile", str(PROJECT / "Snakefile"), "--profile", str(PROJECT / "config/profiles/slurm")]
        inherited = {k: v for k, v in cluster.environment.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        with open(self.screen, "wb") as out:
            self.process = subprocess.Popen(
                [*command, *words, *QUICK],
                cwd=folder,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=inherited | environment,
                start_new_session=True,
            )
        self.started.append(self.process)

    def wait_for(self, condition, what: str, seconds: float = 600):
        """The first true result of `condition()`; fails when the run ends or time is over before that."""
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.diagnostics()}"
            assert time.monotonic() < end, f"no {what} within {seconds} s:\n{self.diagnostics()}"
            time.sleep(0.1)
        return result

    def wait_for_training(self) -> Job:
        """The running job of the teacher, once its training has saved a state."""
        job = self.wait_for(lambda: self.cluster.running(TEACHER_JOB), "training job")
        self.wait_for(lambda: list((self.folder / STATE).glob("*/step-*.json")), "state of the training")
        return job

    def finish(self) -> None:
        assert self.process.wait(1300) == 0, self.diagnostics()

    def diagnostics(self) -> str:
        logs = sorted([*self.folder.glob("logs/**/*.log"), *self.folder.glob(".snakemake/slurm_logs/**/*.log")])
        # Logs of the cluster are named by the number of the job.
        failed = {job.number for job in self.cluster.jobs() if job.state != "COMPLETED"}
        logs = [path for path in logs if path.stem in failed] or logs[-8:]
        parts = [f"{path.relative_to(self.folder)}:\n{path.read_text()[-3000:]}" for path in logs]
        return "\n".join([self.screen.read_text()[-4000:], *parts, *map(str, self.cluster.jobs())])

    def states(self, comment: str = TEACHER_JOB) -> list[str]:
        return [job.state for job in self.cluster.jobs() if job.comment.startswith(comment)]

    def resumed_at(self) -> int:
        """The update that the teacher's last run says it went on from."""
        log = (self.folder / "logs/smoke/train_teacher/teacher/seed-1.log").read_text()
        match = re.search(r"resumed\D+(\d+)", log)
        assert match, f"the training did not resume:\n{log}\n{self.diagnostics()}"
        return int(match[1])


def overlay(folder: Path, **settings) -> list[str]:
    """Words that lay settings over the experiment smoke, which trains with one thread, so that bits repeat."""
    folder.mkdir(exist_ok=True)
    path = folder / "overlay.yaml"
    runtime = {"training_threads": 1, "speed_threads": 2, **settings.pop("runtime", {})}
    path.write_text(yaml.safe_dump({"experiment": "smoke", "runtime": runtime, **settings}))
    return ["--configfile", str(path)]


def longer(steps: int, **settings) -> dict:
    """Settings of a teacher that trains for so many updates, validates at the end alone and saves often."""
    training = {"max_steps": steps, "save_every": 10, "validate_every": steps}
    return {"systems": {"teacher": {"training": training}}, **settings}


# Files that differ between equal runs: they have times, speed or the places that files came from.
ASIDE = ("training.jsonl", "speed.json", "raw.json")


def results(folder: Path) -> dict[str, bytes]:
    """Every result that must not depend on where it was made; JSON without its fields of place and time."""
    contents = {}
    for path in sorted((folder / "results").rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.name in ASIDE or "/report/" in name:
            continue
        content = path.read_bytes()
        if path.suffix == ".json":
            content = json.dumps(_timeless(json.loads(content)), sort_keys=True).encode()
        contents[name] = content
    return contents


def _timeless(value):
    if isinstance(value, dict):
        excluded = ("provenance", "minutes", "seconds")
        return {key: _timeless(entry) for key, entry in value.items() if key not in excluded}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def local(smoke_run) -> Path:
    """The folder of a whole run of the experiment smoke on this machine."""
    return smoke_run


@pytest.fixture(scope="module")
def corpus(local, tmp_path_factory) -> Path:
    """A folder with the training data of a teacher, made once."""
    folder = tmp_path_factory.mktemp("corpus")
    shutil.copytree(
        local / "results/smoke",
        folder / "results/smoke",
        ignore=shutil.ignore_patterns("systems", "distilled*", "translations", "quality", "chosen"),
    )
    shutil.copytree(local / ".snakemake/metadata", folder / ".snakemake/metadata")
    return folder


def copied(corpus: Path, folder: Path) -> Path:
    return Path(shutil.copytree(corpus, folder))


def trained_locally(corpus: Path, folder: Path, words: list[str]) -> bytes:
    """The weights of a teacher that nothing disturbed."""
    copied(corpus, folder)
    process = snakemake("--cores", "1", "teachers", *words, folder=folder)
    assert process.returncode == 0, process.stderr
    return (folder / TEACHER).read_bytes()


def finished_after_a_cancelled_training(run: Run) -> None:
    """Cancel the job of the teacher once it has saved a state, and check the resources of the retry."""
    cluster = run.cluster
    job = run.wait_for_training()
    before = cluster.run("scontrol", "show", "job", job.number)
    cluster.run("scancel", job.number)
    run.finish()
    assert run.states() == ["CANCELLED", "COMPLETED"], run.diagnostics()
    assert 10 <= run.resumed_at() < 200
    retried = next(
        candidate for candidate in cluster.jobs() if candidate.comment == job.comment and candidate.number != job.number
    )
    after = cluster.run("scontrol", "show", "job", retried.number)
    first, second = _memory(before), _memory(after)
    assert 1000 < first < 2500 and second == pytest.approx(1.5 * first, abs=1)
    assert [re.search(r"TimeLimit=(\S+)", text)[1] for text in (before, after)] == ["00:16:00", "00:31:00"]
    # Every job but that one ran once, on the cluster, but for the download.
    other_jobs = [job for job in cluster.jobs() if not job.comment.startswith(TEACHER_JOB)]
    assert {job.state for job in other_jobs} == {"COMPLETED"}, run.diagnostics()
    assert len({job.comment for job in other_jobs}) == len(other_jobs), run.diagnostics()
    assert {job.node for job in cluster.jobs()} == {"node1", "node2"}


SAVING = {"systems": {"teacher": {"training": {"save_every": 10}}}}


# What CI runs

# Each job costs two starts of Snakemake beside its own: one of every kind after the encoded corpus.
FEW = {
    "decodes": [
        {"system": "teacher", "search": "beam", "beam": 2, "engine": "ctranslate2-int8"},
        {"system": "score", "search": "score", "steps": 1},
        {"system": "ctc", "search": "ctc-greedy", "shards": 2},
        {"system": "ctc", "search": "ctc-beam", "beam": 3, "language_model": "lm", "tune": {"word_bonus": [0.5, 1.0]}},
    ],
    "analyses": {name: {"enabled": False} for name in ("marginal", "tokens", "lengths", "samples")},
}
# Folders whose files do not depend on other decodes.
OF_ONE_DECODE = ("systems", "distilled", "encoded", "chosen", "translations", "quality")


def test_the_plug_in_takes_the_words_for_sbatch_that_the_page_shows():
    validation = pytest.importorskip("snakemake_executor_plugin_slurm.validation", reason="needs the extra slurm")
    words = re.findall(r"slurm_extra='([^']*)'", (PROJECT / "docs/clusters.md").read_text())
    assert words
    for extra in words:
        validation.validate_slurm_extra(SimpleNamespace(resources=SimpleNamespace(slurm_extra=extra)))


def test_a_job_of_every_kind_gives_what_it_gives_without_a_cluster(cluster, local, tmp_path):
    words = overlay(tmp_path, **SAVING, **FEW)
    folder = tmp_path / "run"
    copy_of_run(local, [f"results/smoke/{name}" for name in ("raw", "corpus", "subwords", "encoded/raw")], folder)
    run = Run(cluster, folder, *words)
    finished_after_a_cancelled_training(run)
    plan = Plan(read_configuration(words[-1]))
    assert smoke_check.problems_of(plan, folder) == []
    assert smoke_check.excessive(plan, folder) == []
    benchmarks = list(folder.glob("benchmarks/**/*.tsv"))
    assert len(benchmarks) == len({job.comment for job in cluster.jobs()})
    folders = tuple(f"results/smoke/{name}/" for name in OF_ONE_DECODE)
    expected, actual = results(local), results(folder)
    compared = [name for name in actual if name.startswith(folders) and "shards/" not in name]
    assert len(compared) > 50 and [name for name in compared if expected[name] != actual[name]] == []


@pytest.mark.slow
def test_the_whole_workflow_gives_what_it_gives_without_a_cluster(cluster, local, tmp_path):
    words = overlay(tmp_path, **SAVING)
    run = Run(cluster, tmp_path / "run", *words)
    finished_after_a_cancelled_training(run)
    plan = Plan(read_configuration(words[-1]))
    assert smoke_check.problems_of(plan, run.folder) == []
    assert smoke_check.excessive(plan, run.folder) == []
    assert len(list(run.folder.glob("benchmarks/**/*.tsv"))) == sum(jobs(plan).values())
    expected, actual = results(local), results(run.folder)
    assert expected.keys() == actual.keys()
    assert [name for name in expected if expected[name] != actual[name]] == []


def _memory(job: str) -> int:
    """Megabytes that a job asks for, as scontrol shows it."""
    number, unit = re.search(r"MinMemoryNode=([\d.]+)([MG])", job).groups()
    return round(float(number) * (1024 if unit == "G" else 1))


# Longer ones


@pytest.mark.slow
def test_a_training_longer_than_the_limit_of_its_job_finishes_by_retries(cluster, corpus, tmp_path):
    words = overlay(tmp_path, **longer(4000, runtime={"longest_job": 1}))
    expected = trained_locally(corpus, tmp_path / "local", words)
    run = Run(cluster, copied(corpus, tmp_path / "run"), "teachers", *words, "--retries=20")
    run.finish()
    *cut, last = run.states()
    assert cut and set(cut) == {"TIMEOUT"} and last == "COMPLETED", run.diagnostics()
    assert run.resumed_at() >= 10 * len(cut)
    assert (run.folder / TEACHER).read_bytes() == expected
    print(f"{len(cut)} time limits, then resumed at {run.resumed_at()} of 4000")


def _power_lost(cluster: Cluster, node: str) -> None:
    cluster.power_off(node)


def _set_down(cluster: Cluster, node: str) -> None:
    cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


@pytest.mark.slow
@pytest.mark.parametrize("fail", [_power_lost, _set_down])
def test_a_training_on_a_node_that_fails_goes_on_elsewhere(fail, cluster, corpus, tmp_path):
    words = overlay(tmp_path, **longer(600))
    expected = trained_locally(corpus, tmp_path / "local", words)
    run = Run(cluster, copied(corpus, tmp_path / "run"), "teachers", *words)
    job = run.wait_for_training()
    fail(cluster, job.node)
    run.finish()
    ended = [each for each in cluster.jobs() if each.comment.startswith(TEACHER_JOB)]
    assert [(each.state, each.restarts) for each in ended] == [("COMPLETED", 1)], run.diagnostics()
    assert ended[0].node != job.node
    assert run.resumed_at() >= 10
    assert (run.folder / TEACHER).read_bytes() == expected


@pytest.mark.slow
def test_a_training_that_is_preempted_goes_on_when_it_gets_its_place_back(cluster, corpus, tmp_path):
    words = overlay(tmp_path, **longer(600, runtime={"partition": "low"}))
    expected = trained_locally(corpus, tmp_path / "local", words)
    run = Run(cluster, copied(corpus, tmp_path / "run"), "teachers", *words)
    run.wait_for_training()
    # Both nodes whole, for jobs that go first.
    cluster.run("sbatch", "--partition=main", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 3")
    run.finish()
    ended = [each for each in cluster.jobs() if each.comment.startswith(TEACHER_JOB)]
    assert [(each.state, each.restarts) for each in ended] == [("COMPLETED", 1)], run.diagnostics()
    assert run.resumed_at() >= 10
    assert (run.folder / TEACHER).read_bytes() == expected


@pytest.mark.slow
def test_a_job_that_needs_more_memory_than_it_asked_for_gets_more(cluster, corpus, tmp_path):
    # A training takes 600 MB and more, PyTorch and Snakemake: the first attempts are too small.
    words = overlay(tmp_path, **longer(20))
    run = Run(
        cluster,
        copied(corpus, tmp_path / "run"),
        "teachers",
        *words,
        "--retries=6",
        "--set-resources=train_teacher:mem_mb=150*2**(attempt-1)",
    )
    run.finish()
    *killed, last = run.states()
    assert len(killed) >= 2 and last == "COMPLETED", run.diagnostics()
    logs = [path.read_text() for path in (run.folder / ".snakemake/slurm_logs/rule_train_teacher").glob("*/*.log")]
    assert len([log for log in logs if "Exceeded job memory limit" in log]) == len(killed)
    print(f"killed for memory {len(killed)} times: {killed}")


@pytest.mark.slow
def test_a_training_on_two_nodes_is_cancelled_and_goes_on(cluster, corpus, tmp_path):
    """One process on each node, and as many parts of a batch in one process: the same but for rounding."""
    settings = longer(600)
    settings["systems"]["teacher"]["training"]["accumulate"] = 2
    single = overlay(tmp_path / "alone", **settings)
    together = overlay(tmp_path / "together", **settings, runtime={"nodes": 2, "device": "cpu"})
    trained_locally(corpus, tmp_path / "local", single)
    run = Run(cluster, copied(corpus, tmp_path / "run"), "teachers", *together)
    job = run.wait_for_training()
    assert job.node == "node[1-2]"
    cluster.run("scancel", job.number)
    run.finish()
    assert run.states() == ["CANCELLED", "COMPLETED"], run.diagnostics()
    assert run.resumed_at() >= 10
    loss, expected = (
        json.loads((folder / TEACHER).with_name("training.jsonl").read_text().splitlines()[-1])["dev_loss"]
        for folder in (run.folder, tmp_path / "local")
    )
    assert loss == pytest.approx(expected, rel=0.02)
