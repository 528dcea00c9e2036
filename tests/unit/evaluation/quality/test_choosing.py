from __future__ import annotations

from workflow_src.evaluation.quality.choosing import choose, combinations


def test_every_combination_is_tried_once_in_order():
    assert combinations({"step_size": [0.5, 1.0], "lengths": [1, 3]}) == [
        {"step_size": 0.5, "lengths": 1},
        {"step_size": 0.5, "lengths": 3},
        {"step_size": 1.0, "lengths": 1},
        {"step_size": 1.0, "lengths": 3},
    ]
    # Values stay as they are: whole numbers are whole, because they index.
    assert [type(settings["lengths"]) for settings in combinations({"lengths": [1, 1.0]})] == [int, float]


def test_the_highest_bleu_wins_and_the_curve_is_whole():
    chosen, curve = choose(
        {"step_size": [0.5, 1.0, 1.5]},
        lambda settings: {"bleu": -((settings["step_size"] - 1.0) ** 2), "mean_steps": 4},
    )
    assert chosen == {"step_size": 1.0}
    assert [point["settings"]["step_size"] for point in curve] == [0.5, 1.0, 1.5]
    assert [point["bleu"] for point in curve] == [-0.25, 0.0, -0.25]


def test_of_equals_the_first_wins():
    chosen, _ = choose({"step_size": [2.0, 1.0]}, lambda settings: {"bleu": 30.0, "mean_steps": 1})
    assert chosen == {"step_size": 2.0}
