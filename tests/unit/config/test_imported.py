"""A system that was made elsewhere: it may teach, rank and be decoded by its engine, and nothing is trained."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from counted_jobs import jobs
from refusals import refuses

from workflow_src.config import load, texts
from workflow_src.config.files import CONFIG_FOLDER, merge, read_yaml
from workflow_src.config.plan import Plan, shown_plan
from workflow_src.config.resources import Requests
from workflow_src.evaluation.manifest import Manifest

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")
OUTSIDE = {"family": "ctranslate2", "model": {"folder": "/models/opus-mt-de-en", "target_subwords": "en.spm"}}
STUDENT = {
    "family": "nat",
    "preset": "miniature",
    "data": "distilled-by-outside",
    "training": {"max_steps": 2, "batch_tokens": 100},
}
DECODES = [
    {"system": "outside", "search": "beam", "beam": 4, "engine": ["ctranslate2", "ctranslate2-int8"]},
    {"system": "outside", "search": "beam", "beam": 2, "tune": {"length_penalty": [0.5, 1.0]}},
    {"system": "student", "search": "ctc-beam", "beam": 2, "rescorer": "outside"},
]


def experiment(outside=OUTSIDE, student=STUDENT, decodes=DECODES, **more):
    sections = {"systems": {"outside": outside, "student": student}, "decodes": decodes, **more}
    return merge({**SMOKE, "systems": {}, "distillation": {}}, sections)


@pytest.fixture(scope="module")
def plan():
    return Plan(load(experiment()))


def test_its_engine_computes_its_decodes(plan):
    decodes = [decode for decode in plan.loaded.decodes if decode.system == "outside"]
    assert [decode.name for decode in decodes] == [
        "beam-4-ctranslate2-float32",
        "beam-4-ctranslate2-int8",
        "beam-2-tuned-ctranslate2-float32",
    ]
    # It has one folder, its bundle, which the engine reads.
    bundle = "results/smoke/systems/outside/seed-1/bundle/bundle.json"
    assert (
        {plan.exported_file(decode.system, 1, plan.export_of(decode)) for decode in decodes}
        == {bundle}
        == {plan.teacher_file("outside")}
    )
    assert plan.exported_to("ctranslate2") == []
    assert [entry for entry in plan.finished if entry[0] == "outside"] == [("outside", 1, None)]
    (row,) = json.loads(plan.settings_finish("outside", 1, None))["rows"]
    assert row["decode"]["name"] == decodes[-1].name


def test_it_is_not_trained(plan):
    assert plan.trained == [("student", 1)] and plan.systems_of("train_nat") == ["student"]
    assert plan.texts == ["distilled-by-outside"] and plan.teachers == plan.imported == ["outside"]
    # Positions of its own subwords say nothing of the recipe's.
    assert plan.longest == plan.system("student").model.max_positions - 1
    assert plan.system("outside").preset == "opus-mt-de-en"


def test_its_files_are_inputs(plan):
    folder = "/models/opus-mt-de-en"
    assert plan.imported_files("outside") == {
        "model.bin": f"{folder}/model.bin",
        "config.json": f"{folder}/config.json",
        "shared_vocabulary.json": f"{folder}/shared_vocabulary.json",
        "source.spm": f"{folder}/source.spm",
        "target.spm": f"{folder}/en.spm",
    }
    assert set(plan.imported_files("outside").values()) <= {path for _, path in plan.own_inputs}


def test_vocabularies_are_those_that_are_there(tmp_path):
    for name in ("source_vocabulary.txt", "target_vocabulary.txt"):
        (tmp_path / name).touch()
    plan = Plan(load(experiment(merge(OUTSIDE, {"model": {"folder": str(tmp_path)}}))))
    names = set(plan.imported_files("outside"))
    assert {name for name in names if "vocabulary" in name} == {"source_vocabulary.txt", "target_vocabulary.txt"}


def test_a_bundle_for_every_seed_and_none_without_a_use():
    plan = Plan(load(experiment(seeds=[3, 5], distillation={"outside": {"seed": 5}})))
    assert plan.imports == [("outside", 3), ("outside", 5)]
    assert plan.teacher_file("outside").endswith("/outside/seed-5/bundle/bundle.json")
    teaching = experiment(decodes=[{"system": "student", "search": "ctc-greedy"}], seeds=[3, 5])
    assert Plan(load(teaching)).imports == [("outside", 3)]


def test_estimates_and_requests_know_it(plan):
    counts = jobs(plan)
    assert counts["import_model"] == 1 and counts["export_bundle"] == 1 and "export_ctranslate2" not in counts
    assert ("outside", 1) not in plan.trained and ("outside", "train") in plan.distilled
    needs = Requests(plan, gpu=False)
    wildcards = SimpleNamespace(system="outside", teacher="outside", search="beam-4-ctranslate2-int8", shard="0")
    for rule in ("import_model", "distill", "decode"):
        assert all(amount > 0 for amount in needs.need(rule, wildcards))


def test_the_report_shows_it_without_training(plan):
    manifest = Manifest.of(shown_plan(json.loads(plan.settings_report())), lambda _path: {"length_penalty": 0.5})
    system = manifest.plan.system("outside")
    assert (texts.kind_of(system.learnt_data), system.preset) == ("none", "opus-mt-de-en")
    assert [name for name, _ in manifest.training] == ["student"]


def test_rows_are_compared_with_it_where_our_own_code_computes_no_beam(plan):
    rows = {row["name"]: row["baseline"] for row in json.loads(plan.settings_significance("test"))["rows"]}
    reference = rows["ctc-beam-2-by-outside"]
    assert reference[0] == "outside"
    manifest = Manifest.of(shown_plan(json.loads(plan.settings_report())), lambda _path: {"length_penalty": 0.5})
    assert list(manifest.reference.key) == reference
    teacher = {"family": "transformer", "preset": "miniature", "training": STUDENT["training"]}
    decodes = [*DECODES, {"system": "own", "search": "beam", "beam": 2}]
    beside = experiment(decodes=decodes)
    beside["systems"]["own"] = teacher
    rows = json.loads(Plan(load(beside)).settings_significance("test"))["rows"]
    assert {tuple(row["baseline"]) for row in rows if row["system"] != "own"} == {("own", "beam-2")}


def test_analyses_of_networks_leave_it_out():
    loaded = load(experiment(analyses={"energies": {"enabled": "auto"}}))
    assert not any("outside" in analysis.systems for analysis in Plan(loaded).analyses.values())
    with refuses(mentions=("energies",)):
        Plan(load(experiment(analyses={"energies": {"enabled": True, "scorer": ["outside"]}})))


TRAINED = {"family": "transformer", "preset": "miniature", "training": STUDENT["training"]}


@pytest.mark.parametrize(
    ("sections", "fields"),
    [
        ({"outside": {**OUTSIDE, "preset": "tiny"}}, {"setting": "systems.outside.preset"}),
        ({"outside": {**OUTSIDE, "data": "raw"}}, {"setting": "systems.outside.data"}),
        ({"outside": {**OUTSIDE, "training": STUDENT["training"]}}, {"setting": "systems.outside.training"}),
        ({"outside": {**OUTSIDE, "initial_weights": "x.safetensors"}}, {"setting": "systems.outside.initial_weights"}),
        ({"outside": {"family": "ctranslate2"}}, {"setting": "systems.outside.model.folder", "problem": "missing"}),
        ({"student": {**STUDENT, "data": "likely-by-outside"}}, {"setting": "systems.student.data"}),
        ({"student": {**STUDENT, "init_from": "outside"}}, {"setting": "systems.student.init_from"}),
        ({"student": {**TRAINED, "init_from": "outside"}}, {"setting": "systems.student.init_from"}),
        (
            {"student": {**STUDENT, "family": "inference-network", "roles": {"energy": "outside"}}},
            {"setting": "systems.student.roles.energy"},
        ),
        ({"student": {k: v for k, v in STUDENT.items() if k != "preset"}}, {"setting": "systems.student.preset"}),
        (
            {"decodes": [{"system": "outside", "search": "greedy", "engine": "eager"}]},
            {"setting": "decodes[0].engine", "mentions": ("ctranslate2-int8",)},
        ),
        (
            {"decodes": [{"system": "outside", "search": "beam", "beam": 2, "rescorer": "outside"}]},
            {"setting": "decodes[0].engine", "mentions": ("takes no rescorer",)},
        ),
        (
            {"distillation": {"outside": {"engine": "eager"}}},
            {"setting": "distillation.outside.engine", "allowed": ("auto", "ctranslate2")},
        ),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_sentence(sections, fields):
    with refuses(**fields):
        load(experiment(**sections))


def test_it_ranks_no_ids_that_stand_for_placeholders():
    raw = experiment()
    raw["recipe"] = {**raw["recipe"], "placeholders": ["urls"]}
    with refuses(value="outside", setting="rescorer of decode student/ctc-beam-2-by-outside"):
        load(raw)
