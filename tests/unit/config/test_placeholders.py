"""`recipe.placeholders`: kinds of spans, what rules are handed of them, and what is refused."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from counted_jobs import jobs
from refusals import refuses

from workflow_src.config import Plan, load_experiment
from workflow_src.config.recipe import PlaceholderKind
from workflow_src.errors import ConfigError

KINDS = get_args(PlaceholderKind)


def plan(value) -> Plan:
    return Plan(load_experiment("smoke", recipe={"placeholders": value}))


def kinds_in_settings(own: Plan) -> list[str] | None:
    return json.loads(own.settings_normalise()).get("placeholders")


@pytest.mark.parametrize("value", [None, False, "false", "none", []])
def test_off_hands_over_nothing(value):
    default = Plan(load_experiment("smoke"))
    assert kinds_in_settings(plan(value)) is None
    assert plan(value).settings_subwords() == default.settings_subwords()


def test_other_kinds_make_other_subwords_though_no_sentence_has_one():
    subwords = [plan(value).compared().settings_subwords() for value in (None, True, ["urls"])]
    assert len(set(subwords)) == 3


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (True, [*KINDS]),
        ("true", [*KINDS]),
        (["variables", "tags"], ["tags", "variables"]),
        (["urls", "urls"], ["urls"]),
    ],
)
def test_kinds_are_handed_to_what_reads_text(value, kinds):
    assert kinds_in_settings(plan(value)) == kinds_in_settings(plan(value).compared()) == kinds
    assert jobs(plan(value)) == jobs(plan(None))


@pytest.mark.parametrize("value", [["url"], {"urls": True}, "tags", 3, 0, ["tags", 1]])
def test_what_names_no_kind_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        plan(value)
    assert caught.value.setting.startswith("recipe.placeholders")


def test_a_misspelt_kind_is_refused_with_the_nearest():
    fields = {"setting": "recipe.placeholders[1]", "value": "url", "allowed": tuple(sorted(KINDS)), "nearest": "urls"}
    with refuses(**fields):
        plan(["tags", "url"])
