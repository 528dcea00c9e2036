"""Masked language models in a configuration: names and rows of their decodes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from refusals import refuses

from workflow_src.config import Plan, load_experiment
from workflow_src.config.resolved import Loaded
from workflow_src.errors import ConfigError

SYSTEM = {"family": "cmlm", "preset": "miniature", "training": {"max_steps": 2, "batch_tokens": 100}}


def experiment(decode: dict[str, Any], **changes: Any) -> Loaded:
    decodes = [{"system": "teacher", "search": "greedy"}, {"system": "one", "search": "mask-predict", **decode}]
    return load_experiment("smoke", systems={"one": {**SYSTEM, **changes}}, decodes=decodes)


def test_settings_that_differ_from_defaults_stand_in_names():
    fields = {"iterations": 4, "length_beam": 1, "lengthening": 0.1, "length_quantile": 0.6}
    (_, row) = experiment(fields).decodes
    assert row.name == "mask-predict-4-lengths1-quantile0.6-longer0.1"
    (_, row) = experiment({"iterations": 4, "length_beam": 3, "rescorer": "teacher"}).decodes
    assert row.name == "mask-predict-4-lengths3-by-teacher"
    (_, row) = experiment({"iterations": 4, "length_penalty": 1.5}).decodes
    assert row.name == "mask-predict-4-penalty1.5"
    (_, row) = experiment({"iterations": 4, "length_penalty": 1.0}).decodes
    assert row.name == "mask-predict-4"


def test_dev_may_choose_the_length_beam_and_engines_compute_it():
    fields = {"iterations": 4, "tune": {"length_beam": [1, 3, 5]}, "name": "chosen", "engine": "onnxruntime"}
    (_, row) = experiment(fields).decodes
    assert row.tune == {"length_beam": [1, 3, 5]}


@pytest.mark.parametrize(
    "search, fields, chosen",
    [
        ("mask-predict", {"iterations": 4, "length_beam": 1}, {"length_quantile": [0.5, 0.6]}),
        ("argmax", {"lengths": 5}, {"length_penalty": [1.0, 1.5]}),
        ("argmax", {}, {"lengths": [3, 5], "length_penalty": [1.0, 1.5]}),
    ],
)
def test_values_to_choose_from_are_checked_beside_the_others_of_their_decode(search, fields, chosen):
    (_, row) = experiment({"search": search, **fields, "tune": chosen, "name": "chosen"}).decodes
    assert row.tune == chosen
    with pytest.raises(ConfigError, match=r"length_penalty.*lengths"):
        experiment({"search": "argmax", "tune": {"lengths": [1, 5], "length_penalty": [1.5]}})


def test_the_analysis_of_lengths_follows_every_number_of_iterations_once():
    fields = {"iterations": [1, 4], "length_beam": [1, 5], "rescorer": "teacher"}
    plan = Plan(experiment(fields))
    analysis = plan.analyses["lengths"]
    assert analysis.enabled and "one" in analysis.systems
    searches = [entry for entry in json.loads(analysis.settings)["searches"] if entry["system"] == "one"]
    assert searches == [{"system": "one", "search": "mask-predict", "model": "one", "iterations": n} for n in (1, 4)]
    analyses = [name for name, other in plan.analyses.items() if "one" in other.systems]
    assert analyses == ["lengths"]


@pytest.mark.parametrize(
    ("decode", "model", "setting", "fields"),
    [
        ({"iterations": 4, "length_beam": 0}, {}, ".length_beam", {"value": 0}),
        ({"iterations": [4, -1]}, {}, ".iterations", {"value": -1}),
        ({}, {}, ".iterations", {"hint": "add it"}),
        (
            {"iterations": 65},
            {"max_positions": 64},
            "",
            {
                "problem": "search mask-predict of system one takes at most 64 iterations, one for each position "
                "of its longest output (model.max_positions), and iterations is 65; say 64 or fewer"
            },
        ),
        (
            {"iterations": 4, "length_beam": 6},
            {"max_length_difference": 2},
            "",
            {
                "problem": "search mask-predict of system one takes at most 5 lengths, one for each class of its "
                "length head (model.max_length_difference is 2), and length_beam is 6; say 5 or fewer"
            },
        ),
        (
            {"iterations": 4, "tune": {"length_beam": [5, 6]}},
            {"max_length_difference": 2},
            "",
            {"mentions": ("mask-predict", "5", "model.max_length_difference", "2", "length_beam", "6")},
        ),
        (
            {"iterations": 4, "length_quantile": 0.6},
            {},
            ".length_quantile",
            {"value": 0.6, "mentions": ("length_beam is 5",)},
        ),
        ({"iterations": 4, "length_penalty": -1}, {}, ".length_penalty", {"value": -1}),
        (
            {"iterations": 4, "length_beam": 1, "length_penalty": 1.5},
            {},
            ".length_penalty",
            {"value": 1.5, "mentions": ("length_beam is 1",)},
        ),
        (
            {"iterations": 4, "rescorer": "teacher", "tune": {"length_penalty": [1.0, 1.5]}},
            {},
            ".tune.length_penalty",
            {"value": 1.5, "mentions": ("the rescorer teacher",)},
        ),
        ({"system": "teacher", "iterations": 4}, {}, ".search", {"allowed": ("beam", "greedy", "verified")}),
    ],
)
def test_a_decode_that_cannot_be_is_refused(decode, model, setting, fields):
    with refuses(setting=f"decodes[1]{setting}", **fields):
        experiment(decode, model=model)


def test_lengths_are_learnt():
    with refuses(setting="systems.one.objective.length_weight", value=0):
        experiment({"iterations": 4}, objective={"length_weight": 0})
