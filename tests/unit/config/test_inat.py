"""What a configuration of iterative refinement with two decoders may say, and how it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refuses

from workflow_src.config import load
from workflow_src.config.files import CONFIG_FOLDER, merge, read_yaml
from workflow_src.config.load import load_experiment
from workflow_src.config.plan import Plan

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")
TRAINING = {"max_steps": 2, "batch_tokens": 100}


def experiment(system: dict[str, Any], *decodes: dict[str, Any]) -> dict[str, Any]:
    systems = {"one": {"family": "inat", "preset": "miniature", "training": TRAINING} | system}
    refined = [{"system": "one", "search": "iterative-refinement", **decode} for decode in decodes]
    return merge(SMOKE, {"systems": systems, "decodes": refined})


@pytest.mark.parametrize(
    ("system", "decode", "fields"),
    [
        ({}, {"passes": 0}, {"setting": "decodes[0].passes", "value": 0}),
        ({}, {}, {"setting": "decodes[0].passes", "hint": "add it"}),
        ({}, {"passes": 2, "stop": "never"}, {"setting": "decodes[0].stop", "allowed": ("adaptive", "fixed")}),
        ({}, {"passes": 2, "patience": 2}, {"setting": "decodes[0].patience", "value": 2, "problem": "stop is fixed"}),
        ({}, {"passes": 2, "stop": "adaptive", "patience": 0}, {"setting": "decodes[0].patience", "value": 0}),
        (
            {},
            {"passes": 3, "stop": "adaptive", "patience": 3},
            {"setting": "decodes[0].patience", "value": 3, "problem": "of 3 passes at most 2 repeat the one before"},
        ),
        ({}, {"passes": 2, "lengths": 0}, {"setting": "decodes[0].lengths", "value": 0}),
        (
            {},
            {"passes": 2, "lengths": 2, "length_quantile": 0.5},
            {"setting": "decodes[0].length_quantile", "value": 0.5, "mentions": ("lengths is 2",)},
        ),
        (
            {},
            {"passes": 2, "stop": "adaptive", "engine": "onnxruntime"},
            {"setting": "decodes[0].engine", "mentions": ("iterative-refinement",)},
        ),
        ({"family": "nat"}, {"passes": 2}, {"setting": "decodes[0].search", "nearest": None}),
        (
            {"objective": {"corruptions": ["shuffle"]}},
            {"passes": 2},
            {"setting": "systems.one.objective.corruptions[0]", "allowed": ("repeat", "replace", "swap")},
        ),
        (
            {"objective": {"corruptions": ["swap", "swap"]}},
            {"passes": 2},
            {"setting": "systems.one.objective.corruptions", "value": ["swap", "swap"]},
        ),
        (
            {"objective": {"corruptions": []}},
            {"passes": 2},
            {"setting": "systems.one.objective.corruptions", "value": []},
        ),
        ({"objective": {"dae_mix": 1.5}}, {"passes": 2}, {"setting": "systems.one.objective.dae_mix", "value": 1.5}),
        ({"objective": {"dae_mix": -0.1}}, {"passes": 2}, {"setting": "systems.one.objective.dae_mix", "value": -0.1}),
        (
            {"objective": {"corruption_share": 0}},
            {"passes": 2},
            {"setting": "systems.one.objective.corruption_share", "value": 0},
        ),
        ({"objective": {"passes": 1}}, {"passes": 2}, {"setting": "systems.one.objective.passes", "value": 1}),
        (
            {"objective": {"guess": "best"}},
            {"passes": 2},
            {"setting": "systems.one.objective.guess", "allowed": ("argmax", "sample")},
        ),
        (
            {"objective": {"dae_mix": 0, "corruption_share": 0.1}},
            {"passes": 2},
            {"setting": "systems.one", "mentions": ("objective.corruption_share", "objective.dae_mix", "0")},
        ),
        (
            {"objective": {"dae_mix": 1, "guess": "sample"}},
            {"passes": 2},
            {"setting": "systems.one", "mentions": ("objective.guess", "objective.dae_mix", "1")},
        ),
    ],
)
def test_what_is_refused_says_why_in_one_sentence(system, decode, fields):
    with refuses(**fields):
        load(experiment(system, decode))


def test_decodes_have_names_of_their_own():
    loaded = load(
        experiment(
            {"init_from": "teacher", "data": "distilled-by-teacher"},
            {"passes": [1, 2, 4, 8]},
            {"passes": 8, "stop": "adaptive"},
            {"passes": 8, "stop": "adaptive", "patience": 2},
            {"passes": 4, "lengths": 3, "rescorer": "teacher"},
            {"passes": 4, "engine": ["onnxruntime", "onnxruntime-int8"]},
        )
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


def test_every_expected_figure_has_its_row():
    loaded = load_experiment("wmt16")
    rows = {f"{decode.system}/{decode.name}" for decode in loaded.decodes}
    inat_figures = {row: figure for row, figure in loaded.config.report.expected.items() if row.startswith("inat")}
    assert set(inat_figures) <= rows and sorted(inat_figures.values()) == [25.73, 30.19]
    assert loaded.config.report.expected_convention == "intl-lowercase"
