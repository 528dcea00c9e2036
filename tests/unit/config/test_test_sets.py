"""Several test sets of a dataset, several references of a source: what an experiment plans, and what is refused."""

from __future__ import annotations

import json

import pytest
from counted_jobs import jobs
from refusals import refuses

from workflow_src.config import Plan, load
from workflow_src.config.files import CONFIG_FOLDER, merge, read_yaml
from workflow_src.config.plan import shown_plan

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")


def texts(name: str, *references: str) -> dict:
    return {"texts": {"de": f"{name}.de", "en": list(references) or f"{name}.en"}}


TRAIN, DEV = [texts("train")], [texts("dev")]
NEWS, TALKS = [texts("news")], [texts("talks", "talks.en", "other.en")]
OWN = {"name": "mine", "languages": ["de", "en"], "train": TRAIN, "dev": DEV, "test": {"news": NEWS, "talks": TALKS}}


def planned(dataset: dict | str = OWN, recipe: dict | None = None, **changes) -> Plan:
    raw = {"name": "mine", "dataset": dataset, "source": "de", "target": "en"} | (recipe or {})
    return Plan(load(merge(SMOKE, changes) | {"recipe": raw | {"subwords": {"vocabulary_size": 300}}}))


def test_a_list_is_one_set_called_test():
    plan = planned(OWN | {"test": NEWS})
    assert plan.loaded.test_sets == ("test",) and plan.compared_sets == ("test",)
    assert plan.raw_texts(plan.raw)[-2:] == ["results/mine/raw/test.de", "results/mine/raw/test.en"]
    assert {split for _, _, split in plan.rows} == {"test"}
    assert plan.significance("test") == "results/smoke/significance.json"
    assert jobs(plan) == jobs(planned(OWN | {"test": {"test": NEWS}}))


def test_every_set_is_decoded_compared_and_shown_and_the_first_is_the_main_one():
    plan = planned(analyses={"energies": {"enabled": True}})
    decodes = len(plan.loaded.decodes)
    assert [split for _, _, split in plan.rows][:2] == ["news", "talks"] and len(plan.rows) == 2 * decodes
    assert (plan.test, plan.shown_split) == ("news", "news")
    assert plan.encoded("raw", "talks") == "results/mine/encoded/raw/talks"
    assert plan.encoded("distilled-by-teacher", "talks") == plan.encoded("raw", "talks")
    assert plan.significance("news") == "results/smoke/significance.json"
    assert plan.significance("talks") == "results/smoke/significance-talks.json"
    rows = json.loads(plan.settings_significance("talks"))["rows"]
    assert len(rows) == decodes and all(row["translations"].endswith("/talks.txt") for row in rows)
    # Comparisons are those of the main set.
    main = json.loads(plan.settings_significance("news"))["rows"]
    assert [row["baseline"] for row in rows] == [row["baseline"] for row in main] and any(r["baseline"] for r in main)
    on_talks = plan.analyses["energies talks"]
    assert (on_talks.split, on_talks.rule) == ("talks", "measure_energies_on_talks")
    assert on_talks.path == "results/smoke/analysis/energies-talks.json"
    assert [path.rsplit("/", 1)[1] for path in on_talks.reads] == ["talks.jsonl"] * decodes
    assert plan.analyses["energies"].split == "news" and plan.analyses["lengths"].split == "news"
    assert [name for name in plan.analyses if name.endswith(" talks")] == ["energies talks"]
    assert shown_plan(json.loads(plan.settings_report())).loaded.test_sets == ("news", "talks")
    counted = jobs(plan)
    assert (counted["compare_rows"], counted["compare_rows_on_talks"], counted["measure_energies_on_talks"]) == (
        1,
        1,
        1,
    )
    assert counted["decode"] == counted["score_quality"] == 2 * decodes
    # Texts: raw, distilled, dev and two test sets.
    assert counted["encode"] == 5


def test_an_experiment_picks_sets_and_their_order_and_its_recipe_keeps_all():
    plan, all_sets = planned(test=["talks"]), planned()
    assert plan.loaded.test_sets == plan.compared_sets == ("talks",) and {row[2] for row in plan.rows} == {"talks"}
    assert plan.settings_normalise() == all_sets.settings_normalise() and plan.own_files() == all_sets.own_files()
    assert plan.settings_download() == all_sets.settings_download()
    assert shown_plan(json.loads(plan.settings_report())).loaded.test_sets == ("talks",)
    plan = planned(test=["talks", "news"], recipe={"limits": {"dev": 9, "test": 5}})
    assert plan.loaded.test_sets == ("talks", "news") and plan.significance("talks") == all_sets.significance("news")
    # A set that nothing translates may lack a language.
    french = OWN | {"languages": ["de", "en", "fr"], "test": {"news": NEWS, "odd": [{"texts": {"de": "x", "fr": "y"}}]}}
    assert planned(french, test=["news"]).loaded.held_out == ("dev", "news")
    plan = planned(recipe={"limits": {"dev": 9, "test": 5}})
    assert json.loads(plan.settings_normalise())["limits"] == {"dev": 9, "test": 5}
    assert planned("multi30k").loaded.test_sets == ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    assert planned("toy", test=["test"]).loaded.test_sets == ("test",)


def test_picked_sets_are_inherited_with_their_dataset_alone():
    assert load({"experiment": "mine", "extends": "engine-grid"}).test_sets == ("test_2016_flickr",)
    recipe = {"name": "mine", "dataset": OWN}
    assert load({"experiment": "mine", "extends": "engine-grid", "recipe": recipe}).test_sets == ("news", "talks")


def test_references_have_files_of_their_own():
    plan = planned()
    assert plan.references("news") == ["results/mine/corpus/news.reference.en"]
    assert plan.references("talks") == [
        "results/mine/corpus/talks.reference.en",
        "results/mine/corpus/talks.reference-2.en",
    ]
    assert [file for file in plan.raw_texts(plan.raw) if "talks" in file] == [
        *("results/mine/raw/talks.de", "results/mine/raw/talks.en", "results/mine/raw/talks.reference-2.en")
    ]
    assert plan.own_files() == [
        f"{name}.{code}" for name in ("train", "dev", "news", "talks") for code in ("de", "en")
    ] + ["other.en"]
    assert [len(shown_plan(json.loads(plan.settings_report())).references(name)) for name in ("news", "talks")] == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("dataset", "changes", "fields"),
    [
        ({"test": {"dev": NEWS}}, {}, {"setting": "a name in recipe.dataset.test", "value": "dev"}),
        ({"test": {"Test-1": NEWS}}, {}, {"value": "Test-1"}),
        ({"test": {"news": []}}, {}, {"setting": "recipe.dataset.test.news"}),
        ({"test": [{"texts": {"de": 5, "en": "x"}}]}, {}, {"setting": "recipe.dataset.test[0].texts.de"}),
        ({"test": {"news": [texts("x", "a", "a")]}}, {}, {"setting": "recipe.dataset.test.news[0].texts"}),
        ({}, {"test": ["new"]}, {"setting": "test", "value": "new", "allowed": ("news", "talks")}),
        ({}, {"test": []}, {"setting": "test"}),
        (
            {"languages": ["de", "en", "fr"], "test": {"news": NEWS, "talks": [{"texts": {"de": "x", "fr": "y"}}]}},
            {},
            {
                "setting": "test.talks[0].texts of dataset mine",
                "hint": "add en, or leave the test set out by test: [news]",
            },
        ),
        (
            {"train": [texts("train", "a.en", "b.en")]},
            {},
            {"setting": "recipe.dataset.train[0].texts.en", "problem": "2 texts, and train has one"},
        ),
        (
            {"test": {"talks": [*TALKS, texts("more")]}},
            {},
            {"setting": "recipe.dataset.test.talks[1].texts.en", "allowed": "as many in every part"},
        ),
        (
            {"test": {"talks": [*TALKS, {"table": "x.tsv", "columns": {"de": 0, "en": 1}}]}},
            {},
            {"setting": "recipe.dataset.test.talks[1].table"},
        ),
        (
            {},
            {"recipe": {"source": "en", "target": "de"}},
            {"setting": "test.talks[0].texts of dataset mine", "problem": "2 texts in en, the source"},
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(dataset, changes, fields):
    with refuses(**fields):
        planned(OWN | dataset, **changes)
