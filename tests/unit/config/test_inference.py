"""What a configuration may say of inference networks, and the error where it may not."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refuses

from workflow_src.config import Plan, load, load_experiment
from workflow_src.config.files import CONFIG_FOLDER, merge, read_yaml

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")
TRAINING = {"max_steps": 2, "batch_tokens": 100}
OPERATORS = ("sx", "stl", "sg", "st", "gx")


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
    return load(merge(SMOKE, {"systems": merge(SYSTEMS, changes), "decodes": [decode]}))


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
    ("decode", "changes", "fields"),
    [
        (
            ENGINE,
            {"engine": {"objective": {"input_operator": "SOFT"}}},
            {"setting": "systems.engine.objective.input_operator", "nearest": "ST"},
        ),
        (
            ENGINE,
            {"engine": {"objective": {"length_weight": 0}}},
            {"setting": "systems.engine.objective.length_weight", "value": 0},
        ),
        (ENGINE, {"engine": {"roles": None}}, {"setting": "systems.engine.roles.energy", "problem": "missing"}),
        (ENGINE, {"engine": {"roles": {"energy": "cmlm"}}}, {"setting": "systems.engine.roles.energy"}),
        (
            ENGINE,
            {"teacher": {"model": {"max_positions": 64}}},
            {"setting": "systems.engine.model.max_positions", "allowed": ("64",)},
        ),
        (ENGINE, {"engine": {"init_from": None}}, {"setting": "systems.engine.init_from", "problem": "missing"}),
        (
            ENGINE,
            {"engine": {"init_from": "teacher"}},
            {"setting": "systems.engine.init_from", "mentions": ("inference-network",)},
        ),
        (
            ENGINE,
            {"engine": {"init_from": "tagger"}},
            {"setting": "systems.engine.init_from", "mentions": ("inference-network",)},
        ),
        (ENGINE, {"engine": {"model": {"layers": 2}}}, {"setting": "systems.engine.model.layers", "allowed": ("1",)}),
        (
            {"system": "tagged", "search": "mask-predict", "iterations": 4},
            {},
            {"setting": "decodes[0].search", "allowed": ("argmax",)},
        ),
        (
            {"system": "tagged", "search": "argmax", "iterations": 4},
            {},
            {"setting": "decodes[0].iterations", "mentions": ("mask-predict",)},
        ),
    ],
)
def test_what_cannot_be_is_reported_in_a_sentence(decode, changes, fields):
    with refuses(**fields):
        loaded(decode, **changes)


def test_a_start_may_have_other_dropout_and_be_an_inference_network():
    system = plain("inference-network", init_from="engine", roles={"energy": "teacher"})
    assert loaded(engine={"model": {"dropout": 0.3}}, again=system).systems["again"].init_from == "engine"


def test_the_grid_has_both_tables_of_operators():
    experiment = load_experiment("engine-grid")
    for name, family, start, energy in (
        ("tagger", "inference-tagger", "grid-tagger", "grid-seq2seq"),
        ("cmlm", "inference-network", "grid-cmlm", "teacher"),
    ):
        grid = {n: s for n, s in experiment.systems.items() if s.family.name == family and n != "tagger-energy"}
        assert list(grid) == [f"{name}-{first}-{second}" for first in OPERATORS for second in OPERATORS]
        for system, s in grid.items():
            chosen = f"{name}-{s.objective.input_operator}-{s.objective.output_operator}".lower()
            assert (system, s.init_from, s.roles) == (chosen, start, {"energy": energy})
        assert {(decode.search, decode.splits) for decode in experiment.decodes if decode.system in grid} == {
            ("argmax", ("test_2016_flickr",))
        }
    networks = [s for name, s in experiment.systems.items() if s.roles and name != "tagger-energy"]
    assert len({s.training.model_dump_json() for s in networks}) == 1 and networks[0].training.keep == "best"
    report, energies = experiment.config.report, experiment.analyses["energies"]
    assert report.expected == {} and energies.reference_lengths and set(energies.scorer) == {"grid-seq2seq", "teacher"}
    best_scores = (("grid-seq2seq", "55 (20.2)"), ("teacher", "80 (31.7)"))
    for grid, (scorer, best) in zip(Plan(experiment).grids, best_scores, strict=True):
        assert grid.rows == grid.columns == tuple(operator.upper() for operator in OPERATORS)
        for row, cells in zip(grid.rows, grid.cells, strict=True):
            for column, cell in zip(grid.columns, cells, strict=True):
                objective = experiment.systems[cell.system].objective
                assert (objective.input_operator, objective.output_operator, cell.scorers) == (row, column, (scorer,))
        assert grid.published[0][0] == best and sum(figure.count("(") for row in grid.published for figure in row) == 25
    tagger, distilled = (experiment.systems[f"grid-tagger{end}"] for end in ("", "-distilled"))
    assert distilled.model_copy(update={"name": tagger.name, "data": "raw"}) == tagger
    assert distilled.teachers == ["grid-seq2seq"] and tagger.data == "raw"


def test_taggers_learn_from_references_outputs_and_energy_for_as_many_tokens():
    systems = load_experiment("engine-grid").systems
    references, distilled, energy = (systems[f"tagger-{kind}"] for kind in ("references", "distilled", "energy"))
    assert [s.init_from for s in (references, distilled, energy)] == [
        "grid-tagger",
        "grid-tagger-distilled",
        "grid-tagger",
    ]
    assert (references.teachers, distilled.teachers) == ([], ["grid-seq2seq"])
    assert energy.roles == {"energy": "grid-seq2seq"}
    tokens = [s.training.max_steps * s.training.batch_tokens for s in (references, distilled, energy)]
    assert tokens[0] == tokens[1] == pytest.approx(tokens[2], rel=0.01)


def test_the_teacher_of_the_grid_is_that_of_the_captions():
    grid, captions = (Plan(load_experiment(name)) for name in ("engine-grid", "multi30k"))
    assert grid.settings_training("teacher") == captions.settings_training("teacher")
    assert grid.settings_distillation("teacher") == captions.settings_distillation("teacher")


@pytest.mark.parametrize("name", ["iwslt14-engine", "wmt16-engine"])
def test_the_papers_settings(name):
    experiment = load_experiment(name)
    for system, energy, start in (("engine", "teacher", "cmlm"), ("tagger-engine", "seq2seq", "tagger-raw")):
        s = experiment.systems[system]
        assert (s.roles, s.init_from) == ({"energy": energy}, start)
        assert (s.objective.input_operator, s.objective.output_operator) == ("SX", "ST")
        assert (s.training.batch_tokens, s.training.weight_decay, s.training.keep) == (1024, 0.01, "best")
        assert s.model.dropout == 0.1 and s.training.learning_rate in (5e-4, 1e-4, 5e-5, 1e-5, 5e-6, 1e-6)
    # Table 5, whose rows are at the references' lengths.
    tagged = experiment.config.report.expected_reference_lengths
    assert [key.partition("/")[0] for key in tagged] == ["tagger-raw", "tagger", "tagger-engine"]
    assert not set(tagged) & set(experiment.config.report.expected)
    assert experiment.analyses["energies"].scorer == ("seq2seq", "teacher")
    beams = {d.system: d.values.length_beam for d in experiment.decodes if d.search == "mask-predict"}
    assert beams == {"cmlm": 5, "engine": 3}
