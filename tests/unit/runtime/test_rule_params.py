"""Params of rules: what a job's document has, and what Snakemake compares."""

from __future__ import annotations

import json

import pytest

from workflow_src.config import Plan, load_experiment
from workflow_src.runtime.rule_params import RuleParams, folder_of, prefix_of


class Named(dict):
    """Files or wildcards by name, as Snakemake has them."""

    def __getattr__(self, name):
        return self[name]


WILDCARDS = Named(system="lvm", seed="1")
INPUT = Named(source="a/dev.de", model="b/model.safetensors", shards=["1", "2"], none=[])
OUTPUT = Named(text="c/dev.txt", summary="d/train.json")


def params_of(runs_jobs=True, **runtime) -> RuleParams:
    return RuleParams(Plan(load_experiment("smoke", runtime=runtime)), lambda: runs_jobs)


def document(params: RuleParams, **options):
    functions = params.stage("train", Plan.settings_training, of=["system"], **options)
    return functions["job"](WILDCARDS, INPUT, OUTPUT)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_document_has_settings_and_inputs_by_name_without_empty_ones(folder):
    params = params_of()
    functions = params.stage(
        "train",
        Plan.settings_training,
        ["seed", "source", "shards", "none", "chosen"],
        of=["system"],
        subwords=folder_of("input.model"),
        prefix=prefix_of("output.summary"),
        output="output.text",
        batch=lambda job: 0,
    )
    path = functions["job"](WILDCARDS, INPUT, OUTPUT)
    content = json.loads((folder / path).read_text())
    settings = content.pop("settings")
    assert settings == json.loads(params.plan.settings_training("lvm"))
    files = {"source": "a/dev.de", "shards": ["1", "2"], "subwords": "b", "prefix": "d/train", "output": "c/dev.txt"}
    assert content == files | {"seed": "1", "batch": 0}
    assert json.loads((folder / params.run_document.path).read_text()) == params.plan.run_settings()


def test_nothing_is_written_where_nothing_runs(folder):
    assert document(params_of(runs_jobs=False)) == document(params_of())
    assert len(list(folder.rglob("*.json"))) == 2


def test_settings_of_the_machine_change_the_document_of_the_run_alone():
    plain, other = params_of(), params_of(device="cpu", log_every=7, download_attempts=9, scoring_batch=3)
    assert document(plain) == document(other)
    assert plain.run_document.path != other.run_document.path
    content = other.run_document.content
    assert (content["device"], content["log_every"], content["patience"]["attempts"]) == ("cpu", 7, 9)


def test_snakemake_compares_settings_that_differ_from_defaults():
    functions = params_of().stage("train", Plan.settings_training, of=["system"])
    compared, full = json.loads(functions["settings"](WILDCARDS)), json.loads(params_of().plan.settings_training("lvm"))
    assert compared["training"].items() <= full["training"].items()
    assert "accumulate" in full["training"] and "accumulate" not in compared["training"]


def test_speed_is_measured_with_folders_by_system_and_by_what_reads_them(folder):
    params = params_of()
    path = "results/smoke/systems/{}/seed-1/{}"
    exports = {kind: [path.format("teacher", kind) + "/bundle.json"] for kind in params.plan.exports}
    bundles = [path.format(name, "bundle") + "/bundle.json" for name in ("teacher", "lvm")]
    job_input = Named(bundles=bundles, source="test.de", **exports)
    document = params.speed["job"](Named(), job_input, Named(speed="speed.json"))
    content = json.loads((folder / document).read_text())
    assert exports and content["exports"] == {kind: {"teacher": path.format("teacher", kind)} for kind in exports}
    assert content["bundles"] == {name: path.format(name, "bundle") for name in ("teacher", "lvm")}


def test_snakemake_compares_no_setting_that_changes_no_weights():
    other = Plan(load_experiment("smoke", systems={"lvm": {"training": {"max_skipped": 3, "save_every": 7}}}))
    plain = params_of().plan
    assert plain.settings_training("lvm") != other.settings_training("lvm")
    assert plain.compared().settings_training("lvm") == other.compared().settings_training("lvm")
    slower = Plan(load_experiment("smoke", systems={"lvm": {"training": {"learning_rate": 1e-4}}}))
    assert plain.compared().settings_training("lvm") != slower.compared().settings_training("lvm")


def test_settings_are_of_wildcards_by_name_and_of_functions_of_them(folder):
    def settings(plan, seed, system, twice):
        return json.dumps({"seed": seed, "system": system, "twice": twice, "recipe": plan.recipe.name})

    job = params_of().stage("train", settings, of=["seed", "system", lambda wildcards: 2 * wildcards.seed])["job"]
    content = json.loads((folder / job(WILDCARDS, INPUT, OUTPUT)).read_text())
    assert content["settings"] == {"seed": "1", "system": "lvm", "twice": "11", "recipe": "smoke"}
