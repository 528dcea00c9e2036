"""Metrics that a program computes, in plans: settings, files, rows, costs."""

import json
from types import SimpleNamespace

import pytest
from counted_jobs import jobs
from refusals import refuses

from workflow_src.cli.checking import check_files
from workflow_src.config.load import load_experiment
from workflow_src.config.plan import Plan
from workflow_src.config.resources import Requests
from workflow_src.config.rules import GPU_PROCESS, PROCESS
from workflow_src.registry import metrics

CHECKPOINT = "/models/large/checkpoints/model.ckpt"
COMET = {"comet": {"checkpoint": CHECKPOINT}}


def planned(**settings) -> Plan:
    return Plan(load_experiment("smoke", **({"metrics": COMET} | settings)))


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (
            {"metrics": COMET, "recipe": {"normalisation": {"moses_tokenise": True}}},
            {"setting": "metrics.comet", "mentions": ("moses_tokenise",)},
        ),
        (
            {"metrics": COMET, "recipe": {"normalisation": {"lowercase": True, "references": "normalised"}}},
            {"setting": "metrics.comet", "mentions": ("lowercase",)},
        ),
        ({"metrics": ["comet"]}, {"setting": "metrics.comet", "hint": "change its settings, or remove it"}),
        (
            {"metrics": {"comet": {"checkpoint": "x", "download": "y"}}},
            {"setting": "metrics.comet.download", "value": "y", "problem": "checkpoint is set too"},
        ),
        ({"metrics": {"comet": {"checkpoint": ""}}}, {"setting": "metrics.comet.checkpoint", "value": ""}),
        ({"metrics": {"comet": {"checkpoint": "{x}"}}}, {"setting": "metrics.comet.checkpoint", "value": "{x}"}),
        ({"metrics": {"comet": {"download": ""}}}, {"setting": "metrics.comet.download", "value": ""}),
        ({"runtime": {"pythons": {"bleu": "x"}}}, {"setting": "runtime.pythons.bleu", "allowed": ("comet",)}),
        ({"runtime": {"scoring_batch": 0}}, {"setting": "runtime.scoring_batch"}),
        (
            {
                "metrics": COMET,
                "decodes": [
                    {"system": "score", "search": "score", "steps": 1, "tune": {"step_size": [0.5, 1.0]}}
                    | {"tune_by": "comet"}
                ],
            },
            {"value": "comet", "allowed": ("bleu",)},
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, fields):
    with refuses(**fields):
        load_experiment("smoke", **settings)


def test_every_row_of_test_has_a_file_of_figures_and_no_row_of_dev():
    plan = planned(
        decodes=[
            {"system": "teacher", "search": "greedy", "splits": ["dev", "test"]},
            {"system": "lvm", "search": "prior-mean"},
        ]
    )
    files = {(row[0].name, row[2]): plan.computed_figures(*row) for row in plan.rows}
    assert files == {
        ("greedy", "dev"): [],
        ("greedy", "test"): ["results/smoke/computed/comet/teacher/seed-1/greedy/test.json"],
        ("prior-mean", "test"): ["results/smoke/computed/comet/lvm/seed-1/prior-mean/test.json"],
    }
    assert jobs(plan)["score_comet"] == 2
    # Where nothing else is decoded, tables are of dev.
    alone = planned(decodes=[{"system": "teacher", "search": "greedy", "splits": ["dev"]}])
    assert jobs(alone)["score_comet"] == 1
    assert "score_comet" not in jobs(planned(metrics=None))


def test_rules_hold_the_model_and_nothing_of_the_machine():
    plan = planned()
    settings = {"checkpoint": CHECKPOINT, "download": None}
    assert json.loads(plan.settings_program("comet")) == settings
    assert json.loads(plan.settings_quality())["metrics"]["comet"] == settings
    assert plan.program_files("comet") == {"checkpoint": CHECKPOINT, "hparams": "/models/large/hparams.yaml"}
    assert {CHECKPOINT, "/models/large/hparams.yaml"} <= {path for _, path in plan.own_inputs}
    elsewhere = planned(runtime={"pythons": {"comet": "/venv/bin/python"}, "scoring_batch": 64})
    assert elsewhere.settings_quality() == plan.settings_quality()
    assert elsewhere.settings_significance("test") == plan.settings_significance("test")
    assert elsewhere.settings_report() == plan.settings_report()
    # The rule is declared in any case, and asks for nothing where the metric is not measured.
    off = planned(metrics=None)
    assert (off.settings_program("comet"), off.program_files("comet"), off.own_inputs) == ("{}", {}, [])


def test_paths_of_models_are_those_that_comet_takes():
    assert planned(metrics={"comet": {"checkpoint": "model.ckpt"}}).program_files("comet")["hparams"] == (
        "../hparams.yaml"
    )
    assert planned(metrics={"comet": {"download": "Unbabel/x"}}).program_files("comet") == {}


def test_jobs_request_what_the_program_declares():
    program = metrics()["comet"].program
    for gpu in (False, True):
        needs = Requests(planned(), gpu=gpu)
        assert needs.memory("score_comet", SimpleNamespace(), 1) == program.memory + gpu * (PROCESS + GPU_PROCESS)
        assert needs.minutes("score_comet", SimpleNamespace(), 1) == program.minutes


def test_a_checkpoint_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "checkpoints/model.ckpt"
    plan = planned(metrics={"comet": {"checkpoint": str(path)}})
    with refuses(setting="checkpoint of metrics.comet", value=str(path)):
        check_files(plan)
    path.parent.mkdir()
    path.write_text("")
    with refuses(value=str(tmp_path / "hparams.yaml")):
        check_files(plan)
    (tmp_path / "hparams.yaml").write_text("")
    check_files(plan)
