"""What a configuration may say of inference networks, and the error where it may not."""

from __future__ import annotations

from typing import Any

import pytest
from configurations import changes_at
from refusals import refuses

from workflow_src.config import Plan, load_experiment
from workflow_src.config.files import merge

TRAINING = {"max_steps": 2, "batch_tokens": 100}
OPERATORS = ("SX", "STL", "SG", "ST", "GX")


def plain(family: str, **more: Any) -> dict[str, Any]:
    return {"family": family, "preset": "miniature", "training": TRAINING} | more


SYSTEMS = {
    "cmlm": plain("cmlm"),
    "tagger": plain("tagger"),
    "engine": plain("inference-network", init_from="cmlm", roles={"energy": "teacher"}),
    "tagged": plain("inference-tagger", init_from="tagger", roles={"energy": "teacher"}),
}
ENGINE = {"system": "engine", "search": "argmax"}


def loaded(decode: dict[str, Any] = ENGINE, **changes: Any):
    return load_experiment("smoke", systems=merge(SYSTEMS, changes), decodes=[decode])


@pytest.mark.parametrize(
    "decode",
    [
        ENGINE,
        {"system": "engine", "search": "mask-predict", "iterations": [1, 4], "length_beam": 3},
        {"system": "tagged", "search": "argmax", "lengths": 3, "rescorer": "teacher"},
        {"system": "engine", "search": "argmax", "engine": "onnxruntime-int8"},
    ],
)
def test_they_are_decoded_as_the_networks_that_they_start_from(decode):
    plan = Plan(loaded(decode))
    assert plan.settings_report() and plan.initial_weights("engine", 1) == plan.weights("cmlm", 1)
    # The energy is a part of training, and of nothing after it.
    assert plan.system("engine").filled == {"energy": "teacher"} and plan.system("engine").served_with == {}


@pytest.mark.parametrize(
    ("place", "value", "setting", "fields"),
    [
        ("engine.objective.input_operator", "SOFT", "objective.input_operator", {"nearest": "ST"}),
        ("engine.objective.length_weight", 0, "objective.length_weight", {"value": 0}),
        ("engine.roles", None, "roles.energy", {"problem": "missing"}),
        ("engine.roles.energy", "cmlm", "roles.energy", {}),
        ("teacher.model.max_positions", 64, "model.max_positions", {"allowed": ("64",)}),
        ("engine.init_from", None, "init_from", {"problem": "missing"}),
        ("engine.init_from", "teacher", "init_from", {"mentions": ("inference-network",)}),
        ("engine.init_from", "tagger", "init_from", {"mentions": ("inference-network",)}),
        ("engine.model.layers", 2, "model.layers", {"allowed": ("1",)}),
    ],
)
def test_a_system_that_cannot_be_is_refused(place, value, setting, fields):
    with refuses(setting=f"systems.engine.{setting}", **fields):
        loaded(**changes_at(place, value))


@pytest.mark.parametrize(
    ("search", "setting", "fields"),
    [("mask-predict", "search", {"allowed": ("argmax",)}), ("argmax", "iterations", {"mentions": ("mask-predict",)})],
)
def test_a_tagger_takes_no_iterations(search, setting, fields):
    with refuses(setting=f"decodes[0].{setting}", **fields):
        loaded({"system": "tagged", "search": search, "iterations": 4})


def test_a_start_may_have_other_dropout_and_be_an_inference_network():
    system = plain("inference-network", init_from="engine", roles={"energy": "teacher"})
    assert loaded(engine={"model": {"dropout": 0.3}}, again=system).systems["again"].init_from == "engine"


def test_the_grid_has_a_system_for_each_pair_of_operators_and_all_learn_alike():
    experiment = load_experiment("engine-grid")
    networks = [s for name, s in experiment.systems.items() if s.roles and name != "tagger-energy"]
    assert len({s.training.model_dump_json() for s in networks}) == 1 and networks[0].training.keep == "best"
    scored = (("grid-tagger", "grid-seq2seq"), ("grid-cmlm", "teacher"))
    for grid, (start, scorer) in zip(Plan(experiment).grids, scored, strict=True):
        assert grid.rows == grid.columns == OPERATORS
        for row, cells in zip(grid.rows, grid.cells, strict=True):
            for column, cell in zip(grid.columns, cells, strict=True):
                system = experiment.systems[cell.system]
                operators = (system.objective.input_operator, system.objective.output_operator)
                assert (operators, cell.scorers, system.init_from) == ((row, column), (scorer,), start)
                assert cell.system.endswith(f"-{row}-{column}".lower()) and system.roles == {"energy": scorer}
        assert sum(figure.count("(") for row in grid.published for figure in row) == 25
    tagger, distilled = (experiment.systems[f"grid-tagger{end}"] for end in ("", "-distilled"))
    assert distilled.model_copy(update={"name": tagger.name, "data": "raw"}) == tagger


def test_taggers_learn_from_references_outputs_and_energy_for_as_many_tokens():
    systems = load_experiment("engine-grid").systems
    trainings = [systems[f"tagger-{kind}"].training for kind in ("references", "distilled", "energy")]
    references, distilled, energy = (training.max_steps * training.batch_tokens for training in trainings)
    assert references == distilled == pytest.approx(energy, rel=0.01)
