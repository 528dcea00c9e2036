"""Changed settings by name, against changes that are made here."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.cli.changes import ABSENT, Change, changes
from workflow_src.config import Plan, load_experiment

KEYS = st.text("abcdef", min_size=1, max_size=3)
LEAVES = st.sampled_from([0, -1.5, True, None, "", 'x\'s "y" →', "7", [], [1, 2], "{", "null"])
BRANCHES = st.dictionaries(KEYS, st.one_of(LEAVES, st.dictionaries(KEYS, LEAVES, min_size=1, max_size=3)), max_size=3)
SETTINGS = BRANCHES.map(lambda branches: {**branches, "leaf": 2})


def recorded(settings: dict | None = None, *others: object) -> list[str]:
    """Parameters as Snakemake records them: settings as JSON, and others as they are."""
    values = ([json.dumps(settings, sort_keys=True)] if settings is not None else []) + list(others)
    return list(map(repr, values))


def leaves(settings: dict, path: tuple[str, ...] = ()):
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


@given(SETTINGS, st.data())
def test_one_changed_leaf_is_the_one_change(settings, data):
    path = data.draw(st.sampled_from(sorted(set(leaves(settings)))))
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
    # A parameter of a rule that a user added is no settings, and has no name.
    both = changes(recorded({"a": 1}, "x/y", 3), recorded({"a": 7}, "x/z", 3))
    assert list(map(str, both)) == ["a 1 → 7", "3, x/y → 3, x/z"]
    assert list(map(str, changes(recorded(None, "x"), recorded()))) == ["x → (none)"]
    assert changes(recorded(), recorded()) == []


def test_a_setting_that_is_left_out_has_its_default():
    defaults = {"model": {"dim": 8}, "epochs": 2}
    old, new = recorded({"model": {}, "epochs": 3}), recorded({"model": {"dim": 4}})
    assert list(map(str, changes(old, new, "systems.a", defaults))) == [
        "systems.a.epochs 3 → 2",
        "systems.a.model.dim 8 → 4",
    ]


def test_contents_of_the_users_files_have_their_paths():
    old, new = recorded({"a": 1}, {"my.de": "0f", "my.en": "1f"}), recorded({"a": 2}, {"my.de": "0f", "my.en": "2f"})
    assert list(map(str, changes(old, new, "recipe"))) == ["recipe.a 1 → 2", "recipe.my.en 1f → 2f"]


@given(SETTINGS, SETTINGS, SETTINGS)
def test_there_is_a_change_wherever_settings_differ_whatever_the_defaults_are(old, new, defaults):
    assert bool(changes(recorded(old), recorded(new), "recipe", defaults)) == (old != new)


# Settings of an experiment, what rules get of them, and the changes: names with values before and after.
SET = {
    "limits": ({"recipe": {"limits": {"train": 50}}}, Plan.settings_normalise, {"limits.train": (ABSENT, "50")}),
    "held_out": ({"recipe": {"held_out": "remove"}}, Plan.settings_normalise, {"held_out": ("keep", "remove")}),
    "tokenised": (
        {"recipe": {"tokenised": {"de": "moses"}}},
        Plan.settings_normalise,
        {"tokenised.de": (ABSENT, "moses")},
    ),
    "placeholders": (
        {"recipe": {"placeholders": ["urls", "tags"]}},
        Plan.settings_normalise,
        {"placeholders": (ABSENT, '["tags", "urls"]')},
    ),
    "cleaning": ({"recipe": {"clean": ["length"]}}, Plan.settings_clean, {"clean.length": (ABSENT, "{}")}),
    "search_defaults": (
        {"systems": {"lvm": {"search_defaults": {"delta": {"steps": 3}}}}},
        lambda plan: plan.settings_finish("lvm", 1, None),
        {"search_defaults.delta.steps": (ABSENT, "3")},
    ),
    "remove_repetitions": (
        {"report": {"remove_repetitions": "words"}},
        Plan.settings_report,
        {"report.remove_repetitions": ("null", "words")},
    ),
    "a metric": (
        {"metrics": {"bleu": {}, "chrf": {}, "ter": {}}},
        Plan.settings_quality,
        {"metrics.ter": (ABSENT, "{}")},
    ),
    "seeds": ({"seeds": [1, 2]}, Plan.settings_report, {"seeds": ("[1]", "[1, 2]")}),
    "bleu_tokeniser": (
        {"recipe": {"bleu_tokeniser": "char"}},
        Plan.settings_quality,
        {"corpus.tokeniser": ("13a", "char")},
    ),
}


@pytest.mark.parametrize("name", SET)
def test_a_setting_of_an_experiment_that_is_newly_set_is_named_with_its_default(name):
    setting, text_of, named = SET[name]
    before, after = (Plan(load_experiment("smoke", **changed)) for changed in ({}, setting))
    texts = [text_of(plan.compared()) for plan in (before, after)]
    assert texts[0] != texts[1]
    defaults = [json.loads(text_of(plan.defaults())) for plan in (before, after)]
    there = changes([repr(texts[0])], [repr(texts[1])], "", defaults[1])
    back = changes([repr(texts[1])], [repr(texts[0])], "", defaults[0])
    assert named.items() <= {change.name: (change.old, change.new) for change in there}.items()
    assert len(back) == len(there) and all(change.old != change.new for change in [*there, *back])


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


def test_long_values_are_cut():
    (change,) = changes(recorded({"a": "x" * 500}), recorded({"a": 1}))
    assert len(change.old) == 60 and change.old.endswith("…")
