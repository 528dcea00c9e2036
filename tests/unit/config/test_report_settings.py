"""The settings of a report: the plan that is made of them shows what the experiment's own plan does."""

import json

import pytest
import reports

from workflow_src.config import Plan, load
from workflow_src.config.files import experiment_names
from workflow_src.config.load import load_experiment
from workflow_src.config.plan import shown_plan


def shown(plan: Plan) -> dict:
    """What a report takes from a plan. Batches and shards of decodes are not in it."""
    decodes = [decode.model_copy(update={"batch": 1, "shards": 1}) for decode in plan.loaded.decodes]
    own = {"save_every": 1, "max_skipped": 1}
    systems = [
        system.model_copy(update={"training": system.training.model_copy(update=own)})
        for system in plan.loaded.systems.values()
    ]
    row = plan.comparisons.reference
    files = [plan.quality(*row) for row in plan.rows] + [plan.chosen(*row) for row in plan.tuned]
    files += [plan.translation(*row) for row in plan.rows] + [plan.finished_file(*bundle) for bundle in plan.finished]
    return {
        "systems": systems,
        "decodes": decodes,
        "files": files,
        "reference": row and (row.system, row.name),
        "trained": plan.trained,
        "grids": plan.grids,
        "metrics": plan.loaded.metrics,
        "test": (plan.loaded.test_sets, [len(plan.references(name)) for name in plan.loaded.test_sets]),
        "report": plan.config.report,
        "terms": (plan.loaded.dataset.name, plan.loaded.dataset.licence, plan.loaded.dataset.citation),
    }


@pytest.mark.parametrize("name", experiment_names())
def test_a_report_shows_what_the_experiment_has(name):
    plan = Plan(load_experiment(name, seeds=[3, 1]))
    settings = plan.settings_report()
    again = shown_plan(json.loads(settings))
    assert shown(again) == shown(plan) and again.settings_report() == settings


def test_the_order_of_systems_and_test_sets_is_kept():
    """Though objects of JSON are written in the order of their keys."""
    systems = {name: reports.SYSTEMS["teacher"] for name in ("teacher", "b", "a")}
    recipe = reports.RECIPE | {"dataset": reports.dataset(test=1, news=2)}
    plan = Plan(load(reports.configuration({("b", "greedy"): {"search": "greedy"}}, systems, recipe=recipe)))
    again = shown_plan(json.loads(plan.settings_report()))
    assert list(again.loaded.systems) == ["teacher", "b", "a"] and again.loaded.test_sets == ("test", "news")


def test_a_dataset_with_scores_that_a_filter_reads_is_shown():
    part = {"table": "pairs.tsv", "columns": {"de": 0, "en": 1}, "score_column": 2}
    dataset = reports.dataset(test=1) | {"train": [part]}
    recipe = reports.RECIPE | {"dataset": dataset, "clean": {"score": {"minimum": 0.5}}}
    decodes = {("teacher", "greedy"): {"search": "greedy"}}
    plan = Plan(load(reports.configuration(decodes, {"teacher": reports.SYSTEMS["teacher"]}, recipe=recipe)))
    settings = plan.settings_report()
    again = shown_plan(json.loads(settings))
    assert shown(again) == shown(plan) and again.settings_report() == settings


@pytest.mark.parametrize("ratio", [1e20, 1e-7])
def test_a_report_takes_names_that_settings_make(ratio):
    decodes = [{"system": "teacher", "search": "beam", "beam": 2, "max_length_ratio": ratio}]
    plan = Plan(load_experiment("demo", decodes=decodes))
    assert shown(shown_plan(json.loads(plan.settings_report()))) == shown(plan)


LIST = {"system": "lvm", "search": "delta", "steps": [1, 2]}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        # Another way to write the same.
        ({"decodes": [LIST | {"steps": 1}, LIST | {"steps": 2, "stop_threshold": None}]}, True),
        ({"decode_defaults": {"engine": "eager", "batch": 9}}, True),
        ({"decodes": [LIST | {"batch": 7, "shards": 3, "splits": ["test"]}]}, True),
        ({"seeds": [1], "report": {"margin": 0.5}}, True),
        # What shows in other inputs of the report, or nowhere.
        ({"runtime": {"device": "cpu"}, "speed": {"repeats": 9}, "distillation": {"teacher": {"shards": 2}}}, True),
        ({"analyses": {"marginal": {"chunk": 7}}, "likelihood": {"teacher": {"keep": 0.5}}}, True),
        ({"systems": {"lvm": {"training": {"max_skipped": 77, "save_every": 9}}}}, True),
        ({"recipe": {"monolingual": [{"texts": {"de": "news.de"}}], "distilled": {"mine": "mine.en"}}}, True),
        # What it shows.
        ({"decodes": [LIST | {"steps": [1, 4]}]}, False),
        ({"decodes": [LIST | {"name": "mine"}]}, False),
        ({"description": "Another one."}, False),
        ({"report": {"margin": 0.75}}, False),
        ({"seeds": [2]}, False),
        ({"metrics": ["bleu", "ter"]}, False),
    ],
)
def test_settings_change_with_what_a_report_shows(changes, same):
    settings = [
        Plan(load_experiment("demo", **({"decodes": [LIST]} | more))).settings_report() for more in ({}, changes)
    ]
    assert (settings[0] == settings[1]) is same
