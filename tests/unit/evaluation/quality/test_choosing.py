from __future__ import annotations

import json
from typing import Annotated

import pytest
from pydantic import Field

from workflow_src.config.resolved import combinations
from workflow_src.evaluation.quality.choosing import at_edge, choose, dev_figure
from workflow_src.registry import main_metric, metrics
from workflow_src.spec import Option, SearchSettings


def test_every_combination_is_tried_once_in_order():
    assert combinations(Numbers, {"weight": [0.5, 1.0], "lengths": [1, 3]}) == [
        {"weight": 0.5, "lengths": 1},
        {"weight": 0.5, "lengths": 3},
        {"weight": 1.0, "lengths": 1},
        {"weight": 1.0, "lengths": 3},
    ]
    # Values stay as they are: whole numbers are whole, because they index.
    assert [type(values["lengths"]) for values in combinations(Numbers, {"lengths": [1, 2.0]})] == [int, float]


def test_values_of_a_setting_without_effect_are_not_tried_one_by_one():
    """`share` counts with a bonus alone, and `floor` with a share."""
    assert combinations(Numbers, {"floor": [1.0, 2.0], "share": [0.0, 0.5], "bonus": [0.0, 1.0]}) == [
        {"floor": 1.0, "share": 0.0, "bonus": 0.0},
        {"floor": 1.0, "share": 0.0, "bonus": 1.0},
        {"floor": 1.0, "share": 0.5, "bonus": 1.0},
        {"floor": 2.0, "share": 0.5, "bonus": 1.0},
    ]
    assert len(combinations(Numbers, {"share": [0.0, 0.5], "weight": [0.0, 0.5]})) == 4


def test_the_highest_bleu_wins_and_the_curve_is_whole():
    chosen, curve = choose(
        [{"step_size": 0.5}, {"step_size": 1.0}, {"step_size": 1.5}],
        lambda settings: {"bleu": -((settings["step_size"] - 1.0) ** 2), "mean_steps": 4},
        main_metric(),
    )
    assert chosen == {"step_size": 1.0}
    assert [point["settings"]["step_size"] for point in curve] == [0.5, 1.0, 1.5]
    assert [point["bleu"] for point in curve] == [-0.25, 0.0, -0.25]


def test_the_lowest_wins_where_less_is_better():
    errors = {0.5: 60.0, 1.0: 50.0, 1.5: 50.0}
    tried = [{"step_size": size} for size in errors]
    chosen, _ = choose(tried, lambda one: {"ter": errors[one["step_size"]]}, metrics()["ter"])
    assert chosen == {"step_size": 1.0}


class Numbers(SearchSettings):
    """A search's settings of every kind that dev may choose."""

    weight: float = Field(0.2, ge=0, le=1)
    threshold: float | None = Field(None, gt=0)
    lengths: int = Field(1, ge=1)
    bonus: float = 0.0
    share: Annotated[float, Option(only_with="bonus")] = 0.0
    floor: Annotated[float, Option(only_with="share")] = 0.0
    first: bool = False
    how: str = "a"


GRIDS = {
    "weight": [0.0, 0.5, 1.0],
    "threshold": [0.1, 0.2],
    "lengths": [1, 3, 5],
    "bonus": [-1.0, 0.0, 1.0],
    "first": [False, True],
    "how": ["a", "b"],
}


@pytest.mark.parametrize(
    ("chosen", "edges"),
    [
        # Nothing lies beyond what a setting allows, and its default is no edge.
        ({"weight": 0.0}, []),
        ({"weight": 1.0}, []),
        ({"lengths": 1}, []),
        ({"weight": 0.5}, []),
        ({"bonus": 0.0}, []),
        ({"lengths": 5}, [("lengths 5", "largest")]),
        ({"bonus": -1.0}, [("bonus -1", "smallest")]),
        ({"bonus": 1.0}, [("bonus 1", "largest")]),
        # 0 is not allowed, but smaller numbers than 0.1 are.
        ({"threshold": 0.1}, [("threshold 0.1", "smallest")]),
        # What is no number has no order.
        ({"first": True, "how": "b"}, []),
        ({"threshold": 0.2, "lengths": 5}, [("threshold 0.2", "largest"), ("lengths 5", "largest")]),
    ],
)
def test_a_choice_at_the_edge_of_its_grid_is_reported_where_the_grid_can_be_extended(chosen, edges):
    sentences = [f"{choice} is the {end} of its grid: extend it" for choice, end in edges]
    assert at_edge(Numbers, {name: GRIDS[name] for name in chosen}, chosen) == sentences


def test_a_grid_of_one_value_has_no_edge():
    assert at_edge(Numbers, {"bonus": [1.0]}, {"bonus": 1.0}) == []


@pytest.mark.parametrize(("removal", "bleu"), [("none", 20.0), ("words", 21.0), ("subwords", 22.0)])
def test_the_bleu_of_a_decode_on_dev_is_that_of_the_outputs_that_its_bundle_gives(removal, bleu, tmp_path):
    quality, chosen = tmp_path / "quality.json", tmp_path / "chosen.json"
    variants = zip(("kept", "without_repeated_words", "without_repeated_subwords"), (20.0, 21.0, 22.0), strict=True)
    quality.write_text(json.dumps({name: {"bleu": value} for name, value in variants}))
    # What another metric chose has a BLEU of its own.
    curve = [{"settings": {"beam": beam}, "bleu": bleu} for beam, bleu in ((2, 30.0), (4, 31.0), (8, 32.0))]
    chosen.write_text(json.dumps({"chosen": {"beam": 4}, "curve": curve}))
    # Its own translations of dev come first: dev chose with our own code, whatever the decode's engine is.
    assert dev_figure(removal, quality, chosen) == dev_figure(removal, quality, None) == bleu
    assert dev_figure(removal, None, chosen) == 31.0


def test_a_setting_without_effect_has_no_edge():
    tune = {"bonus": [0.0, 1.0], "share": [0.2, 0.5]}
    assert [text.split()[0] for text in at_edge(Numbers, tune, {"bonus": 1.0, "share": 0.2})] == ["bonus", "share"]
    assert [text.split()[0] for text in at_edge(Numbers, tune, {"bonus": 0.0, "share": 0.2})] == ["bonus"]
