"""What a configuration of iterative refinement with two decoders may say, and how it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refuses

from workflow_src.config import Plan, load_experiment
from workflow_src.config.resolved import Loaded

TRAINING = {"max_steps": 2, "batch_tokens": 100}


def experiment(system: dict[str, Any], *decodes: dict[str, Any]) -> Loaded:
    systems = {"one": {"family": "inat", "preset": "miniature", "training": TRAINING} | system}
    refined = [{"system": "one", "search": "iterative-refinement", **decode} for decode in decodes]
    return load_experiment("smoke", systems=systems, decodes=refined)


@pytest.mark.parametrize(
    ("decode", "setting", "fields"),
    [
        ({"passes": 0}, "passes", {"value": 0}),
        ({}, "passes", {"hint": "add it"}),
        ({"passes": 2, "stop": "never"}, "stop", {"allowed": ("adaptive", "fixed")}),
        ({"passes": 2, "patience": 2}, "patience", {"value": 2, "problem": "stop is fixed"}),
        ({"passes": 2, "stop": "adaptive", "patience": 0}, "patience", {"value": 0}),
        (
            {"passes": 3, "stop": "adaptive", "patience": 3},
            "patience",
            {"value": 3, "problem": "of 3 passes at most 2 repeat the one before"},
        ),
        ({"passes": 2, "lengths": 0}, "lengths", {"value": 0}),
        ({"passes": 2, "lengths": 2, "length_quantile": 0.5}, "length_quantile", {"mentions": ("lengths is 2",)}),
        (
            {"passes": 2, "stop": "adaptive", "engine": "onnxruntime"},
            "engine",
            {"mentions": ("iterative-refinement",)},
        ),
    ],
)
def test_a_decode_that_cannot_be_is_refused(decode, setting, fields):
    with refuses(setting=f"decodes[0].{setting}", **fields):
        experiment({}, decode)


def test_families_of_one_decoder_are_not_refined_so():
    with refuses(setting="decodes[0].search", nearest=None):
        experiment({"family": "nat"}, {"passes": 2})


@pytest.mark.parametrize(
    ("objective", "setting", "fields"),
    [
        ({"corruptions": ["shuffle"]}, ".objective.corruptions[0]", {"allowed": ("repeat", "replace", "swap")}),
        ({"corruptions": ["swap", "swap"]}, ".objective.corruptions", {"value": ["swap", "swap"]}),
        ({"corruptions": []}, ".objective.corruptions", {"value": []}),
        ({"dae_mix": 1.5}, ".objective.dae_mix", {"value": 1.5}),
        ({"dae_mix": -0.1}, ".objective.dae_mix", {"value": -0.1}),
        ({"corruption_share": 0}, ".objective.corruption_share", {"value": 0}),
        ({"passes": 1}, ".objective.passes", {"value": 1}),
        ({"guess": "best"}, ".objective.guess", {"allowed": ("argmax", "sample")}),
        ({"dae_mix": 0, "corruption_share": 0.1}, "", {"mentions": ("corruption_share", "objective.dae_mix", "0")}),
        ({"dae_mix": 1, "guess": "sample"}, "", {"mentions": ("objective.guess", "objective.dae_mix", "1")}),
    ],
)
def test_an_objective_that_cannot_be_is_refused(objective, setting, fields):
    with refuses(setting=f"systems.one{setting}", **fields):
        experiment({"objective": objective}, {"passes": 2})


def test_decodes_have_names_of_their_own():
    loaded = experiment(
        {"init_from": "teacher", "data": "distilled-by-teacher"},
        {"passes": [1, 2, 4, 8]},
        {"passes": 8, "stop": "adaptive"},
        {"passes": 8, "stop": "adaptive", "patience": 2},
        {"passes": 4, "lengths": 3, "rescorer": "teacher"},
        {"passes": 4, "engine": ["onnxruntime", "onnxruntime-int8"]},
    )
    assert [decode.name for decode in loaded.decodes] == [
        *(f"iterative-refinement-{passes}" for passes in (1, 2, 4, 8)),
        "iterative-refinement-8-adaptive",
        "iterative-refinement-8-adaptive-patience2",
        "iterative-refinement-4-lengths3-by-teacher",
        *(f"iterative-refinement-4-onnxruntime-{kind}" for kind in ("float32", "int8")),
    ]
    plan = Plan(loaded)
    assert plan.settings_report() and plan.settings_analysis()
