"""Which analyses an experiment has, what each needs, and what is trained for them."""

import json
from re import escape

import pytest
from refusals import refuses

from workflow_src.config import Plan, load, load_experiment
from workflow_src.config.plan import shown_plan
from workflow_src.errors import ConfigError
from workflow_src.evaluation.manifest import Manifest


def planned(**changes) -> Plan:
    return Plan(load_experiment("demo", **changes))


def settings(plan: Plan, name: str) -> dict:
    return json.loads(plan.analyses[name].settings)


# In `demo` there is no score network to draw.
TWO = {
    "lvm-2d": {"family": "lvm", "preset": "tiny", "model": {"latent_dim": 2}, "training": {"max_steps": 5}},
    "score-2d": {
        "family": "score",
        "preset": "tiny",
        "base": "lvm-2d",
        "model": {"latent_dim": 2},
        "training": {"max_steps": 5},
    },
}


def test_analyses_follow_the_searches_that_are_decoded():
    plan = planned()
    assert {name for name, analysis in plan.analyses.items() if analysis.enabled} == {
        "marginal",
        "tokens",
        "lengths",
        "samples",
    }
    searches = [(entry["system"], entry["search"], entry["model"]) for entry in settings(plan, "marginal")["searches"]]
    assert searches == [("lvm", "delta", "lvm"), ("score", "score", "lvm"), ("energy", "energy", "lvm")]
    assert settings(plan, "tokens")["searches"] == settings(plan, "marginal")["searches"]
    assert [entry["search"] for entry in settings(plan, "samples")["searches"]] == ["score"]
    lengths = [entry["search"] for entry in settings(plan, "lengths")["searches"]]
    assert lengths == ["prior-mean", "delta", "score", "energy"]
    assert plan.analyses["marginal"].systems == ("lvm", "score", "energy")
    assert plan.analyses["samples"].systems == ("score",)
    assert (plan.analyses["marginal"].split, plan.analyses["lengths"].split) == ("dev", "test")
    assert plan.analyses["latent_space"].path == "results/demo/analysis/latent-space.json"


def test_searches_with_lengths_of_their_own_are_not_analysed():
    """Analyses search by their own: what they showed of such a row would not be its output."""
    longer = [
        {"system": "lvm", "search": "delta", "steps": 1, "lengthening": 0.1},
        {"system": "score", "search": "score", "steps": 1},
    ]
    searches = settings(planned(decodes=longer), "marginal")["searches"]
    assert [entry["search"] for entry in searches] == ["score"]


def test_what_changes_no_result_is_no_setting():
    plan = planned(analyses={"marginal": {"chunk": 7}})
    assert plan.analyses == planned().analyses
    assert planned(analyses={"marginal": {"seed": 7}}).analyses["marginal"] != plan.analyses["marginal"]


def test_convergence_is_measured_where_asked_for_of_latents_of_any_positions():
    assert "convergence" not in planned().analyses
    one = {"family": "lanmt", "preset": "tiny", "training": {"max_steps": 5}}
    refiner = {"family": "score", "preset": "tiny", "base": "one", "training": {"max_steps": 5}}
    decodes = [
        {"system": "one", "search": "delta", "steps": [1, 3]},
        {"system": "one", "search": "delta", "steps": 3, "stop_unchanged": True},
        {"system": "refined", "search": "score", "steps": 1},
        {"system": "lvm", "search": "delta", "steps": 2},
    ]
    on = {"convergence": {"enabled": True, "steps": 7}}
    plan = planned(systems={"one": one, "refined": refiner}, decodes=decodes, analyses=on)
    analysis = plan.analyses["convergence"]
    assert analysis.enabled and (analysis.rule, analysis.split) == ("measure_convergence", "dev")
    analysis_settings = settings(plan, "convergence")
    followed = [(entry["system"], entry["search"], entry["model"]) for entry in analysis_settings.pop("searches")]
    assert followed == [("one", "delta", "one"), ("refined", "score", "one"), ("lvm", "delta", "lvm")]
    assert analysis_settings == {
        "sentences": 200,
        "samples": 20,
        "steps": 7,
        "seed": 1,
        "remove_repetitions": "subwords",
        "bleu_tokeniser": "13a",
    }
    # The others follow latents of target positions alone.
    assert [entry["system"] for entry in settings(plan, "marginal")["searches"]] == ["lvm"]


def test_latents_are_followed_where_asked_for_whatever_their_positions():
    assert "latent_paths" not in planned().analyses
    plain = {"family": "nat", "preset": "tiny", "training": {"max_steps": 5}}
    refiner = {"family": "score", "preset": "tiny", "base": "one-pass", "training": {"max_steps": 5}}
    systems = {
        "one-pass": plain | {"model": {"latent": "vae"}},
        "without": plain,
        "refined": refiner,
        "one": {"family": "lanmt", "preset": "tiny", "training": {"max_steps": 5}},
    }
    decodes = [
        {"system": "one-pass", "search": "delta", "steps": [1, 3]},
        {"system": "one-pass", "search": "prior-mean"},
        {"system": "without", "search": "ctc-greedy"},
        {"system": "refined", "search": "score", "steps": 1},
        {"system": "one", "search": "delta", "steps": 2},
        {"system": "lvm", "search": "delta", "steps": 2},
        {"system": "energy", "search": "energy", "steps": 2},
    ]
    on = {"latent_paths": {"enabled": True, "steps": [1, 3]}}
    analysis = planned(systems=systems, decodes=decodes, analyses=on).analyses["latent_paths"]
    assert analysis.enabled and (analysis.rule, analysis.split) == ("follow_latents", "dev")
    analysis_settings = json.loads(analysis.settings)
    assert [(entry["system"], entry["search"], entry["model"]) for entry in analysis_settings.pop("searches")] == [
        ("one-pass", "delta", "one-pass"),
        ("refined", "score", "one-pass"),
        ("one", "delta", "one"),
        ("lvm", "delta", "lvm"),
        ("energy", "energy", "lvm"),
    ]
    assert analysis_settings == {"sentences": 100, "steps": [1, 3]}
    with pytest.raises(ConfigError, match=escape("analyses.latent_paths.steps")) as refused:
        planned(analyses={"latent_paths": {"enabled": True, "steps": [1, -1]}})
    assert "\n" not in str(refused.value)


def test_lengths_are_measured_as_the_main_table_is():
    plan = planned(report={"remove_repetitions": "words"})
    assert settings(plan, "lengths") == settings(planned(), "lengths") | {"remove_repetitions": "words"}
    other_analyses = {name: analysis for name, analysis in plan.analyses.items() if name != "lengths"}
    assert other_analyses.items() <= planned().analyses.items()


def test_each_can_be_switched_off_and_none_is_made_of_nothing():
    for name in ("marginal", "tokens", "lengths", "samples"):
        plan = planned(analyses={name: {"enabled": False}})
        assert {n for n, analysis in plan.analyses.items() if not analysis.enabled} == {name, "latent_space"}
    alone = planned(decodes=[{"system": "teacher", "search": "greedy"}])
    assert not any(analysis.enabled for analysis in alone.analyses.values())
    prior = planned(decodes=[{"system": "lvm", "search": "prior-mean"}])
    assert [name for name, analysis in prior.analyses.items() if analysis.enabled] == ["lengths"]


def test_a_refiner_brings_its_model_where_the_model_itself_is_not_decoded():
    plan = planned(decodes=[{"system": "score", "search": "score", "steps": 1}])
    assert plan.analyses["lengths"].systems == ("score",)
    assert settings(plan, "lengths")["searches"][0] == {"system": "score", "search": "prior-mean", "model": "lvm"}


def test_a_two_dimensional_score_network_is_drawn_and_trained_once():
    plan = planned(systems=TWO, seeds=[3, 4])
    assert plan.analyses["latent_space"].enabled and plan.analyses["latent_space"].systems == ("score-2d",)
    seeds = {name: [seed for other, seed in plan.trained if other == name] for name in plan.loaded.systems}
    once = {"lvm-2d": [3], "score-2d": [3]}
    assert seeds == {name: [3, 4] for name in ("teacher", "lvm", "score", "energy", "ctc", "lm")} | once
    assert shown_plan(json.loads(plan.settings_report())).trained == plan.trained


def test_the_toy_experiment_has_a_latent_space_to_draw():
    plan = Plan(load_experiment("toy"))
    assert [name for name, analysis in plan.analyses.items() if not analysis.enabled] == []
    assert settings(plan, "marginal")["samples"] == 500


def test_components_are_counted_where_asked_for_of_every_system_with_latents():
    assert "components" not in planned().analyses
    plain = {"family": "nat", "preset": "tiny", "training": {"max_steps": 5}}
    systems = {"one-pass": plain, "one-pass-vae": plain | {"model": {"latent": "vae"}}, **TWO}
    plan = planned(systems=systems, analyses={"components": {"enabled": True, "share": 0.9}})
    analysis = plan.analyses["components"]
    assert analysis.enabled and (analysis.rule, analysis.split) == ("measure_components", "test")
    # Neither refiners, nor what was switched to have no latents.
    assert analysis.systems == ("lvm", "one-pass-vae", "lvm-2d")
    searches = [{"system": name} for name in analysis.systems]
    assert json.loads(analysis.settings) == {"sentences": 1000, "share": 0.9, "searches": searches}
    without = planned(analyses={"components": {"enabled": True}}, decodes=[{"system": "teacher", "search": "greedy"}])
    assert without.analyses["components"].systems == ("lvm",)


GREEDY = {"system": "teacher", "search": "greedy"}
VAE = {"one-pass": {"family": "nat", "preset": "tiny", "training": {"max_steps": 5}, "model": {"latent": "vae"}}}


def test_word_order_is_compared_where_asked_for_of_latents_of_the_source():
    assert "reordering" not in planned().analyses
    analyses = {"reordering": {"enabled": True}}
    analysis = planned(systems=VAE, analyses=analyses).analyses["reordering"]
    # Not the latents of target positions, whose number a translation says.
    assert analysis.enabled and analysis.systems == ("one-pass",) and analysis.split == "test"
    assert json.loads(analysis.settings)["searches"] == [{"system": "one-pass", "aligned": True}]
    # Of latents of source positions too, but without slots.
    other = {"one": {"family": "lanmt", "preset": "tiny", "training": {"max_steps": 5}}}
    without = planned(systems=other, analyses=analyses).analyses["reordering"].settings
    assert json.loads(without)["searches"] == [{"system": "one", "aligned": False}]
    rows = json.loads(analysis.settings)["rows"]
    assert [(row["system"], row["name"]) for row in rows] == [("teacher", "greedy")]
    assert analysis.reads == (rows[0]["details"],) and analysis.reads[0].endswith("teacher/seed-1/greedy/test.jsonl")
    named = planned(systems=VAE, analyses={"reordering": {"enabled": True, "system": "lvm"}})
    assert json.loads(named.analyses["reordering"].settings)["rows"][0]["system"] == "lvm"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("reordering", "latents of source positions"),
        ("components", "it looks at latents"),
        ("convergence", "refinement of latents"),
    ],
)
def test_an_analysis_that_was_switched_on_and_has_nothing_to_look_at_is_refused(name, words):
    one_pass = {"family": "nat", "preset": "tiny", "training": {"max_steps": 5}}
    teacher = {"family": "transformer", "preset": "tiny", "training": {"max_steps": 5}}
    config = {
        "recipe": {"name": "a", "dataset": "tatoeba", "source": "de", "target": "en"},
        "experiment": "a",
        "systems": {"teacher": teacher, "one-pass": one_pass},
        "decodes": [{"system": "teacher", "search": "greedy"}, {"system": "one-pass", "search": "ctc-greedy"}],
    }
    assert Plan(load(config)).analyses
    with refuses(setting=f"analyses.{name}.enabled", mentions=(words,)):
        Plan(load(config | {"analyses": {name: {"enabled": True}}})).analyses  # noqa: B018


@pytest.mark.parametrize(
    ("system", "decode", "fields"),
    [
        ("nobody", GREEDY, {"nearest": None}),
        ("energy", GREEDY, {"problem": "no decode translates test by system energy"}),
        (None, {"system": "lvm", "search": "prior-mean"}, {}),
    ],
)
def test_translations_that_nobody_makes_are_reported_in_a_sentence(system, decode, fields):
    with refuses(setting="analyses.reordering.system", **fields):
        planned(systems=VAE, decodes=[decode], analyses={"reordering": {"enabled": True, "system": system}})


@pytest.mark.parametrize(
    ("named", "fields"),
    [
        ("nobody", {"nearest": None}),
        ("score", {"nearest": "score-2d"}),
        ("lvm-2d", {"allowed": ("score-2d",)}),
        ("teacher", {"allowed": ("score-2d",)}),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(named, fields):
    with refuses(setting="analyses.latent_space.system", **fields):
        planned(systems=TWO, analyses={"latent_space": {"system": named}})
    with pytest.raises(ConfigError, match="allowed: none"):
        planned(analyses={"latent_space": {"system": "score"}})


def test_energies_are_measured_of_every_row_where_asked_for():
    assert "energies" not in planned().analyses
    analysis = planned(seeds=[1, 2], analyses={"energies": {"enabled": True}}).analyses["energies"]
    plan = planned(seeds=[1, 2])
    assert analysis.enabled and analysis.systems == ("teacher",) and analysis.split == "test"
    analysis_settings = json.loads(analysis.settings)
    assert (
        analysis_settings["scorer"] == ["teacher"]
        and "batch" not in analysis_settings
        and analysis.limits == {"batch": 64}
    )
    assert [row["details"] for row in analysis_settings["rows"]] == [
        plan.translation_details(*row) for row in plan.rows if row[2] == "test"
    ]
    assert list(analysis.reads) == [row["details"] for row in analysis_settings["rows"]]
    removed = {row["system"]: row["repetitions_removed"] for row in analysis_settings["rows"]}
    # Alignments show what comes twice in a row.
    assert (removed["teacher"], removed["ctc"], removed["lvm"]) == ("none", "none", "subwords")
    # A system without rows of its own may score, and one-pass systems too.
    other = planned(analyses={"energies": {"enabled": True, "scorer": "ctc"}})
    assert other.analyses["energies"].systems == ("ctc",)


def test_energies_are_of_dev_where_nothing_else_is_decoded():
    decodes = [{"system": "teacher", "search": "greedy", "splits": ["dev"]}]
    analysis = planned(decodes=decodes, analyses={"energies": {"enabled": True}}).analyses["energies"]
    assert analysis.split == "dev" and analysis.reads[0].endswith("dev.jsonl")


def test_several_systems_score_in_the_order_of_their_names():
    several = {"enabled": True, "scorer": ["ctc", "teacher"]}
    analysis = planned(analyses={"energies": several}).analyses["energies"]
    assert analysis.systems == ("ctc", "teacher") and json.loads(analysis.settings)["scorer"] == ["ctc", "teacher"]
    # A list of one is the one.
    one, listed = (
        planned(analyses={"energies": {"enabled": True, "scorer": scorer}}).analyses["energies"]
        for scorer in ("ctc", ["ctc"])
    )
    assert one == listed and json.loads(one.settings).keys() == {"scorer", "rows"}


@pytest.mark.parametrize(
    ("named", "fields"),
    [
        ("nobody", {"nearest": None}),
        ("lvm", {"allowed": ("ctc", "teacher")}),
        (["teacher", "lvm"], {"allowed": ("ctc", "teacher")}),
        (["ctc", "teacher", "ctc"], {"value": ["ctc", "teacher", "ctc"]}),
        ([], {"value": []}),
    ],
)
def test_scorers_that_do_not_fit_are_refused_in_a_sentence(named, fields):
    with refuses(setting="analyses.energies.scorer", **fields):
        planned(analyses={"energies": {"enabled": True, "scorer": named}})


TAGGER = {"family": "tagger", "preset": "tiny", "training": {"max_steps": 5}}
AT_LENGTHS = {"energies": {"enabled": True, "reference_lengths": True}}


def test_searches_that_translate_at_given_lengths_are_measured_at_the_references():
    decodes = [
        {"system": "teacher", "search": "greedy"},
        {"system": "lvm", "search": "prior-mean"},
        {"system": "lvm", "search": "delta", "steps": [1, 2], "lengthening": 0.1},
        # Where steps end by themselves there is no procedure to follow.
        {"system": "lvm", "search": "delta", "steps": 4, "stop_unchanged": True},
        {"system": "score", "search": "score", "steps": 1, "step_size": 0.5},
        {"system": "tagger", "search": "argmax", "lengths": 3, "rescorer": "teacher"},
        # The same at given lengths as the one before.
        {"system": "tagger", "search": "argmax"},
        {"system": "tagger", "search": "argmax", "engine": "onnxruntime-float32"},
        {"system": "ctc", "search": "ctc-greedy"},
    ]
    plan = planned(systems={"tagger": TAGGER}, decodes=decodes, analyses=AT_LENGTHS)
    searches = settings(plan, "energies")["searches"]
    assert [(one["system"], one["name"]) for one in searches] == [
        ("lvm", "prior-mean"),
        ("lvm", "delta-1-longer0.1"),
        ("lvm", "delta-2-longer0.1"),
        ("score", "score-1-size0.5"),
        ("tagger", "argmax-3-by-teacher"),
    ]
    assert searches[-1]["settings"] == {"search": "argmax"} and searches[3]["settings"]["step_size"] == 0.5
    assert {one["repetitions_removed"] for one in searches} == {"subwords"}
    assert plan.analyses["energies"].systems == ("lvm", "score", "tagger", "teacher")
    other = planned(systems={"tagger": TAGGER}, decodes=decodes, analyses={"energies": {"enabled": True}})
    assert "searches" not in settings(other, "energies") and other.analyses["energies"].systems == ("teacher",)


def test_where_nothing_translates_at_given_lengths_the_plan_says_so():
    with pytest.raises(ConfigError, match=r"^analyses.energies.reference_lengths"):
        planned(decodes=[{"system": "teacher", "search": "greedy"}], analyses=AT_LENGTHS)


def test_published_figures_at_the_references_lengths_name_rows():
    decodes = [{"system": "tagger", "search": "argmax", "lengths": 3}, {"system": "teacher", "search": "greedy"}]
    for key, fits in (("tagger/argmax-3", True), ("teacher/greedy", False), ("argmax-3", False)):
        report = {"expected_reference_lengths": {key: 20.0}}
        plan = lambda report=report: planned(systems={"tagger": TAGGER}, decodes=decodes, report=report)  # noqa: E731
        if fits:
            assert shown_plan(json.loads(plan().settings_report())).config.report.expected_reference_lengths == {
                key: 20.0
            }
        else:
            with refuses(setting="report.expected_reference_lengths", value=key, allowed=("tagger/argmax-3",)):
                plan()


def test_what_refinement_starts_from_is_what_moves_latents_start_from():
    """Though iterative decoding comes first in the file, whose first pass is another search."""
    manifest = Manifest.of(Plan(load_experiment("smoke-families")), lambda _path: {"tolerance": 3.0, "top": 2})
    followed = [decode.search.name for decode in manifest.decodes if decode.search.traceable]
    assert followed.index("iterative-refinement") < followed.index("delta")
    assert manifest.start_title == "prior mean"
