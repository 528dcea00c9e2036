"""`recipe.placeholders`: kinds of spans, what rules are handed of them, and what is refused."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from counted_jobs import jobs

from workflow_src.config import Plan, load_experiment
from workflow_src.config.recipe import PlaceholderKind
from workflow_src.errors import ConfigError

KINDS = get_args(PlaceholderKind)


def plan(value) -> Plan:
    return Plan(load_experiment("smoke", recipe={"placeholders": value}))


def kinds_in_settings(own: Plan) -> list[str] | None:
    switches = json.loads(own.settings_normalise()).get("placeholders")
    return switches and [kind for kind in KINDS if switches[kind]]


def test_kinds_are_compared_by_name_so_that_a_new_one_makes_nothing_run_again_where_others_are_listed():
    assert json.loads(plan({"urls": False}).compared().settings_normalise())["placeholders"] == [
        kind for kind in KINDS if kind != "urls"
    ]


@pytest.mark.parametrize("value", [None, False])
def test_off_hands_over_nothing(value):
    default = Plan(load_experiment("smoke"))
    assert kinds_in_settings(plan(value)) is None
    assert plan(value).settings_subwords() == default.settings_subwords()


def test_other_kinds_make_other_subwords_though_no_sentence_has_one():
    subwords = [plan(value).compared().settings_subwords() for value in (None, True, {"urls": False})]
    assert len(set(subwords)) == 3


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (True, [*KINDS]),
        ({}, [*KINDS]),
        ({"urls": False}, [kind for kind in KINDS if kind != "urls"]),
        (["variables", "tags"], ["tags", "variables"]),
    ],
)
def test_kinds_are_handed_to_what_reads_text(value, kinds):
    assert kinds_in_settings(plan(value)) == kinds
    assert jobs(plan(value)) == jobs(plan(None))


@pytest.mark.parametrize("value", [["url"], {"url": True}, "tags", 3, [], dict.fromkeys(KINDS, False), ["tags", 1]])
def test_what_names_no_kind_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        plan(value)
    assert caught.value.setting.startswith("recipe.placeholders")
