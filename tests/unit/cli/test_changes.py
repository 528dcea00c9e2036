"""Changed settings by name, against changes that are made here."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.cli.changes import ABSENT, Change, changes
from workflow_src.cli.plan import setting_prefix

KEYS = st.text("abcdef", min_size=1, max_size=3)
LEAVES = st.sampled_from([0, -1.5, True, None, "", 'x\'s "y" →', "7", [], [1, 2], "{", "null"])
BRANCHES = st.dictionaries(KEYS, st.one_of(LEAVES, st.dictionaries(KEYS, LEAVES, min_size=1, max_size=3)), max_size=3)
# A setting that stays, so that both sides are known to be the same settings.
SETTINGS = BRANCHES.map(lambda branches: {**branches, "kept": 1, "leaf": 2})


def recorded(*values) -> list[str]:
    """Parameters as Snakemake records them."""
    return [repr(json.dumps(value, sort_keys=True) if isinstance(value, dict) else value) for value in values]


def leaves(settings: dict, path: tuple[str, ...] = ()):
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


@given(SETTINGS, st.data())
def test_one_changed_leaf_is_the_one_change(settings, data):
    path = data.draw(st.sampled_from(sorted(set(leaves(settings)) - {("kept",)})))
    changed = copy.deepcopy(settings)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    old, parent[path[-1]] = parent[path[-1]], "something new"
    old_text = old if isinstance(old, str) else json.dumps(old)
    changed_settings = changes(recorded(settings), recorded(changed), "systems.score")
    assert changed_settings == [Change(".".join(("systems.score", *path)), old_text, "something new")]
    assert str(changed_settings[0]) == f"systems.score.{'.'.join(path)} {old_text} → something new"


def test_settings_that_came_or_went_and_other_parameters():
    old, new = {"a": {"b": 1}, "gone": 2}, {"a": {"b": 1, "c": [3]}, "came": None}
    assert changes(recorded(old), recorded(new)) == [
        Change("a.c", ABSENT, "[3]"),
        Change("came", ABSENT, "null"),
        Change("gone", "2", ABSENT),
    ]
    # A parameter that is no settings has no name; two of settings are distinguished by their keys.
    two = changes(recorded("x/y", {"a": 1}, {"b": 1, "c": 2}), recorded("x/z", {"b": 5, "c": 2}, {"a": 7}))
    assert sorted(map(str, two)) == ["a 1 → 7", "b 1 → 5", "x/y → x/z"]
    assert changes([], []) == []


@pytest.mark.parametrize(
    ("old", "new", "described"),
    [
        ([{"n": 1, "w": 2}, {"n": 2, "w": 2}], [{"n": 1, "w": 3}, {"n": 2, "w": 2}], ["rows[0].w 2 → 3"]),
        ([{"n": 1}], [{"n": 1}, {"n": 2}], ["rows 1 entries → 2 entries (0 removed, 1 added)"]),
        ([{"n": 1}, {"n": 2}], [{"n": 2}, {"n": 1}], ["rows entries → the same in another order"]),
        ([1, 2], [1, 3], ["rows [1, 2] → [1, 3]"]),
    ],
)
def test_entries_of_lists(old, new, described):
    assert [str(change) for change in changes(recorded({"rows": old}), recorded({"rows": new}))] == described


def test_sections_in_an_order():
    first = ["numbers", {"min_share": 1}], ["length", {"max_words": 100}]

    def described(*now):
        return list(
            map(str, changes(recorded({"clean": [*first], "a": 1}), recorded({"clean": [*now], "a": 1}), "recipe"))
        )

    changed = ["length", {"max_words": 50}]
    assert described(first[0], changed) == ["recipe.clean.length.max_words 100 → 50"]
    assert described(*first, ["copies", {"x": 1}]) == ['recipe.clean.copies (none) → {"x": 1}']
    assert described(*first[::-1]) == ['recipe.clean ["numbers", "length"] → ["length", "numbers"]']
    assert setting_prefix("clean", {}) == "recipe"


def test_long_values_are_cut():
    (change,) = changes(recorded({"a": "x" * 500}), recorded({"a": 1}))
    assert len(change.old) == 60 and change.old.endswith("…")
