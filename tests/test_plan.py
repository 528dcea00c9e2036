"""`continuum plan` against a dry run of Snakemake, and its picture against the graph that it shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest
from conftest import PROJECT, scheduled, snakemake
from counted_jobs import jobs
from stage_server import python_module
from test_workflow import own_text

from workflow_src.cli import drawing
from workflow_src.cli.plan import Node, Overview, Reason
from workflow_src.cli.sizes import CountedSizes
from workflow_src.config import Plan, load_experiment

SVG = "{http://www.w3.org/2000/svg}"


def run(*words: str, folder: Path, project: Path = PROJECT, name: str = "plan") -> subprocess.CompletedProcess:
    command = python_module("workflow_src.cli", name, *words)
    environment = {**os.environ, "PYTHONPATH": str(project), "COLUMNS": "160"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def planned(*words: str, folder: Path, project: Path = PROJECT, name: str = "plan") -> dict:
    process = run(*words, "--json", folder=folder, project=project, name=name)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def counts(plan: dict) -> dict[str, int]:
    """Jobs that would run, by rule."""
    result: dict[str, int] = {}
    for node in plan["nodes"]:
        for rule, number in node["rules"].items():
            result[rule] = result.get(rule, 0) + number["run"]
    return {rule: number for rule, number in result.items() if number}


def reasons(plan: dict) -> dict[tuple[str, str | None], list[dict]]:
    return {(node["stage"], node["system"]): node["reasons"] for node in plan["nodes"] if node["run"]}


@pytest.fixture(scope="module")
def finished(hollow_run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("planned") / "run"
    shutil.copytree(hollow_run, folder)
    # Hours follow from what encoding counted.
    summary = folder / "results/smoke/encoded/raw/train.json"
    times = os.stat(summary)
    summary.write_text(json.dumps({"pairs": 100, "source_tokens": 900, "target_tokens": 1100}))
    os.utime(summary, ns=(times.st_atime_ns, times.st_mtime_ns))
    return folder


CHANGES = {
    "nothing": ("seeds=[1]", {}),
    "a refiner": (
        "systems={score: {training: {learning_rate: 0.25}}}",
        # The report shows configurations, in which a preset may have set it.
        {
            ("train", "score"): ("systems.score.training.learning_rate", "0.002", "0.25"),
            ("report", None): ("systems.score.training.learning_rate", "(none)", "0.25"),
        },
    ),
    "a first limit": ("recipe={limits: {train: 50}}", {("data", None): ("recipe.limits.train", "(none)", "50")}),
    "repeats held out": ("recipe={held_out: remove}", {("data", None): ("recipe.held_out", "keep", "remove")}),
    "examples": (
        "report={examples: 4}",
        {("analyse", None): ("examples", None, "4"), ("report", None): ("report.examples", None, "4")},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_says_which_jobs_run_as_snakemake_does_and_which_setting_changed(change, finished, hollow_project):
    setting, changed = CHANGES[change]
    words = ("--config", "experiment=smoke", setting)
    plan = planned(*words, folder=finished, project=hollow_project)
    assert counts(plan) == scheduled(*words, project=hollow_project, folder=finished)
    assert plan["jobs"] == sum(jobs(Plan(load_experiment("smoke"))).values())
    assert bool(plan["run"]) == any(node["reasons"] for node in plan["nodes"]) == bool(changed)
    result = {}
    for key, reasons_of_job in reasons(plan).items():
        settings = [
            (entry["name"], entry["old"], entry["new"]) for entry in reasons_of_job if entry["kind"] == "setting"
        ]
        result |= {key: settings[0]} if settings else {}
    assert result.keys() == changed.keys()
    for key, (name, old, new) in changed.items():
        assert result[key][0] == name and result[key][2] == new
        assert result[key][1] == old if old else result[key][1] not in (new, "(none)")


def test_hours_of_jobs_that_ran_before_are_those_that_they_took(finished, hollow_project):
    """Also of other seeds; but not where their settings are others."""
    benchmark = next(finished.glob("benchmarks/*/train_refiner/score/**/*.tsv"))
    config = next(finished.glob("results/*/systems/score/seed-1/config.json"))
    content, training = benchmark.read_text(), config.read_text()
    head, row, *_ = content.splitlines()
    fields = dict(zip(head.split("\t"), row.split("\t"), strict=True)) | {"s": "3600", "cpu_time": "7200"}
    words = ("--config", "experiment=smoke")

    def score(*more: str) -> float | None:
        plan = planned(*words, *more, folder=finished, project=hollow_project)
        (node,) = (node for node in plan["nodes"] if (node["stage"], node["system"]) == ("train", "score"))
        return node["core_hours"]

    try:
        benchmark.write_text(f"{head}\n" + "\t".join(fields.values()) + "\n")
        assert score("seeds=[1]", "--forcerun", "train_refiner") == 2
        assert score("seeds=[1, 2]") == 2
        assert score("systems={score: {training: {learning_rate: 0.25}}}") is None
        assert score("seeds=[1]", "--forcerun", "train_refiner", "--pairs", "90") is None
        # The last run went on from a saved state.
        config.write_text(json.dumps({"minutes": 180.0}))
        assert score("seeds=[1]", "--forcerun", "train_refiner") == 6
    finally:
        benchmark.write_text(content)
        config.write_text(training)


def test_an_estimate_counts_finished_jobs_too(finished, hollow_project):
    words = ("--config", "experiment=smoke", "seeds=[1]", "--no-calibration")
    plan, estimate = (planned(*words, folder=finished, project=hollow_project, name=n) for n in ("plan", "estimate"))
    assert plan["run"] == 0 and not plan["operations"]
    assert estimate["run"] == estimate["jobs"] == plan["jobs"] and estimate["operations"] > 0
    assert not any(node["reasons"] for node in estimate["nodes"])


def test_a_changed_text_is_reported_as_a_file_and_not_as_a_setting(hollow_project, tmp_path):
    own_text(tmp_path)
    words = ("--cores", "1", "normalised", "--configfile", "mine.yaml")
    process = snakemake(*words, snakefile=hollow_project / "Snakefile", folder=tmp_path)
    assert process.returncode == 0, process.stderr
    (tmp_path / "train.de").write_text("another line\n")
    reasons_of_data = reasons(planned("mine.yaml", folder=tmp_path, project=hollow_project))["data", None]
    assert ("updated", "train.de changed") in {(entry["kind"], entry["text"]) for entry in reasons_of_data}
    assert not any(entry["kind"] == "setting" for entry in reasons_of_data)


def test_every_reason_is_reported_with_its_file_or_where_it_comes_from(finished, hollow_project, tmp_path):
    words = ("--config", "experiment=smoke")
    quality = next(finished.glob("results/*/quality/lvm/seed-1/delta-1/test.json"))
    reference = next(finished.glob("results/*/corpus/test.reference.*"))
    page = finished / "results/smoke/report/index.html"
    times, removed = os.stat(reference), (quality, page)
    try:
        # Snakemake makes missing files where a job needs them.
        for number, path in enumerate(removed):
            path.rename(tmp_path / str(number))
        plan = planned(*words, folder=finished, project=hollow_project)
        assert counts(plan) == scheduled(*words, project=hollow_project, folder=finished)
        by_job = reasons(plan)
        assert by_job.keys() == {("translate", "lvm"), ("report", None)}
        (missing_file,) = by_job["translate", "lvm"]
        assert (missing_file["kind"], missing_file["jobs"]) == ("missing", 1)
        assert missing_file["text"] == f"missing {quality.relative_to(finished)}"
        assert {(entry["kind"], entry["text"]) for entry in by_job["report", None]} == {
            ("missing", f"missing {page.relative_to(finished)}"),
            ("follows", "translate lvm"),
        }
        for number, path in enumerate(removed):
            (tmp_path / str(number)).rename(path)
        # Other content that is newer: Snakemake compares checksums of small files.
        content = reference.read_text()
        reference.write_text("other")
        future = time.time() + 5
        os.utime(reference, (future, future))
        time.sleep(0.1)
        plan = planned(*words, folder=finished, project=hollow_project)
        assert counts(plan) == scheduled(*words, project=hollow_project, folder=finished)
        updated = {
            key: [entry for entry in by_job if entry["kind"] == "updated"] for key, by_job in reasons(plan).items()
        }
        assert f"newer input {reference.relative_to(finished)}" in str(updated["translate", "lvm"])
        reference.write_text(content)
    finally:
        os.utime(reference, ns=(times.st_atime_ns, times.st_mtime_ns))
    forced = planned(*words, "--forcerun", "score_quality", folder=finished, project=hollow_project)
    assert [entry["kind"] for entry in reasons(forced)["translate", "score"]] == ["forced"]


def test_a_fresh_experiment_is_not_made_yet_and_has_few_nodes(tmp_path):
    """Also with a target, a file over the experiment, and another folder."""
    plan = planned("smoke-families", folder=tmp_path)
    assert plan["run"] == plan["jobs"] == sum(jobs(Plan(load_experiment("smoke-families"))).values())
    # A node for a stage of a system, however many jobs it has.
    systems = load_experiment("smoke-families").systems
    assert 25 <= len(plan["nodes"]) <= 3 * len(systems) + 8
    assert all(node["run"] == node["jobs"] for node in plan["nodes"])
    assert {reasons_of_job[0]["kind"] for reasons_of_job in reasons(plan).values()} == {"new"}
    assert plan["core_hours"] is None and 0 < plan["gpu_hours"][0] < plan["gpu_hours"][1]
    (tmp_path / "more.yaml").write_text("systems: {lvm: null, score: null, energy: null}\n")
    (tmp_path / "elsewhere").mkdir()
    few = ("smoke", "--target", "teachers", "--directory", "elsewhere", "--config", "seeds=[1, 2]")
    plan = planned(*few, folder=tmp_path)
    assert {(node["stage"], node["system"], node["jobs"]) for node in plan["nodes"]} == {
        ("data", None, 6),
        ("train", "teacher", 2),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smok"], "error: experiment is 'smok'; "),
        (["none.yaml"], "error: none.yaml does not exist."),
        (["smoke", "--configfile", "none.yaml"], "error: none.yaml does not exist."),
        (["smoke", "--config", "seeds=[0.5]"], "error: seeds[0] is '0.5'; allowed: "),
        (["smoke", "--config", "seeds"], "error: --config is 'seeds'; allowed: NAME=VALUE"),
        (["smoke", "--target", "report", "none.txt"], "error: --target is 'none.txt': "),
        (["smoke", "--target", "."], "error: --target is '.': "),
        (
            ["smoke", "--target", "report", "techers"],
            "error: --target is 'techers': it is neither a rule nor a file that a rule makes; snakemake --list shows "
            'all rules; did you mean "teachers"?',
        ),
        (["smoke", "--forcerun", "train_lvmm"], "error: --forcerun is 'train_lvmm': "),
        (["smoke", "--output", "plan.png"], "error: --output is 'plan.png'; "),
    ],
)
def test_bad_input_is_reported_in_one_sentence(words, message, tmp_path):
    process = run(*words, folder=tmp_path)
    assert process.returncode == 1 and process.stdout == ""
    assert process.stderr.startswith(message) and len(process.stderr.strip().splitlines()) == 1


def test_the_terminal_and_the_files_show_every_node(finished, hollow_project, tmp_path):
    words = ("--config", "experiment=smoke", "systems={score: {training: {learning_rate: 0.25}}}")
    process = run(*words, "--output", str(tmp_path / "plan.html"), folder=finished, project=hollow_project)
    assert process.returncode == 0, process.stderr
    plan = planned(*words, "--output", str(tmp_path / "plan.svg"), folder=finished, project=hollow_project)
    assert process.stdout.startswith(f"smoke: {plan['run']} of {plan['jobs']} jobs would run")
    lines = process.stdout.splitlines()
    (row,) = (number for number, line in enumerate(lines) if line.split()[:3] == ["train", "score", "1"])
    # Reasons are wrapped, so that 80 columns are enough.
    for part in ("learning_rate", "0.002 → 0.25"):
        assert any(part in line for line in lines[row : row + 4])
    page, svg = (tmp_path / "plan.html").read_text(), ET.parse(tmp_path / "plan.svg").getroot()
    groups = svg.findall(f"{SVG}g")
    assert len(groups) == len(plan["nodes"]) == page.count("<g class=") == page.count("<tr") - 1
    titles = [group.find(f"{SVG}title").text for group in groups]
    assert sum("systems.score.training.learning_rate 0.002 → 0.25" in title for title in titles) == 1
    assert [group.get("class") for group in groups].count("own") == 2
    # Nothing from the network.
    assert not re.search(r"(src|href)=|@import|url\(", page)


def overview_of(edges: list[tuple[tuple[str, str], tuple[str, str]]], systems: tuple[str, ...]) -> Overview:
    graph = nx.DiGraph(edges)
    nodes = {
        key: Node(*key, runs=Counter(rule=1), rules=Counter(rule=2), reasons=Counter([Reason("new", "<&>")]))
        for key in graph
    }
    return Overview("one", "two", systems, graph, nodes, CountedSizes(None, 9.0))


def test_boxes_do_not_overlap_and_follow_what_they_read():
    data, report, speed = ("data", ""), ("report", ""), ("measure_speed", "")
    names = ("teacher", "lvm", "score", "late")
    edges = [(data, ("train", name)) for name in names]
    edges += [(("train", a), ("train", b)) for a, b in (("teacher", "lvm"), ("lvm", "score"), ("score", "late"))]
    edges += [(("train", "teacher"), ("distil", "teacher")), (("distil", "teacher"), ("train", "lvm"))]
    edges += [(("train", name), ("export", name)) for name in names]
    edges += [(("export", name), ("translate", name)) for name in names] + [
        (("export", "late"), ("translate", "teacher"))
    ]
    edges += [(("translate", name), end) for name in names for end in (report, speed, ("compare_rows", ""))]
    edges += [(speed, report), (("compare_rows", ""), report), (data, ("a_new_rule", "")), (("a_new_rule", ""), report)]
    edges += [(("export", "late"), ("bundles", "")), (("translate", "lvm"), ("bundles", "")), (("bundles", ""), report)]
    overview = overview_of(edges, names)
    column = drawing.columns(overview.graph)
    assert all(column[one] < column[other] for one, other in edges)
    assert len({column["export", name] for name in names}) == 1
    picture = drawing.picture(overview)
    places = [(box.x, box.y) for box in picture.boxes]
    for number, (x, y) in enumerate(places):
        assert 0 <= x <= picture.width - drawing.BOX and 0 <= y <= picture.height - drawing.HEIGHT
        for other_x, other_y in places[:number]:
            assert abs(x - other_x) >= drawing.BOX or abs(y - other_y) >= drawing.HEIGHT


def test_text_of_a_configuration_is_no_markup(tmp_path):
    overview = overview_of([(("data", ""), ("train", "a<b>&"))], ("a<b>&",))
    for suffix in drawing.SUFFIXES:
        drawing.write(overview, tmp_path / f"plan{suffix}")
    assert "a<b>&" in "".join(ET.parse(tmp_path / "plan.svg").getroot().itertext())
    assert "<b>" not in (tmp_path / "plan.html").read_text()
