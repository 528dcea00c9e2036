"""`recipe.clean`: filters in their order, what rules are handed of them, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re

import pydantic
import pytest
from counted_jobs import jobs
from pydantic import Field

from workflow_src.config import Plan, load_experiment
from workflow_src.config.declared import filter_settings
from workflow_src.data.filters.score import FILTER
from workflow_src.declarations import check_sections
from workflow_src.errors import ConfigError, DeclarationError, did_you_mean
from workflow_src.spec import UNKNOWN, Frozen

TABLE = {"table": "x.tsv", "columns": {"de": 0, "en": 1}, "score_column": 2}
TEXTS = {"texts": {"de": "x.de", "en": "x.en"}}


def plan(clean, **dataset) -> Plan:
    raw = {"name": "mine", "languages": ["de", "en"], "dev": [TEXTS], "test": [TEXTS], **dataset}
    return Plan(load_experiment("smoke", recipe={"clean": clean} | ({"dataset": raw} if dataset else {})))


def test_without_filters_nothing_is_different():
    with_none, filtered = plan({}), plan({"length": {}})
    assert "clean" not in jobs(with_none) and jobs(filtered) == jobs(with_none) | {"clean": 1}
    assert with_none.to_normalise("train", "de") == with_none.raw("train", "de")
    assert filtered.to_normalise("train", "de") == "results/smoke/clean/train.de"
    assert filtered.settings_download() == with_none.settings_download()
    assert filtered.settings_normalise() == with_none.settings_normalise()


def test_filters_are_handed_over_in_their_order_with_all_settings():
    clean_settings = json.loads(plan({"numbers": {"written_out": 3}, "copies": {}}).settings_clean())
    assert clean_settings == {
        "languages": ["de", "en"],
        "clean": [["numbers", {"min_share": 1.0, "written_out": 3}], ["copies", {"max_similarity": 0.9}]],
    }


def test_a_list_is_filters_with_their_defaults():
    assert plan(["numbers", "copies"]).settings_clean() == plan({"numbers": {}, "copies": {}}).settings_clean()


def test_an_experiment_that_extends_another_changes_single_filters(load_over):
    clean = {"length": {"max_words": 9}, "copies": {}, "numbers": {}}
    changes = {"length": {"min_words": 2}, "copies": None, "repeated": {}}
    parent = {"extends": "smoke", "recipe": {"name": "parent", "clean": clean}}
    loaded = load_over(parent, recipe={"name": "mine", "clean": changes})
    filters = json.loads(Plan(loaded).settings_clean())["clean"]
    assert [name for name, _ in filters] == ["length", "numbers", "repeated"]
    assert (filters[0][1]["max_words"], filters[0][1]["min_words"]) == (9, 2)


@pytest.mark.parametrize(
    ("clean", "dataset", "sentence"),
    [
        ({"lenght": {}}, {},
         rf"recipe.clean.lenght: no filter; allowed: addresses, .*; {re.escape(did_you_mean('length'))}"),
        ({"ratio": {"max_word": 3}}, {}, f"recipe.clean.ratio.max_word: {UNKNOWN}; allowed: max_characters, "),
        ({"ratio": {"max_words": 1}}, {}, "recipe.clean.ratio.max_words is 1; "),
        ({"length": {"min_words": 9, "max_words": 5}}, {}, r"recipe.clean.length.min_words is 9; allowed: 5 or less"),
        ({"ratio": True}, {}, "recipe.clean.ratio is True; allowed: a section"),
        ([["ratio"]], {}, r"recipe.clean is \[\['ratio'\]\]; allowed: a list of names"),
        (["ratio", "ratio"], {}, r"recipe.clean is \['ratio', 'ratio'\]; "),
        ({"garbled": None}, {}, "recipe.clean.garbled: null; write {} for its defaults, or remove it"),
        ({"repeated": {"pairs": None}}, {}, "recipe.clean.repeated: it leaves out nothing; change its settings"),
        ({"score": {}}, {"train": [TABLE]}, "recipe.clean.score: it leaves out nothing; "),
        ({"ratio": {"max_words": None, "max_characters": None}}, {}, "recipe.clean.ratio: it leaves out nothing; "),
        ({"length": dict.fromkeys(("max_words", "max_characters")) | {"min_words": 0, "min_characters": 0}}, {},
         "recipe.clean.length: it leaves out nothing; "),
        ({"letters": {"min_share": 0}}, {}, "recipe.clean.letters.min_share is 0; "),
        ({"script": {"min_share": 0}}, {}, "recipe.clean.script.min_share is 0; "),
        ({"numbers": {"min_share": 0}}, {}, "recipe.clean.numbers.min_share is 0; "),
        ({"capitals": {"max_share": 1}}, {}, "recipe.clean.capitals.max_share is 1; "),
        ({"garbled": dict.fromkeys(("entities", "mojibake", "lost"), False)}, {},
         "recipe.clean.garbled: it repairs and leaves out nothing; "),
        ({"script": {"scripts": {"de": ["KLINGON"]}}}, {}, "recipe.clean.script.scripts.de is 'KLINGON': no script; "),
        ({"script": {"scripts": {"de": []}}}, {}, r"recipe.clean.script.scripts.de is \[\]; "),
        ({"script": {"scripts": {"fr": ["latin"]}}}, {}, "recipe.clean.script: it has scripts of fr, which is neither"),
        ({"language": {"others": ["qq"]}}, {}, "recipe.clean.language: it does not know others qq"),
        ({"score": {"minimum": 0}}, {"train": [TEXTS]}, "recipe.clean.score: train of dataset mine has no scores"),
        ({}, {"train": [TABLE]}, r"score_column of train\[0\] of dataset mine is 2: it has no effect"),
        ({"score": {"minimum": 0}}, {"train": [TABLE], "dev": [TABLE]}, r"score_column of dev\[0\] of dataset mine is"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_sentence(clean, dataset, sentence):
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        plan(clean, **dataset)


@pytest.mark.parametrize(
    ("languages", "clean", "reason"),
    [
        (("gsw", "en"), {"language": {}}, "recipe.clean.language: it does not know source gsw (py3langid); change its"),
        (("xqz", "en"), {"language": {}}, "recipe.clean.language: it does not know source xqz (py3langid)"),
        (("de", "en"), {"language": {"others": ["fra", "qq"]}}, "recipe.clean.language: it does not know others qq"),
        (("nob", "cmn"), {"language": {"others": ["nb", "deu", "cmn"]}, "script": {}}, None),
        (("xqz", "en"), {"script": {}}, "recipe.clean.script: it does not know the script of xqz "),
        (("xqz", "en"), {"script": {"scripts": {"xqz": ["THAI"]}}}, None),
        (("ja", "en"), {"ratio": {"max_words": None}}, "recipe.clean.ratio: it leaves out nothing"),
        (("th", "my"), {"ratio": {"max_words": None}}, None),
        (("ja", "en"), {"ratio": {"max_characters": None}}, None),
    ],
)
def test_filters_are_checked_for_the_languages(languages, clean, reason):
    if reason is None:
        assert list(filter_settings(clean.items(), languages)) == list(clean)
        return
    with pytest.raises(ConfigError, match=f"^{re.escape(reason)}"):
        filter_settings(clean.items(), languages)


def test_scores_are_needed_where_a_filter_reads_them():
    assert plan({"score": {"minimum": 0.5}}, train=[TABLE]).loaded.needs_scores
    assert not plan({}, train=[TABLE | {"minimum_score": 0.1}]).loaded.needs_scores


class Required(Frozen):
    limit: int = Field(gt=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Mine"}, "Mine"),
        ({"settings": Required}, "give every setting one"),
        ({"settings": dict}, "settings"),
        ({"needs": ("words",)}, "scores"),
        ({"check": "workflow_src.data.filters.score:check"}, "check"),
    ],
)
def test_declarations_that_cannot_be_used_are_named(changes, words):
    with pytest.raises((DeclarationError, pydantic.ValidationError), match=words):
        member = dataclasses.replace(FILTER, **{"name": "mine"} | changes)
        check_sections('filter "mine"', member)
