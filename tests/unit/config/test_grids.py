"""Grids of a report: which system stands in which cell, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from refusals import refuses

from workflow_src.config import Plan, load_experiment
from workflow_src.config.experiment import with_text_keys
from workflow_src.config.plan import shown_plan

TRAINING = {"max_steps": 2, "batch_tokens": 100}
TAGGER = {"family": "tagger", "preset": "miniature", "training": TRAINING}


def inference(first: str, second: str, energy: str = "teacher") -> dict[str, Any]:
    return {
        "family": "inference-tagger",
        "preset": "miniature",
        "training": TRAINING,
        "init_from": "tagger",
        "roles": {"energy": energy},
        "objective": {"input_operator": first, "output_operator": second},
    }


SYSTEMS = {
    "tagger": TAGGER,
    "seq2seq": {"family": "seq2seq", "preset": "miniature", "training": TRAINING},
    "one": inference("ST", "SX"),
    "two": inference("SX", "SX"),
    "three": inference("SX", "ST", "seq2seq"),
}
GRID = {
    "title": "Operators",
    "family": "inference-tagger",
    "rows": "objective.input_operator",
    "columns": "objective.output_operator",
}


def planned(grid: dict[str, Any], systems: dict[str, Any] | None = None, scorer: Any = None) -> Plan:
    energies = {"enabled": scorer is not None, "scorer": scorer}
    systems, report = SYSTEMS | (systems or {}), {"grids": [GRID | grid]}
    return Plan(load_experiment("smoke", systems=systems, report=report, analyses={"energies": energies}))


def cells(plan: Plan) -> list[list[tuple[str, tuple[str, ...]] | None]]:
    (grid,) = plan.grids
    return [[cell and (cell.system, cell.scorers) for cell in row] for row in grid.cells]


def test_cells_are_systems_by_their_settings_with_the_scorer_of_their_own_role():
    plan = planned({"published": {"SX": {"ST": "55 (20.1)"}}}, scorer=["teacher", "seq2seq"])
    (grid,) = plan.grids
    # In the order of the systems; the third minimises another energy.
    assert (grid.rows, grid.columns) == (("ST", "SX"), ("SX", "ST"))
    assert cells(plan) == [[("one", ("teacher",)), None], [("two", ("teacher",)), ("three", ("seq2seq",))]]
    assert grid.published == (("–", "–"), ("–", "55 (20.1)"))
    # The report has the same.
    assert shown_plan(json.loads(plan.settings_report())).grids == plan.grids
    assert planned({}).grids[0].published is None


def test_systems_may_be_chosen_and_settings_be_of_any_section():
    four = {"four": inference("SX", "SX", "seq2seq") | {"model": {"dropout": 0.25}}}
    plan = planned(
        {
            "rows": "model.dropout",
            "columns": "init_from",
            "systems": ["four", "two"],
            "published": {0.25: {"tagger": "1"}},
        },
        four,
    )
    (grid,) = plan.grids
    assert grid.rows[0] == "0.25" and grid.columns == ("tagger",)
    assert [cell.system for (cell,) in grid.cells] == ["four", "two"] and grid.published[0] == ("1",)


def test_published_figures_of_a_grid_are_not_inherited(load_over):
    grid = GRID | {"published": {"SX": {"ST": "1"}}}
    parent = {"extends": "smoke", "systems": SYSTEMS, "report": {"grids": [grid], "examples": 2}}
    report = load_over(parent).config.report
    assert report.examples == 2 and [(shown.title, shown.published) for shown in report.grids] == [(GRID["title"], {})]


@pytest.mark.parametrize(
    ("grid", "systems", "fields"),
    [
        ({"family": "nobody"}, {}, {"setting": ".family", "nearest": None}),
        ({"family": "cmlm"}, {}, {"setting": ".family", "nearest": None}),
        ({"rows": "objective.input"}, {}, {"setting": ".rows", "nearest": "objective.input_operator"}),
        ({"columns": "roles"}, {}, {"setting": ".columns", "nearest": None}),
        (
            {"rows": "objective.output_operator"},
            {},
            {"setting": ".columns", "hint": "name two settings"},
        ),
        (
            {},
            {"four": inference("SX", "ST")},
            {
                "setting": "",
                "problem": "three and four both have objective.input_operator SX and objective.output_operator ST",
            },
        ),
        (
            {"systems": ["one", "tagger"]},
            {},
            {"setting": ".systems", "allowed": ("one", "three", "two")},
        ),
        ({"published": {"GX": {"SX": "1"}}}, {}, {"setting": ".published", "allowed": ("ST", "SX")}),
        ({"published": {"SX": {"GX": "1"}}}, {}, {"setting": ".published.SX", "allowed": ("ST", "SX")}),
        ({"colums": "x"}, {}, {"setting": ".colums", "nearest": "columns"}),
    ],
)
def test_what_cannot_be_laid_out_is_refused_in_a_sentence(grid, systems, fields):
    with refuses(**fields | {"setting": f"report.grids[0]{fields['setting']}"}):
        planned(grid, systems)


def test_keys_of_yaml_are_the_same_text_in_the_document_of_a_run():
    """Jobs on other machines read the configuration from JSON, whose keys are text."""
    grid = {"published": {0.25: {"tagger": "1"}, 5.0: {"tagger": "2"}, None: {"tagger": "3"}, "four": {"tagger": "3"}}}
    read = json.loads(json.dumps(with_text_keys(grid), sort_keys=True))
    assert list(read["published"]) == ["0.25", "5", "four", "none"] and read["published"]["5"] == {"tagger": "2"}
