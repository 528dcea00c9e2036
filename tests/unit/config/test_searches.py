"""Latent search, adaptive stopping and settings chosen on dev, as the configuration sees them."""

from __future__ import annotations

import json

import pytest
from refusals import refuses

from workflow_src import registry
from workflow_src.config.load import load_experiment
from workflow_src.config.plan import Plan, shown_plan
from workflow_src.errors import ConfigError
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.choosing import typed_value


def decodes(*rows: dict) -> list:
    return list(load_experiment("demo", decodes=list(rows)).decodes)


REFINED = [
    {"system": "teacher", "search": "greedy"},
    {"system": "lvm", "search": "prior-mean"},
    {"system": "score", "search": "score", "steps": 1},
]
LATENT = {"system": "score", "search": "latent-search", "steps": 1}


def test_latent_search_refines_with_the_systems_own_network():
    for system, refinement in (("lvm", "delta"), ("score", "score"), ("energy", "energy")):
        (decode,) = decodes(LATENT | {"system": system, "rescorer": "teacher", "lengths": 3})
        assert decode.settings["refinement"] == refinement
        assert decode.settings["rescorer"] == "teacher"
        assert decode.name == "latent-search-3x5-1"


def test_names_distinguish_rows():
    rows = decodes(
        LATENT,
        LATENT | {"rescorer": "teacher"},
        LATENT | {"mean_first": True},
        LATENT | {"lengths": 2, "samples": 1},
        {"system": "score", "search": "score", "steps": 4, "stop_threshold": 0.1},
        {"system": "score", "search": "score", "steps": 4, "tune": {"step_size": [0.5, 1]}},
        {"system": "score", "search": "score", "steps": 4, "lengthening": 0.06},
        {"system": "lvm", "search": "prior-mean", "lengthening": 0.11, "length_quantile": 0.6},
        LATENT | {"lengthening": 0.1, "rescorer": "teacher"},
        LATENT | {"lengthening": 0.0, "rescorer": "teacher", "name": "no-longer"},
    )
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    first = "latent-search-5x5-1-own latent-search-5x5-1 latent-search-5x5-mean-1-own latent-search-2x1-1-own"
    then = "score-4-stop0.1 score-4-tuned score-4-longer0.06 prior-mean-quantile0.6-longer0.11"
    assert names == [*first.split(), *then.split(), "latent-search-5x5-1-longer0.1", "no-longer"]
    assert [row.settings.get("lengthening") for row in rows[-4:]] == [0.06, 0.11, 0.1, 0.0]


def test_names_distinguish_refinements_that_another_experiment_of_the_recipe_may_have():
    names = {
        decode.name
        for refinement in (None, "score", "delta")
        for decode in decodes(LATENT | ({"refinement": refinement} if refinement else {}))
    }
    assert len(names) == 3


SCORE = {"system": "score", "search": "score", "steps": 1}
DELTA = {"system": "lvm", "search": "delta", "steps": 1}
PRIOR = {"system": "lvm", "search": "prior-mean"}
BEAM = {"system": "teacher", "search": "beam", "beam": 4}
WITH_LENGTHS = ("iterative-refinement", "latent-search", "mask-predict", "prior-mean")


@pytest.mark.parametrize(
    ("row", "setting", "fields"),
    [
        ({"system": "score", "search": "latent-search"}, "steps", {"hint": "add it"}),
        (LATENT | {"rescorer": "lvm"}, "rescorer", {"allowed": ("ctc", "teacher")}),
        (LATENT | {"rescorer": "teachr"}, "rescorer", {"nearest": "teacher"}),
        (
            LATENT | {"lengths": 1, "samples": 1, "rescorer": "teacher"},
            "rescorer",
            {"problem": "with these settings search latent-search has one candidate"},
        ),
        (LATENT | {"lengths": 0}, "lengths", {"value": 0}),
        (LATENT | {"stop_threshold": 0.1}, "stop_threshold", {"mentions": ("latent-search",)}),
        (LATENT | {"tune": {"lengths": [1.5]}}, "tune.lengths", {"value": 1.5}),
        (SCORE | {"samples": 3}, "samples", {"mentions": ("latent-search",)}),
        (SCORE | {"rescorer": "teacher"}, "rescorer", {"mentions": ("ctc-beam", *WITH_LENGTHS[:3])}),
        (SCORE | {"stop_threshold": 0}, "stop_threshold", {"value": 0}),
        (SCORE | {"tune": {"step_size": []}}, "tune.step_size", {}),
        (SCORE | {"tune": {"step_size": [-1]}}, "tune.step_size", {"value": -1}),
        (SCORE | {"tune": {"stepsize": [1]}}, "tune.stepsize", {"nearest": "step_size"}),
        # Its steps go to a mean: they have no size.
        (DELTA | {"step_size": 0.5}, "step_size", {"mentions": ("latent-search",)}),
        (DELTA | {"tune": {"step_size": [0.5]}}, "tune.step_size", {"mentions": ("latent-search",)}),
        (PRIOR | {"lengthening": -0.1}, "lengthening", {"value": -0.1}),
        (PRIOR | {"tune": {"lengthening": [0, -0.1]}}, "tune.lengthening", {"value": -0.1}),
        (BEAM | {"lengthening": 0.1}, "lengthening", {"mentions": WITH_LENGTHS}),
        (BEAM | {"tune": {"lengthening": [0.1]}}, "tune.lengthening", {"mentions": WITH_LENGTHS}),
        # It weighs a language model, and there is none.
        (BEAM | {"lm_weight": 0.3}, "lm_weight", {"allowed": ("0.2",)}),
        (BEAM | {"tune": {"lm_weight": [0.2, 0.3]}}, "tune.lm_weight", {"allowed": ("0.2",)}),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(row, setting, fields):
    with refuses(setting=f"decodes[0].{setting}", **fields):
        decodes(row)


def test_a_weight_without_a_language_model_is_refused_in_one_pass_too():
    beam = {"system": "ctc", "search": "ctc-beam", "beam": 5}
    for wrong in ({"lm_weight": [0.2, 0.4]}, {"tune": {"lm_weight": [0.1]}}):
        with pytest.raises(ConfigError, match=r"lm_weight is .*: without language_model"):
            load_experiment("tatoeba", decodes=[beam | wrong])
    # A bonus for each word needs no language model; what was written whole says defaults.
    right = [beam | {"word_bonus": 1.0, "lm_weight": 0.2}, beam | {"language_model": "lm", "lm_weight": 0.4}]
    assert len(load_experiment("tatoeba", decodes=right).decodes) == 2


def test_a_beam_takes_a_rescorer_and_its_weight():
    rows = [
        BEAM | {"rescorer": "ctc-raw"},
        BEAM | {"rescorer": "ctc-raw", "rescorer_weight": 0.5},
        BEAM | {"rescorer": "ctc-raw", "tune": {"rescorer_weight": [0.25, 0.5, 1.0]}},
        {"system": "lvm", "search": "latent-search", "steps": 0, "rescorer": "ctc"},
        {"system": "ctc", "search": "ctc-beam", "beam": 5, "rescorer": "ctc-raw"},
    ]
    plan = Plan(load_experiment("tatoeba", decodes=[*rows, BEAM | {"beam": 2}]))
    loaded_decodes = plan.loaded.decodes
    assert [decode.name for decode in loaded_decodes[:3]] == [
        "beam-4-by-ctc-raw",
        "beam-4-by-ctc-raw-mix0.5",
        "beam-4-by-ctc-raw-tuned",
    ]
    assert (
        registry.search_of(loaded_decodes[0].values).row_label(loaded_decodes[0].values) == "beam 4, ranked by ctc-raw"
    )
    mixed = loaded_decodes[1].values
    assert registry.search_of(mixed).row_label(mixed) == "beam 4, ranked by itself and 0.5 × ctc-raw"
    assert loaded_decodes[2].others == {"rescorer": "ctc-raw"}
    # Examples are of a teacher by itself, which needs no other bundle.
    assert json.loads(plan.settings_analysis())["teacher"]["beam"] == 2
    for wrong in ({"rescorer_weight": 0.5}, {"tune": {"rescorer_weight": [0.5]}}):
        with pytest.raises(ConfigError, match=r"rescorer_weight is .*: without rescorer"):
            load_experiment("tatoeba", decodes=[BEAM | wrong])
    with pytest.raises(ConfigError, match="it takes no rescorer"):
        load_experiment("tatoeba", decodes=[BEAM | {"rescorer": "ctc", "engine": "ctranslate2"}])


def test_a_rescorer_is_no_setting_of_the_samples_and_the_other_way_round():
    """Params of a decode hold exactly what changes its translations."""
    plan = Plan(load_experiment("demo", decodes=[LATENT | {"rescorer": "teacher"}]))
    (decode,) = plan.loaded.decodes
    expected = {"search": "latent-search", "steps": 1, "step_size": 1.0, "lengths": 5, "samples": 5}
    expected |= {"mean_first": False, "search_seed": 1, "rescorer": "teacher", "refinement": "score"}
    expected |= {"lengthening": 0.0, "engine": "eager", "compute_type": None}
    assert json.loads(plan.settings_decode(decode)) == expected


def test_other_engines_take_a_quantile_of_the_lengths_that_dev_chooses():
    row = {"system": "score", "search": "score", "steps": 1, "tune": {"length_quantile": [0.5, 0.7]}}
    pytorch, onnx = decodes(row, row | {"engine": "onnxruntime-int8"})
    assert (pytorch.name, onnx.name) == ("score-1-tuned", "score-1-tuned-onnxruntime-int8")
    assert onnx.tune == pytorch.tune
    assert onnx.settings == pytorch.settings | {"engine": "onnxruntime", "compute_type": "int8"}


def test_other_engines_take_a_lengthening():
    row = {"system": "score", "search": "score", "steps": 1, "lengthening": 0.11}
    (decode,) = decodes(row | {"engine": "onnxruntime"})
    assert decode.name == "score-1-longer0.11-onnxruntime-float32" and decode.settings["lengthening"] == 0.11


def test_refined_rows_are_compared_with_the_prior_mean_of_lengths_made_alike():
    rows = [{"system": "teacher", "search": "beam", "beam": 4}]
    for changes in ({}, {"lengthening": 0.1}, {"tune": {"lengthening": [0, 0.1]}}):
        rows += [
            {"system": "lvm", "search": "prior-mean"} | changes,
            {"system": "score", "search": "score", "steps": 1} | changes,
        ]
    plan = Plan(load_experiment("demo", decodes=rows))
    baselines = {row["name"]: row["baseline"] for row in json.loads(plan.settings_significance("test"))["rows"]}
    assert baselines["score-1"] == ["lvm", "prior-mean"]
    assert baselines["score-1-longer0.1"] == ["lvm", "prior-mean-longer0.1"]
    assert baselines["score-1-tuned"] == ["lvm", "prior-mean-tuned"]


def test_examples_follow_the_largest_number_of_steps_of_any_decode():
    stepped = [{"system": system, "search": system, "steps": [2, 4, 1]} for system in ("score", "energy")]
    plan = Plan(load_experiment("demo", decodes=[*REFINED[:2], *stepped]))
    entries = json.loads(plan.settings_analysis())["searches"]
    assert [(entry["system"], entry["search"], entry["steps"]) for entry in entries] == [
        ("score", "score", 4),
        ("energy", "energy", 4),
    ]


def test_speed_is_measured_with_what_dev_chose_for_the_first_seed():
    tuned = {"system": "score", "search": "score", "steps": 4, "tune": {"step_size": [0.5, 1]}}
    plan = Plan(load_experiment("demo", seeds=[3, 1], decodes=[*REFINED, tuned]))
    ((row, file),) = plan.chosen_for_speed.items()
    assert row == "score/score-4-tuned" and file.startswith("results/toy-demo/chosen/score/seed-3/score-4-tuned")


@pytest.mark.parametrize(
    ("decode", "other", "shared"),
    [
        ({"tune": ["step_size"]}, {"tune": ["step_size"], "batch": 7}, True),
        ({"tune": ["step_size"]}, {"tune": {"step_size": [0.5, 2.0]}}, False),
        ({"tune": ["step_size"]}, {"tune": ["step_size", "lengthening"]}, False),
        ({"tune": ["step_size"]}, {"tune": ["step_size"], "tune_by": "chrf"}, False),
        ({"step_size": 0.5}, {"step_size": 0.5}, True),
        (
            {"system": "teacher", "search": "beam", "beam": 2},
            {"system": "teacher", "search": "beam", "beam": 2, "max_length_ratio": 3.0},
            False,
        ),
        ({"search": "latent-search"}, {"search": "latent-search", "search_seed": 2}, False),
    ],
)
def test_experiments_of_a_recipe_share_files_of_decodes_that_are_the_same(decode, other, shared):
    row = {"system": "score", "search": "score", "splits": ["dev"]}
    row |= {"steps": 4} if "system" not in decode else {}
    files = set()
    for changes in (decode, other):
        plan = Plan(load_experiment("demo", decodes=[*REFINED, row | changes]))
        files.add(plan.translation(plan.loaded.decodes[-1], 1, "dev"))
    assert (len(files) == 1) == shared


CT2 = {"engine": "ctranslate2-int8"}


@pytest.mark.parametrize(
    ("rows", "reference"),
    [
        ([BEAM | {"beam": size} for size in (2, 4, 8)], "beam-4"),
        ([BEAM | {"beam": size} for size in (2, 5)], "beam-5"),
        # Settings chosen on dev, another engine, and a system beside it are another row.
        ([BEAM | {"beam": 4, "tune": {"length_penalty": [0.5, 1.0]}}, BEAM | {"beam": 4}], "beam-4"),
        ([BEAM | {"beam": 4} | CT2, BEAM | {"beam": 2}], "beam-2"),
        ([BEAM | {"beam": 4, "rescorer": "teacher"}, BEAM | {"beam": 2}], "beam-2"),
        # On dev alone it stands in no table of test.
        ([BEAM | {"beam": 4, "splits": ["dev"]}, BEAM | {"beam": 2}], "beam-2"),
        ([BEAM | {"beam": 2} | CT2], "beam-2-ctranslate2-int8"),
        ([{"system": "teacher", "search": "greedy"}], None),
    ],
)
def test_quality_speed_and_the_report_refer_to_one_row(rows, reference):
    plan = Plan(load_experiment("demo", decodes=[*rows, {"system": "lvm", "search": "prior-mean"}]))
    expected = reference and ["teacher", reference]
    report = Manifest.of(shown_plan(json.loads(plan.settings_report())), lambda _path: {"length_penalty": 1.0})
    assert json.loads(plan.settings_speed())["reference"] == expected
    assert (report.reference and list(report.reference.key)) == expected
    compared = {row["name"]: row["baseline"] for row in json.loads(plan.settings_significance("test"))["rows"]}
    assert compared["prior-mean"] == expected and (reference is None or compared[reference] is None)


def test_a_budget_that_ends_before_it_falls_is_refused():
    with pytest.raises(ConfigError) as caught:
        load_experiment("demo", systems={"lvm": {"objective": {"budget_hold": 0.5}}})
    assert caught.value.setting == "systems.lvm.objective.budget_until"
    assert (caught.value.value, caught.value.allowed) == (0.4, "0.5 (budget_hold) or more")


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"seeds": [-1]}, {"setting": "seeds[0]", "value": -1}),
        ({"seeds": [2**70]}, {"setting": "seeds[0]", "value": 1180591620717411303424}),
        ({"recipe": {"limits": {"train": 0}}}, {"setting": "recipe.limits.train", "value": 0}),
        ({"decodes": [LATENT | {"search_seed": 2**40}]}, {"setting": "decodes[0].search_seed", "value": 1099511627776}),
    ],
)
def test_numbers_that_nothing_could_use_are_refused(changes, fields):
    with refuses(**fields):
        load_experiment("demo", **changes)


def test_refined_rows_are_compared_with_their_prior_mean_and_others_with_the_teacher():
    plan = Plan(load_experiment("tatoeba"))
    listed = json.loads(plan.settings_significance("test"))["rows"]
    rows = {(row["system"], row["name"]): row["baseline"] for row in listed}
    assert rows["teacher", "beam-4"] is None
    assert rows["teacher", "greedy"] == ["teacher", "beam-4"]
    assert rows["lvm", "prior-mean"] == ["teacher", "beam-4"]
    assert rows["lvm", "delta-1-tuned"] == rows["score", "score-4-tuned"] == ["lvm", "prior-mean-tuned"]
    assert rows["score", "score-1-tuned-onnxruntime-int8"] == ["lvm", "prior-mean-tuned"]
    assert rows["lvm", "prior-mean-tuned"] == ["teacher", "beam-4"]
    assert rows["lvm", "delta-1"] == rows["score", "score-4"] == ["lvm", "prior-mean"]
    assert rows["score", "latent-search-5x5-1"] == ["teacher", "beam-4"]


def test_networks_are_compared_with_delta_where_nothing_but_the_network_differs():
    def compared(**settings):
        rows = json.loads(Plan(load_experiment("tatoeba", **settings)).settings_significance("test"))["rows"]
        return {(row["system"], row["name"]): row["controls"].get("delta") for row in rows}

    rows = compared()
    assert rows["score", "score-4"] == rows["energy", "energy-4"] == ["lvm", "delta-4"]
    # The engine and its precision, lengths and stopping are the same.
    assert rows["score", "score-1-onnxruntime-int8"] == ["lvm", "delta-1-onnxruntime-int8"]
    assert rows["score", "score-2-tuned"] == ["lvm", "delta-2-tuned"]
    assert rows["score", "score-adaptive"] == ["lvm", "delta-adaptive"]
    assert rows["energy", "latent-search-5x5-1"] == ["lvm", "latent-search-5x5-1"]
    # A step size of its own; an engine that delta was not decoded with; no network.
    assert rows["score", "score-step-size"] is None
    assert rows["score", "score-1-tuned-onnxruntime-int8"] is None
    assert {rows[key] is None for key in rows if key[0] in ("lvm", "teacher", "student")} == {True}
    # Delta on dev alone is not on test.
    decodes = [
        {"system": "lvm", "search": "delta", "steps": 1, "splits": ["dev"]},
        {"system": "score", "search": "score", "steps": 1},
    ]
    assert compared(decodes=decodes) == {("score", "score-1"): None}


def test_examples_show_other_systems_beside_refined_ones():
    plan = Plan(load_experiment("demo"))
    (beside,) = json.loads(plan.settings_analysis())["beside"]
    assert (beside["system"], beside["search"]) == ("ctc", "ctc-greedy")
    # Models that refinement works in, their refiners and autoregressive systems have their places already.
    plan = Plan(load_experiment("demo", systems={"ctc": None, "lm": None}, decodes=REFINED))
    assert "beside" not in json.loads(plan.settings_analysis())


LENGTH_SEARCHES = [
    (family, search, name)
    for family in registry.families().values()
    for search in map(registry.searches().get, registry.searches_of(family))
    for name in ("lengths", "length_beam")
    if "max_length_difference" in family.model.model_fields and name in search.settings.model_fields
]


@pytest.mark.parametrize("family, search, name", LENGTH_SEARCHES, ids=lambda value: getattr(value, "name", value))
def test_more_lengths_than_the_head_has_classes_are_refused(family, search, name):
    model = family.model.model_construct(max_length_difference=2, max_positions=64, loss="ce", latent="none")
    settings = {count: search.settings.model_construct(**{name: count}) for count in (5, 6)}
    assert (family.refuses(model, search, settings[5]) or "").find("lengths") == -1
    reason = family.refuses(model, search, settings[6])
    if family.name == "nat" and search.name == "latent-search":
        assert "needs model.latent: vae" in reason
    else:
        assert "takes at most 5 lengths" in reason and f"and {name} is 6; say 5 or fewer" in reason


def test_every_usual_value_that_dev_chooses_from_is_one_that_its_setting_allows():
    for search in registry.searches().values():
        for name in search.settings.named("tune"):
            usual = search.settings.option(name).tune
            typed = [typed_value(search.settings, name, value) for value in usual]
            assert len(usual) > 1 and typed == list(usual) == sorted(set(usual))


CTC_BEAM = {"system": "ctc", "search": "ctc-beam", "beam": 5, "language_model": "lm"}


def test_settings_named_alone_are_chosen_from_their_usual_values():
    named, listed = decodes(
        CTC_BEAM | {"tune": ["word_bonus", "lm_weight"]},
        CTC_BEAM | {"name": "listed", "tune": {"word_bonus": [0.5], "lm_weight": [0.1, 0.3]}},
    )
    option = registry.searches()["ctc-beam"].settings.option
    assert list(named.tune) == ["word_bonus", "lm_weight"]
    assert all(named.tune[name] == list(option(name).tune) for name in named.tune)
    assert len(named.combinations) == len(option("word_bonus").tune) * len(option("lm_weight").tune)
    assert (named.name, named.settings) == ("ctc-beam-5-with-lm-tuned", listed.settings)
    assert [(s.word_bonus, s.lm_weight) for s in listed.combinations] == [(0.5, 0.1), (0.5, 0.3)]


def test_lists_give_a_row_for_each_combination_of_their_values():
    rows = decodes(
        {
            "system": ["teacher"],
            "search": "beam",
            "beam": [2, 4],
            "engine": ["eager", "ctranslate2", "ctranslate2-int8"],
        },
        {"system": ["score", "energy"], "search": "latent-search", "steps": 1, "rescorer": [None, "teacher"]},
        {"system": "ctc", "search": "ctc-greedy", "name": "mine", "engine": ["eager", "onnxruntime-int8"]},
    )
    assert [f"{row.system}/{row.name}" for row in rows] == [
        *(
            f"teacher/beam-{beam}{engine}"
            for beam in (2, 4)
            for engine in ("", "-ctranslate2-float32", "-ctranslate2-int8")
        ),
        *(f"{system}/latent-search-5x5-1{end}" for system in ("score", "energy") for end in ("-own", "")),
        "ctc/mine",
        "ctc/mine-onnxruntime-int8",
    ]
    assert [(row.engine, row.compute_type) for row in rows[:3]] == [
        ("eager", None),
        ("ctranslate2", "float32"),
        ("ctranslate2", "int8"),
    ]


def test_fields_of_all_decodes_are_set_once_and_a_decodes_own_win():
    rows = [
        {"system": "teacher", "search": "greedy"},
        {"system": "teacher", "search": "beam", "beam": 2, "splits": ["test"], "shards": 1},
        CTC_BEAM | {"tune": ["word_bonus"], "batch": 7},
    ]
    defaults = {"splits": ["dev", "test"], "shards": 3, "tune_by": "chrf", "engine": ["eager"]}
    plain, own, tuned = load_experiment("demo", decodes=rows, decode_defaults=defaults).decodes
    assert (plain.splits, plain.shards, plain.tune_by, plain.batch) == (("dev", "test"), 3, None, 64)
    assert (own.splits, own.shards) == (("test",), 1)
    assert (tuned.splits, tuned.shards, tuned.tune_by, tuned.batch) == (("dev", "test"), 3, "chrf", 7)


def test_an_experiment_inherits_the_fields_of_all_decodes(load_over):
    parent = {"extends": "demo", "decode_defaults": {"shards": 3, "batch": 5}}
    rows = [{"system": "teacher", "search": "greedy"}]
    (decode,) = load_over(parent, decodes=rows, decode_defaults={"batch": 6}).decodes
    assert (decode.shards, decode.batch) == (3, 6)


def test_systems_that_an_experiment_leaves_out_go_from_lists(load_over):
    rows = [
        {"system": ["lvm", "teacher"], "search": "greedy"},
        {"system": "score", "search": "latent-search", "steps": 1, "rescorer": [None, "teacher"]},
        {"system": "ctc", "search": "ctc-beam", "beam": 2, "rescorer": "lvm"},
        {"system": ["lvm"], "search": "prior-mean"},
    ]
    left = load_over({"extends": "demo", "decodes": rows}, only=["teacher"])
    assert [(decode.system, decode.name) for decode in left.decodes] == [("teacher", "greedy")]


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        (CTC_BEAM | {"tune": ["word_bonnus"]}, {"setting": "decodes[0].tune.word_bonnus", "nearest": "word_bonus"}),
        (CTC_BEAM | {"tune": ["word_bonus", "word_bonus"]}, {"setting": "decodes[0].tune"}),
        (CTC_BEAM | {"tune": "word_bonus"}, {"setting": "decodes[0].tune"}),
        (CTC_BEAM | {"word_bonus": 1, "tune": ["word_bonus"]}, {"setting": "decodes[0].word_bonus", "value": 1}),
        (CTC_BEAM | {"language_model": None, "tune": ["lm_weight"]}, {"setting": "decodes[0].tune.lm_weight"}),
        (CTC_BEAM | {"system": ["ctc", "ctcc"]}, {"setting": "decodes[0].system", "value": "ctcc", "nearest": "ctc"}),
        (CTC_BEAM | {"system": []}, {"setting": "decodes[0].system"}),
        (
            CTC_BEAM | {"engine": ["eager", "onnxruntime-int9"]},
            {"value": "onnxruntime-int9", "nearest": "onnxruntime-int8"},
        ),
        (CTC_BEAM | {"engine": ["onnxruntime", "onnxruntime-float32"]}, {"setting": "decodes"}),
    ],
)
def test_wrong_lists_are_refused_in_one_sentence(row, fields):
    with refuses(**fields):
        decodes(row)


def test_fields_of_one_decode_are_no_fields_of_all():
    for name, value in {"beam": 4, "name": "mine", "system": "teacher"}.items():
        with refuses(setting=f"decode_defaults.{name}"):
            load_experiment("demo", decode_defaults={name: value})
