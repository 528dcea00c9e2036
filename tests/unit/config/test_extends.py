"""What an experiment takes over from the one that it extends, and what it must say for itself."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest

from workflow_src.config import Plan, load, load_experiment
from workflow_src.config.load import CONFIG_FOLDER, experiment_names, read_yaml

SAID = {
    "title": "A title",
    "notes": "A note.",
    "expected": {"score-1": 26.3},
    "expected_source": "A paper, Table 1",
}


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """A folder of experiments in place of the shipped ones: `parent` says everything about itself, `child` nothing."""
    for folder in ("datasets", "models"):
        (tmp_path / folder).symlink_to(CONFIG_FOLDER / folder)
    (tmp_path / "experiments").mkdir()
    parent = read_yaml(CONFIG_FOLDER / "experiments/smoke.yaml")
    parent["systems"]["ctc"]["search_defaults"] = {"ctc-beam": {"lm_weight": 0.3}}
    parent |= {"experiment": "parent", "description": "The parent's words.", "report": SAID | {"examples": 3}}
    child = {"experiment": "child", "extends": "parent", "recipe": {"name": "child"}}
    for name, content in (("parent", parent), ("child", child)):
        (tmp_path / "experiments" / f"{name}.yaml").write_text(json.dumps(content))
    # The package exports the function `load` under the module's name.
    monkeypatch.setattr(sys.modules[load.__module__], "CONFIG_FOLDER", tmp_path)


def said(loaded):
    report = loaded.config.report
    return loaded.config.description, {key: getattr(report, key) for key in SAID}


NOTHING = ("", {"title": None, "notes": "", "expected": {}, "expected_source": ""})


def test_nothing_that_an_experiment_says_about_itself_is_inherited(shipped):
    parent, child = load({"experiment": "parent"}), load({"experiment": "child"})
    assert said(parent) == ("The parent's words.", SAID)
    assert said(child) == NOTHING
    # Settings are: those of the report too.
    assert child.config.report.examples == parent.config.report.examples == 3
    assert parent.systems["ctc"].search_defaults == {"ctc-beam": {"lm_weight": 0.3}}
    # What the parent's bundles search with was chosen on another corpus.
    assert child.systems == parent.systems | {"ctc": dataclasses.replace(parent.systems["ctc"], search_defaults={})}
    assert child.config.decodes == parent.config.decodes


def test_a_grandchild_and_a_configuration_file_inherit_no_more(shipped):
    assert said(load({"experiment": "mine", "extends": "child", "recipe": {"name": "mine"}})) == NOTHING
    own = {"description": "Mine.", "report": {"notes": "My note.", "expected": {"beam-2": 20.0}}}
    told = said(load({"experiment": "mine", "extends": "parent", "recipe": {"name": "mine"}} | own))
    assert told == ("Mine.", NOTHING[1] | {"notes": "My note.", "expected": {"beam-2": 20.0}})
    manifest = json.loads(Plan(load({"experiment": "mine", "extends": "parent"})).settings_report())
    assert manifest["description"] == "" and manifest["report"]["expected"] == {}


def test_a_setting_changed_in_an_experiment_leaves_its_words(shipped):
    """`--config` over an experiment that is run by its name is no other experiment."""
    assert said(load({"experiment": "parent", "seeds": [2]})) == ("The parent's words.", SAID)


def test_each_shipped_experiment_has_a_description_of_its_own():
    descriptions = {}
    for name in experiment_names():
        own = read_yaml(CONFIG_FOLDER / "experiments" / f"{name}.yaml").get("description", "")
        assert own.strip(), f"config/experiments/{name}.yaml has no description"
        assert load_experiment(name).config.description == own
        descriptions[own] = name
    assert len(descriptions) == len(experiment_names())
