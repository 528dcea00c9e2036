"""Lists in place of settings of systems, as an experiment has them."""

from __future__ import annotations

import pytest
from refusals import refuses

from workflow_src.config.load import load_experiment
from workflow_src.config.plan import Plan
from workflow_src.config.plan.grids import grids

LVM = {
    "family": "lvm",
    "preset": "miniature",
    "data": "distilled-by-teacher",
    "init_from": "teacher",
    "training": {"preset": "smoke", "max_steps": 30, "validate_every": 15, "save_every": 15},
}
DECODES = [{"system": "teacher", "search": "greedy"}, {"system": "many", "search": "prior-mean"}]


def experiment(decodes=DECODES, systems=None, **lists):
    return load_experiment("smoke", systems={"many": LVM | lists, **(systems or {})}, decodes=decodes)


def added(loaded):
    return {name: system for name, system in loaded.systems.items() if name.startswith("many")}


def test_a_list_gives_a_system_for_each_combination_of_its_values():
    loaded = experiment(
        model={"dropout": [0.0, 0.05], "end_symbol": [True, False]}, objective={"label_smoothing": [0.1]}
    )
    assert [
        (name, system.model.dropout, system.model.end_symbol, system.objective.label_smoothing)
        for name, system in added(loaded).items()
    ] == [
        ("many-dropout0-end-symboltrue-label-smoothing0_1", 0.0, True, 0.1),
        ("many-dropout0-end-symbolfalse-label-smoothing0_1", 0.0, False, 0.1),
        ("many-dropout0_05-end-symboltrue-label-smoothing0_1", 0.05, True, 0.1),
        ("many-dropout0_05-end-symbolfalse-label-smoothing0_1", 0.05, False, 0.1),
    ]
    alone = experiment(model={"dropout": 0.05, "end_symbol": False}, objective={"label_smoothing": 0.1})
    last = list(added(loaded).values())[-1]
    assert last.model_copy(update={"name": "many"}) == added(alone)["many"]


def test_presets_and_words_are_parts_of_names_by_themselves():
    loaded = experiment(
        preset=["miniature", "tiny"],
        init_from=None,
        training=LVM["training"] | {"preset": ["smoke", "toy"], "max_steps": 30},
    )
    assert list(added(loaded)) == [
        f"many-{model}-{training}" for model in ("miniature", "tiny") for training in ("smoke", "toy")
    ]
    assert [system.training.batch_tokens for system in added(loaded).values()] == [1000, 2000] * 2


def test_a_setting_that_is_a_list_by_itself_is_swept_by_a_list_of_lists():
    one = experiment(training=LVM["training"] | {"betas": [0.9, 0.98]})
    assert added(one)["many"].training.betas == (0.9, 0.98)
    two = experiment(training=LVM["training"] | {"betas": [[0.9, 0.98], [0.8, 0.9]]})
    assert [system.training.betas for system in added(two).values()] == [(0.9, 0.98), (0.8, 0.9)]


def test_decodes_and_grids_of_a_swept_system_are_those_of_each():
    family = {"family": "tagger", "preset": "miniature", "training": LVM["training"]}
    swept = {
        "family": "inference-tagger",
        "preset": "miniature",
        "init_from": "tagger",
        "roles": {"energy": "seq2seq"},
        "objective": {"input_operator": ["SX", "GX"], "output_operator": ["ST", "SG"]},
        "training": LVM["training"] | {"keep": "best"},
    }
    systems = {"tagger": family, "seq2seq": family | {"family": "seq2seq"}, "grid": swept}
    grid = {"title": "Operators", "family": "inference-tagger", "systems": ["grid"]}
    grid |= {"rows": "objective.input_operator", "columns": "objective.output_operator"}
    loaded = load_experiment(
        "smoke",
        systems=systems,
        decodes=[
            {"system": ["tagger", "grid"], "search": "argmax"},
            {"system": "grid-sx-st", "search": "argmax", "lengths": 2},
        ],
        report={"grids": [grid]},
    )
    names = ["grid-sx-st", "grid-sx-sg", "grid-gx-st", "grid-gx-sg"]
    assert [decode.system for decode in loaded.decodes] == ["tagger", *names, "grid-sx-st"]
    (table,) = grids(loaded)
    assert [cell.system for row in table.cells for cell in row] == names
    assert {job for job in Plan(loaded).trained} >= {(name, 1) for name in names}


def test_one_of_the_systems_may_have_settings_of_its_own():
    systems = {"many-dropout0_1": {"objective": {"label_smoothing": 0.3}, "training": {"max_steps": 7}}}
    first, second = added(experiment(model={"dropout": [0.1, 0.2]}, systems=systems)).values()
    assert (first.objective.label_smoothing, first.training.max_steps) == (0.3, 7)
    assert first.training.batch_tokens == second.training.batch_tokens == 1000
    assert second.objective.label_smoothing != 0.3 and second.training.max_steps == 30


def test_null_removes_one_of_the_systems():
    loaded = experiment(model={"dropout": [0.1, 0.2, 0.3]}, systems={"many-dropout0_2": None})
    assert list(added(loaded)) == ["many-dropout0_1", "many-dropout0_3"]
    assert [decode.system for decode in loaded.decodes] == ["teacher", *added(loaded)]


@pytest.fixture
def load_over_list(load_over):
    """Loads settings laid over an experiment with a list: `load_over_list(only=["many"])`."""
    systems = {"many": LVM | {"model": {"dropout": [0.1, 0.2]}}}
    return lambda **content: load_over({"extends": "smoke", "systems": systems, "decodes": DECODES}, **content)


def test_an_experiment_changes_all_systems_of_a_list_and_the_list(load_over_list):
    changed = load_over_list(systems={"many": {"model": {"dropout": [0.3]}, "training": {"max_steps": 5}}})
    (system,) = added(changed).values()
    assert (system.name, system.model.dropout, system.training.max_steps) == ("many-dropout0_3", 0.3, 5)


@pytest.mark.parametrize("only", [None, ["many"]])
def test_null_removes_one_of_the_systems_of_an_extended_list(only, load_over_list):
    loaded = load_over_list(only=only, systems={"many-dropout0_1": None})
    assert list(added(loaded)) == ["many-dropout0_2"]
    assert [decode.system for decode in loaded.decodes] == ["teacher", "many-dropout0_2"]


@pytest.mark.parametrize(
    ("only", "names"), [(["many"], ["many-dropout0_1", "many-dropout0_2"]), (["many-dropout0_2"], ["many-dropout0_2"])]
)
def test_only_names_all_systems_of_a_list_or_one(only, names, load_over_list):
    loaded = load_over_list(only=only)
    assert list(loaded.systems) == ["teacher", *names]
    assert [decode.system for decode in loaded.decodes] == ["teacher", *names]


def test_a_system_starts_from_one_of_a_list_which_stays_with_it(load_over_list):
    systems = {"later": LVM | {"init_from": "many-dropout0_2"}}
    decodes = [{"system": "later", "search": "prior-mean"}]
    loaded = load_over_list(only=[], systems=systems, decodes=decodes)
    assert set(loaded.systems) == {"teacher", "many-dropout0_2", "later"}


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ({"model": {"dropout": []}}, {"setting": "systems.many.model.dropout", "value": []}),
        ({"preset": []}, {"setting": "systems.many.preset", "value": []}),
        ({"model": {"dropout": [0.1, 0.1]}}, {"setting": "systems.many", "mentions": ("many-dropout0_1",)}),
        ({"model": {"droput": [0.1, 0.2]}}, {"setting": "systems.many.model.droput", "nearest": "dropout"}),
        ({"model": {"dropout": [0.1, 2]}}, {"setting": "systems.many-dropout2.model.dropout", "value": 2}),
        ({"preset": ["miniature", "tinny"]}, {"setting": "systems.many-tinny.preset", "nearest": "tiny"}),
        (
            {"model": {"dropout": [0.1, 0.2]}, "systems": {"many-dropout0_1": LVM}},
            {"setting": "systems.many-dropout0_1", "mentions": ("systems.many",)},
        ),
        (
            {"model": {"dropout": [0.1]}, "systems": {"many-dropout1": {"model": {"dropout": 0.1}}}},
            {"setting": "systems.many-dropout1", "nearest": "many-dropout0_1"},
        ),
        (
            {"model": {"dropout": [0.1, 0.2]}, "systems": {"other": LVM | {"init_from": "many"}}},
            {
                "setting": "systems.other.init_from",
                "value": "many",
                "allowed": ("many-dropout0_1", "many-dropout0_2"),
                "mentions": ("systems.many stand for several systems",),
            },
        ),
        (
            {
                "model": {"dropout": [0.1, 0.2]},
                "systems": {"refiner": {"family": "score", "preset": "miniature", "base": "many", "training": {}}},
            },
            {"setting": "systems.refiner.base", "allowed": ("many-dropout0_1", "many-dropout0_2")},
        ),
        (
            {
                "model": {"dropout": [0.1, 0.2]},
                "systems": {"other": {"family": "inference-tagger", "roles": {"energy": "many"}}},
            },
            {"setting": "systems.other.roles.energy", "allowed": ("many-dropout0_1", "many-dropout0_2")},
        ),
        (
            {"model": {"dropout": [0.1, 0.2]}, "systems": {"other": LVM | {"data": {"distilled-by-many": 1.0}}}},
            {
                "setting": "systems.other.data",
                "value": "distilled-by-many",
                "allowed": ("distilled-by-many-dropout0_1", "distilled-by-many-dropout0_2"),
            },
        ),
    ],
)
def test_what_cannot_be_swept_is_refused_in_one_sentence(content, fields):
    with refuses(**fields):
        experiment(**content)
