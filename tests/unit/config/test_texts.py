"""Training texts of systems: mixtures with weights, the systems that make texts, and errors of both."""

import copy
import json

import pytest
from refusals import fields_of

from workflow_src.cli.estimate import jobs
from workflow_src.config import Plan, load, texts
from workflow_src.config.compose import CONFIG_FOLDER, laid_over, merge, read_yaml
from workflow_src.config.display import build
from workflow_src.errors import ConfigError

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")
MIXED = {"raw": 0.5, "distilled-by-teacher": 1}


def plan_with(changes):
    return Plan(load(merge(copy.deepcopy(SMOKE), changes)))


def test_a_mixture_names_its_texts_in_their_order_and_their_teacher():
    plan = plan_with({"systems": {"ctc": {"data": MIXED}}})
    ctc = plan.system("ctc")
    assert list(ctc.texts.items()) == [("distilled-by-teacher", 1.0), ("raw", 0.5)]
    assert ctc.teachers == ["teacher"] and "teacher" in ctc.built_on
    assert json.loads(plan.settings_training("ctc"))["data"] == {"distilled-by-teacher": 1.0, "raw": 0.5}
    assert plan.texts == ["raw", "distilled-by-teacher"] and plan.teachers == ["teacher"]
    # What is trained on it is trained with every seed, and so is its teacher.
    assert ("teacher", 1) in plan.trained


def test_one_text_of_weight_1_is_that_text():
    plain, mixed = (plan_with({"systems": {"ctc": {"data": data}}}) for data in ("raw", {"raw": 1}))
    assert plain.settings_training("ctc") == mixed.settings_training("ctc")
    assert plan_with({"systems": {"ctc": {"data": {"raw": 2}}}}).system("ctc").data == {"raw": 2.0}


def test_a_refiner_learns_from_the_mixture_of_its_base():
    plan = plan_with({"systems": {"lvm": {"data": MIXED}}})
    assert plan.system("score").texts == plan.system("lvm").texts == MIXED


def test_what_reports_say_of_the_data_of_systems():
    plan = plan_with({"systems": {"ctc": {"data": MIXED}, "lvm": {"data": {"distilled-by-teacher": 3}}}})
    manifest = build(json.loads(plan.settings_report()))
    assert {system.name: system.data_kind for system in manifest.systems if system.name != "energy"} == {
        "teacher": "raw",
        "lvm": "distilled",
        "score": "distilled",
        "ctc": "mixed",
        "lm": "distilled",
    }
    assert texts.words(manifest.system("ctc").data) == "distilled-by-teacher + 0.5 × raw"
    assert texts.words(manifest.system("lvm").data) == "3 × distilled-by-teacher"
    assert texts.words(manifest.system("teacher").data) == "raw"


def test_systems_that_are_kept_keep_the_teachers_of_their_mixtures():
    kept = laid_over(
        merge(copy.deepcopy(SMOKE), {"systems": {"ctc": {"data": MIXED, "init_from": None}}}), {"only": ["ctc"]}
    )
    assert set(kept["systems"]) == {"ctc", "teacher", "lm"}


def test_one_encoding_for_each_text_is_estimated():
    every = jobs(plan_with({}))["encode"]
    data = {"distilled-by-score": 1, "distilled-by-teacher": 0.5}
    with pytest.raises(ConfigError):
        plan_with({"systems": {"ctc": {"data": data}}})
    assert jobs(plan_with({"systems": {"ctc": {"data": MIXED}}}))["encode"] == every


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ({"raw": 0}, {"setting": "systems.ctc.data.raw", "allowed": "above 0"}),
        ({"raw": "much"}, {"setting": "systems.ctc.data.raw", "allowed": "a number"}),
        ({"raw": True}, {"setting": "systems.ctc.data", "allowed": "a number"}),
        ({"rew": 1, "distilled-by-teacher": 1}, {"setting": "systems.ctc.data", "value": "rew", "nearest": "raw"}),
        ({"distilled-by-teach": 1}, {"setting": "systems.ctc.data", "nearest": "distilled-by-teacher"}),
        ({"raw": 1, "distilled-by-ctc": 1}, {"setting": "systems", "problem": "a circle, ctc -> ctc"}),
        ({"raw": 1, "distilled-by-energy": 1}, {"setting": "systems.ctc.data", "value": "distilled-by-energy"}),
        ({}, {"setting": "systems.ctc.data", "allowed": "at least 1 entry"}),
        (["raw"], {"setting": "systems.ctc.data", "value": ["raw"], "mentions": ("{raw: 1, ",)}),
    ],
)
def test_data_that_cannot_be_used(data, fields):
    with pytest.raises(ConfigError) as refused:
        plan_with({"systems": {"ctc": {"data": None}}}) and plan_with({"systems": {"ctc": {"data": data}}})
    assert fields_of(refused.value, fields) == fields


def test_what_is_counted_at_once_has_one_text():
    with pytest.raises(ConfigError) as refused:
        plan_with({"systems": {"lm": {"data": MIXED}}})
    assert refused.value.setting == "systems.lm.data"
