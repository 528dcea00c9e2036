"""Training texts of systems: mixtures with weights, the systems that make texts, and errors of both."""

import json

import pytest
from counted_jobs import jobs
from refusals import refuses

from workflow_src.config import Plan, load, texts
from workflow_src.config.files import CONFIG_FOLDER, merge, read_yaml
from workflow_src.config.plan import shown_plan

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")
LOWERCASE = {"lowercase": True, "references": "normalised"}
MIXED = {"raw": 0.5, "distilled-by-teacher": 1}


def plan_with(changes):
    return Plan(load(merge(SMOKE, changes)))


def test_a_mixture_names_its_texts_in_their_order_and_their_teacher():
    plan = plan_with({"systems": {"ctc": {"data": MIXED}}})
    ctc = plan.system("ctc")
    assert list(ctc.texts.items()) == [("distilled-by-teacher", 1.0), ("raw", 0.5)]
    assert ctc.teachers == ["teacher"] and "teacher" in ctc.built_on
    assert json.loads(plan.settings_training("ctc"))["data"] == {"distilled-by-teacher": 1.0, "raw": 0.5}
    assert plan.texts == ["raw", "distilled-by-teacher"] and plan.teachers == ["teacher"]
    # What is trained on it is trained with every seed, and so is its teacher.
    assert ("teacher", 1) in plan.trained


def test_one_text_of_weight_1_is_that_text():
    plain, mixed = (plan_with({"systems": {"ctc": {"data": data}}}) for data in ("raw", {"raw": 1}))
    assert plain.settings_training("ctc") == mixed.settings_training("ctc")
    assert plan_with({"systems": {"ctc": {"data": {"raw": 2}}}}).system("ctc").data == {"raw": 2.0}


def test_an_augmented_text_is_another_one_of_the_same_files():
    plan = plan_with({"systems": {"ctc": {"data": MIXED, "training": {"augment": {"upper": 0.25, "typos": 0.5}}}}})
    texts_of_ctc = ["distilled-by-teacher+upper-0.25+typos-0.5", "raw+upper-0.25+typos-0.5"]
    assert list(plan.system("ctc").texts) == texts_of_ctc and plan.system("ctc").teachers == ["teacher"]
    # Each file is made once, and encoded once as it is and once augmented.
    assert plan.distilled == [("teacher", "train")]
    assert sorted(plan.texts) == sorted(["raw", "distilled-by-teacher", *texts_of_ctc])
    assert jobs(plan)["encode"] == 2 + 4
    for text in texts_of_ctc:
        assert plan.source_text(text) == plan.source_text(texts.base_of(text))
        assert plan.target_text(text) == plan.target_text(texts.base_of(text))
        assert texts.kind_and_system(text) == texts.kind_and_system(texts.base_of(text))
        assert texts.kind_of(text) == texts.kind_of(texts.base_of(text))
    augment = json.loads(plan.settings_encode(texts_of_ctc[0]))["augment"]
    assert augment == {"upper": 0.25, "title": 0, "typos": 0.5, "no_accents": 0, "seed": 1}
    # Trainings are handed nothing of it but the names of the texts, which descriptions of the system have.
    plain = plan_with({"systems": {"ctc": {"data": MIXED}}})
    training_settings, without = (json.loads(p.settings_training("ctc")) for p in (plan, plain))
    assert training_settings == without | {"data": {texts_of_ctc[0]: 1.0, texts_of_ctc[1]: 0.5}}
    shown = shown_plan(json.loads(plan.settings_report())).system("ctc")
    assert texts.words(shown.learnt_data) == f"{texts_of_ctc[0]} + 0.5 × {texts_of_ctc[1]}"
    assert plan.settings_encode("raw") == plain.settings_encode("raw") == '{"max_length": "auto"}'
    assert plan_with({"systems": {"ctc": {"training": {"augment": {"title": 1, "seed": 3}}}}}).system("ctc").texts == {
        "distilled-by-teacher+title-1+seed-3": 1
    }


@pytest.mark.parametrize(
    ("augment", "more", "setting", "fields"),
    [
        ({"upper": -0.1}, {}, ".upper", {"value": -0.1}),
        ({"upper": 0.6, "typos": 0.5}, {}, "", {"value": {"upper": 0.6, "typos": 0.5}}),
        ({"upper": 0}, {}, "", {"value": {"upper": 0}}),
        ({"uper": 0.1}, {}, ".uper", {"nearest": "upper"}),
        ({"title": 0.1}, {"recipe": {"normalisation": LOWERCASE}}, ".title", {"value": 0.1}),
    ],
)
def test_shares_that_cannot_be_are_refused(augment, more, setting, fields):
    with refuses(setting=f"systems.ctc.training.augment{setting}", **fields):
        plan_with({"systems": {"ctc": {"training": {"augment": augment}}}} | more)


@pytest.mark.parametrize("text", ["raw", "distilled-by-teacher"])
def test_the_name_of_an_augmented_text_is_no_data(text):
    allowed = (
        (text,) if text != "raw" else (*(f"{way}-by-SYSTEM" for way in ("distilled", "likely", "monolingual")), text)
    )
    with refuses(setting="systems.ctc.data", value=f"{text}+upper-0.1", allowed=allowed):
        plan_with({"systems": {"ctc": {"data": f"{text}+upper-0.1"}}})


def test_a_refiner_learns_from_the_mixture_of_its_base():
    plan = plan_with({"systems": {"lvm": {"data": MIXED}}})
    assert plan.system("score").texts == plan.system("lvm").texts == MIXED


@pytest.mark.parametrize(
    ("own", "texts_of_score"),
    [
        ({}, ["distilled-by-teacher+upper-0.1"]),
        # A text of its own has augmentation of its own.
        ({"data": "distilled-by-teacher"}, ["distilled-by-teacher"]),
        ({"data": "raw", "training": {"augment": {"title": 0.2}}}, ["raw+title-0.2"]),
        ({"training": {"augment": {"title": 0.2}}}, ["distilled-by-teacher+title-0.2"]),
    ],
)
def test_a_refiner_learns_from_the_text_of_its_base_as_that_is_augmented(own, texts_of_score):
    lvm = {"data": "distilled-by-teacher", "training": {"augment": {"upper": 0.1}}}
    plan = plan_with({"systems": {"lvm": lvm, "score": own}})
    assert list(plan.system("lvm").texts) == ["distilled-by-teacher+upper-0.1"]
    assert list(plan.system("score").texts) == texts_of_score
    assert set(plan.texts) - set(plan.augmentations) <= {"raw", "distilled-by-teacher"}


def test_what_reports_say_of_the_data_of_systems():
    plan = plan_with({"systems": {"ctc": {"data": MIXED}, "lvm": {"data": {"distilled-by-teacher": 3}}}})
    data = {
        name: system.learnt_data
        for name, system in shown_plan(json.loads(plan.settings_report())).loaded.systems.items()
    }
    assert {name: texts.kind_of(texts_of_it) for name, texts_of_it in data.items() if name != "energy"} == {
        "teacher": "raw",
        "lvm": "distilled",
        "score": "distilled",
        "ctc": "mixed",
        "lm": "distilled",
    }
    assert texts.words(data["ctc"]) == "distilled-by-teacher + 0.5 × raw"
    assert texts.words(data["lvm"]) == "3 × distilled-by-teacher"
    assert data["teacher"] == "raw" and len(data) == 6


def test_systems_that_are_kept_keep_the_teachers_of_their_mixtures(load_over):
    parent = {"extends": "smoke", "systems": {"ctc": {"data": MIXED, "init_from": None}}}
    assert set(load_over(parent, only=["ctc"]).systems) == {"ctc", "teacher", "lm"}


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ({"raw": 0}, {"setting": "systems.ctc.data.raw", "value": 0}),
        ({"raw": "much"}, {"setting": "systems.ctc.data.raw", "value": "much"}),
        ({"raw": True}, {"setting": "systems.ctc.data", "value": {"raw": True}}),
        ({"rew": 1, "distilled-by-teacher": 1}, {"setting": "systems.ctc.data", "value": "rew", "nearest": "raw"}),
        ({"distilled-by-teach": 1}, {"setting": "systems.ctc.data", "nearest": "distilled-by-teacher"}),
        ({"raw": 1, "distilled-by-ctc": 1}, {"setting": "systems.ctc.data", "allowed": ("distilled-by-teacher",)}),
        ({"raw": 1, "distilled-by-energy": 1}, {"setting": "systems.ctc.data", "value": "distilled-by-energy"}),
        ({}, {"setting": "systems.ctc.data", "value": {}}),
        (["raw"], {"setting": "systems.ctc.data", "value": ["raw"], "mentions": ("text", "section")}),
    ],
)
def test_data_that_cannot_be_used(data, fields):
    with refuses(**fields):
        plan_with({"systems": {"ctc": {"data": None}}}) and plan_with({"systems": {"ctc": {"data": data}}})


def test_what_is_counted_at_once_has_one_text():
    with refuses(setting="systems.lm.data"):
        plan_with({"systems": {"lm": {"data": MIXED}}})


NEWS = {"recipe": {"monolingual": [{"texts": {"de": "news.de.gz"}}, {"texts": {"de": "old.de", "en": "old.en"}}]}}
STUDENT = {"systems": {"ctc": {"data": {"raw": 1, "monolingual-by-teacher": 0.5}}}}


def test_text_of_one_language_is_translated_by_the_stages_of_distillation():
    plan = plan_with(NEWS | STUDENT | {"distillation": {"teacher": {"shards": 3}}})
    assert plan.distilled == [("teacher", "train"), ("teacher", "monolingual")]
    assert plan.system("ctc").teachers == ["teacher"]
    root = "results/smoke/distilled/teacher"
    assert plan.target_text("monolingual-by-teacher") == f"{root}/monolingual.en"
    assert plan.source_text("monolingual-by-teacher") == "results/smoke/corpus/monolingual.de"
    assert plan.distilled_shards("teacher", "monolingual")[-1] == f"{root}/monolingual.shards/2-of-3.jsonl"
    assert plan.source_text("distilled-by-teacher") == plan.source_text("raw") == "results/smoke/corpus/train.de"
    before, after = jobs(plan_with({"distillation": {"teacher": {"shards": 3}}})), jobs(plan)
    assert {rule: after[rule] - before.get(rule, 0) for rule in after if after[rule] != before.get(rule, 0)} == {
        "download_monolingual": 1,
        "normalise_monolingual": 1,
        "distill": 3,
        "merge_distilled": 1,
        "encode": 1,
    }


def test_settings_of_text_of_one_language_are_of_the_source_language_alone():
    plan = plan_with(NEWS | STUDENT)
    parts = json.loads(plan.settings_download_monolingual())["monolingual"]
    assert [part["texts"] for part in parts] == [{"de": ["news.de.gz"]}, {"de": ["old.de"]}]
    assert plan.own_monolingual == {
        "recipe.monolingual[0].texts.de": "news.de.gz",
        "recipe.monolingual[1].texts.de": "old.de",
    }
    recipe = {"limits": {"monolingual": 50}, "clean": ["garbled", "ratio", "length", "repeated"]}
    limited = plan_with(merge(merge(NEWS, STUDENT), {"recipe": recipe}))
    assert json.loads(limited.settings_normalise_monolingual())["limits"] == {"monolingual": 50}
    filters = json.loads(limited.settings_clean_monolingual())["clean"]
    assert [name for name, _ in filters] == ["garbled", "length"]
    assert jobs(limited)["clean_monolingual"] == 1
    assert limited.settings_normalise() == plan.settings_normalise()


def test_text_of_one_language_may_lie_in_parts_of_every_kind():
    parts = [
        {"texts": {"de": "news.de"}},
        {"table": "news.csv", "header": True, "columns": {"de": "german", "en": "english"}},
        {"records": "news.jsonl!a", "columns": {"de": "t.de", "en": "t.en"}, "score_column": "s", "minimum_score": 1},
        {"tmx": "news.tmx", "variants": {"de": "de-AT", "en": "en-GB"}},
    ]
    plan = plan_with(merge(STUDENT, {"recipe": {"monolingual": parts}}))
    assert plan.own_monolingual == {
        "recipe.monolingual[0].texts.de": "news.de",
        "recipe.monolingual[1].table": "news.csv",
        "recipe.monolingual[2].records": "news.jsonl",
        "recipe.monolingual[3].tmx": "news.tmx",
    }
    # Another direction reads none of what a part says of other languages, and changes to it make nothing again.
    described = json.loads(plan.settings_download_monolingual())["monolingual"]
    assert [part.get("columns") for part in described] == [None, {"de": "german"}, {"de": "t.de"}, None]
    assert described[3]["variants"] == {"de": "de-AT"}


@pytest.mark.parametrize(("clean", "folder"), [([], "raw"), (["ratio"], "raw"), (["ratio", "length"], "clean")])
def test_text_of_one_language_is_cleaned_where_a_filter_judges_each_side(clean, folder):
    plan = plan_with(merge(merge(NEWS, STUDENT), {"recipe": {"clean": clean}}))
    assert plan.to_normalise("monolingual", "de") == f"results/smoke/{folder}/monolingual.de"
    assert jobs(plan).get("clean_monolingual", 0) == (folder == "clean")


def test_files_of_the_dataset_are_downloaded_where_the_text_lies_in_them():
    dataset = read_yaml(CONFIG_FOLDER / "datasets" / "multi30k.yaml")
    url = "https://example.org/news.tgz"
    dataset["files"] = dataset["files"] | {"news": {"url": url, "sha256": "0" * 64}}
    recipe = {"name": "mine", "dataset": dataset, "source": "de", "target": "en"}
    recipe["monolingual"] = [{"texts": {"de": "news!2013.de"}}, {"texts": {"de": "mine.de"}}]
    content = merge(SMOKE, STUDENT)
    plan = Plan(load(content | {"recipe": recipe}))
    settings = json.loads(plan.settings_download_monolingual())
    assert list(settings["files"]) == ["news"] and settings["files"]["news"]["url"] == url
    assert list(plan.own_monolingual.values()) == ["mine.de"]


@pytest.mark.parametrize(
    ("part", "setting", "fields"),
    [
        ({"texts": {"en": "x"}}, "texts", {}),
        ({"texts": {}}, "texts", {}),
        ({"text": {"de": "x"}}, "text", {"nearest": "texts"}),
        ({"records": "x", "columns": {"en": "x"}}, "columns", {}),
        ({"texts": {"de": ["x", "y"]}}, "texts.de", {}),
        ({"texts": {"de": "x"}, "markup": "sgm"}, "markup", {}),
        ({"table": "x", "columns": {"de": 0}, "score_column": 1}, "score_column", {"value": 1}),
    ],
)
def test_a_part_of_text_of_one_language_that_cannot_be_used(part, setting, fields):
    with refuses(setting=f"recipe.monolingual[0].{setting}", **fields):
        plan_with({"recipe": {"monolingual": [part]}})


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (STUDENT, {"setting": "systems.ctc.data", "value": "monolingual-by-teacher"}),
        ({"recipe": {"monolingual": "news.de"}}, {"setting": "recipe.monolingual"}),
        ({"recipe": {"limits": {"monolingual": 0}}}, {"setting": "recipe.limits.monolingual", "value": 0}),
    ],
)
def test_text_of_one_language_that_cannot_be_used(changes, fields):
    with refuses(**fields):
        plan_with(changes)


LIKELY = {"systems": {"ctc": {"data": {"likely-by-teacher": 1, "distilled-by-teacher": 1}}}}


def test_raw_pairs_are_short_enough_for_systems_that_score_them():
    plain, scoring = (plan_with(changes | {"recipe": {"max_length": "auto"}}) for changes in ({}, LIKELY))
    assert plain.longest_encoded("raw", "train") is None
    assert scoring.longest_encoded("raw", "train") == scoring.system("teacher").model.max_positions - 1
    assert scoring.longest_encoded("distilled-by-teacher", "train") is None
    assert plain.longest_encoded("raw", "test") == plain.longest


def test_likely_pairs_are_kept_of_the_encoded_ones():
    plan = plan_with(LIKELY | {"likelihood": {"teacher": {"keep": 0.8, "shards": 2}}})
    assert plan.scorers == ["teacher"] and plan.teachers == ["teacher"] and plan.distilled == [("teacher", "train")]
    assert json.loads(plan.settings_likelihood("teacher")) == {"backward": None, "keep": 0.8, "maximum": None}
    before, after = jobs(plan_with({})), jobs(plan)
    changes = {rule: after[rule] - before.get(rule, 0) for rule in after if after[rule] != before.get(rule, 0)}
    assert changes == {"score_pairs": 2, "keep_likely": 1}
    assert texts.kind_of("likely-by-teacher") == "raw" and texts.kind_of(plan.system("ctc").data) == "mixed"


def test_raw_pairs_are_encoded_to_be_scored_where_no_system_learns_from_them():
    first = SMOKE["systems"]["teacher"] | {"data": "mine"}
    systems = {"first": first, "teacher": {"data": "likely-by-first"}}
    plan = plan_with({"recipe": {"distilled": {"mine": "mine.en"}}, "systems": systems})
    assert plan.scorers == ["first"] and "raw" not in plan.texts
    assert sorted(plan.encoded_texts) == ["distilled-by-teacher", "mine", "raw"]
    assert jobs(plan)["encode"] == 5


BACK = {"family": "transformer", "preset": "tiny", "reversed": True, "training": {"max_steps": 10}}
BOTH = {"systems": LIKELY["systems"] | {"back": BACK}, "likelihood": {"teacher": {"backward": "back"}}}


def test_a_reversed_system_scores_the_pairs_too():
    plan, one_way = plan_with(BOTH), plan_with(LIKELY)
    assert plan.scorers == ["teacher"] and plan.scoring == ["teacher", "back"] and one_way.scoring == ["teacher"]
    assert json.loads(plan.settings_training("back"))["reversed"] is True
    assert json.loads(plan.settings_training("teacher"))["reversed"] is False
    assert json.loads(plan.settings_likelihood("teacher"))["backward"] == "back"
    assert jobs(plan)["score_pairs"] == 2 and jobs(plan)["train_teacher"] == jobs(one_way)["train_teacher"] + 1


def with_back(system=None, **sections):
    """BOTH with changes to the reversed system and to other sections."""
    systems = BOTH["systems"] | {"back": BACK | (system or {})} | sections.pop("systems", {})
    return BOTH | {"systems": systems} | sections


def test_a_reversed_system_is_trained_with_the_seed_that_scores_pairs():
    sections = {"teacher": {"backward": "back"}, "back": {"seed": 2, "shards": 3}}
    plan = plan_with(BOTH | {"seeds": [1, 2], "likelihood": sections})
    assert [seed for name, seed in plan.trained if name == "back"] == [2]
    assert plan.likelihood_weights("back") in {plan.weights("back", seed) for _, seed in plan.trained}
    assert len(plan.likelihood_shards("back")) == 3 and jobs(plan)["score_pairs"] == 4


def test_a_reversed_system_stays_where_only_its_learner_is_asked_for(load_over):
    loaded = load_over({"extends": "smoke"} | BOTH, only=["ctc"])
    assert {"teacher", "back"} <= loaded.systems.keys() and "score" not in loaded.systems


def test_a_reversed_system_scores_no_outputs():
    systems = {"back": BACK, **SMOKE["systems"], **BOTH["systems"]}
    plan = plan_with(BOTH | {"systems": systems, "analyses": {"energies": {"enabled": True}}})
    assert next(iter(plan.analyses["energies"].systems)) != "back"
    with refuses(setting="analyses.energies.scorer"):
        plan_with(BOTH | {"analyses": {"energies": {"enabled": True, "scorer": "back"}}})


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (with_back({"data": {"raw": 2}}), {"setting": "systems.back.data", "value": "2 × raw"}),
        (with_back({"init_from": "teacher", "preset": "miniature"}), {"setting": "systems.back.init_from"}),
        (
            with_back(likelihood={"teacher": {"backward": "back"}, "back": {"keep": 0.5}}),
            {"setting": "likelihood.back.keep"},
        ),
        (with_back(likelihood={"teacher": {"backward": "lvm"}}), {"setting": "likelihood.teacher.backward"}),
        (with_back({"family": "nat"}), {"setting": "systems.back.family", "value": "nat"}),
        (with_back({"data": "distilled-by-teacher"}), {"setting": "systems.back.data", "allowed": ("raw",)}),
        (
            with_back({"training": {"max_steps": 10, "augment": {"upper": 0.1}}}),
            {"setting": "systems.back.data", "allowed": ("raw",)},
        ),
        (
            with_back(systems={"other": BACK | {"reversed": False, "init_from": "back"}}),
            {"setting": "systems.other.init_from"},
        ),
        (
            with_back(systems={"lvm": {"data": "distilled-by-back"}}),
            {"setting": "systems.lvm.data", "allowed": ("distilled-by-teacher",)},
        ),
        (
            with_back(decodes=[{"system": "back", "search": "greedy"}]),
            {"setting": "decodes[0].system", "value": "back"},
        ),
        (
            with_back(decodes=[{"system": "ctc", "search": "ctc-beam", "beam": 2, "rescorer": "back"}]),
            {"setting": "decodes[0].rescorer", "value": "back"},
        ),
    ],
)
def test_a_reversed_system_only_scores_pairs(changes, fields):
    with refuses(**fields):
        plan_with(changes)


@pytest.mark.parametrize(
    ("section", "keep", "maximum"),
    [({}, 0.9, None), ({"maximum": 4}, 1.0, 4.0), ({"keep": 0.5, "maximum": 4}, 0.5, 4.0), ({"keep": 1}, 1.0, None)],
)
def test_the_share_of_pairs_that_is_kept(section, keep, maximum):
    settings = json.loads(plan_with(LIKELY | {"likelihood": {"teacher": section}}).settings_likelihood("teacher"))
    assert (settings["keep"], settings["maximum"]) == (keep, maximum)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"systems": {"ctc": {"data": "likely-by-lvm"}}}, {"setting": "systems.ctc.data", "value": "likely-by-lvm"}),
        ({"systems": {"ctc": {"data": "likely-by-teach"}}}, {"nearest": "likely-by-teacher"}),
        (
            {"systems": {"ctc": {"data": {"likely-by-teacher": 1, "raw": 1}, "training": {"augment": {"upper": 0.1}}}}},
            {"setting": "systems.ctc.training.augment"},
        ),
        ({"likelihood": {"techer": {}}}, {"setting": "likelihood.techer", "nearest": "teacher"}),
        ({"likelihood": {"teacher": {"keep": 1.5}}}, {"setting": "likelihood.teacher.keep", "value": 1.5}),
        ({"likelihood": {"teacher": {"keep": 0}}}, {"setting": "likelihood.teacher.keep", "value": 0}),
        ({"likelihood": {"teacher": {"maximum": -1}}}, {"setting": "likelihood.teacher.maximum"}),
        ({"likelihood": {"teacher": {"seed": 7}}}, {"setting": "likelihood.teacher.seed", "allowed": ("1",)}),
    ],
)
def test_likely_pairs_that_cannot_be_had(changes, fields):
    with refuses(**fields):
        plan_with(changes)
