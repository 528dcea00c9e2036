"""Which systems `only` keeps, what training presets come to, and the nearest name of a misspelt system."""

from __future__ import annotations

import json
import re

import pytest
from configurations import changes_at
from refusals import refuses

from workflow_src.config import Plan, files, load, load_experiment
from workflow_src.config.files import CONFIG_FOLDER, read_yaml
from workflow_src.data.cleaning import clean, steps_of
from workflow_src.data.normalise import drop_reason
from workflow_src.errors import ConfigError
from workflow_src.spec import Pair

PRESETS = read_yaml(CONFIG_FOLDER / "training.yaml")


def mine(**settings):
    """`smoke`, or what `extends` names, with changes.

    Its score network works in the space of lvm, and ctc's bundle carries lm.
    """
    return load({"experiment": "mine", "extends": "smoke", **settings})


def decoded(loaded):
    return {decode.system for decode in loaded.decodes}


# only


def test_only_keeps_systems_and_all_that_they_are_built_on():
    full = load_experiment("smoke")
    loaded = mine(only=["score"])
    # lvm is its base, and teacher is the start and the teacher of lvm.
    assert list(loaded.systems) == ["teacher", "lvm", "score"]
    assert loaded.systems == {name: full.systems[name] for name in loaded.systems}
    assert loaded.config.decodes == tuple(
        decode for decode in full.config.decodes if decode.system in ("teacher", "lvm", "score")
    )


def test_only_keeps_what_bundles_carry_and_what_fills_roles():
    assert set(mine(only=["ctc"]).systems) == {"teacher", "ctc", "lm"}
    loaded = mine(extends="smoke-families", only=["tagger-engine"])
    # Its energy is that of seq2seq, its start is tagger, and nothing needs the teacher.
    assert set(loaded.systems) == {"tagger-engine", "tagger", "seq2seq"}


def test_translations_with_a_dropped_system_go_and_its_distillation_too(load_over):
    loaded = mine(extends="smoke-families", only=["tagger", "cmlm"])
    assert decoded(loaded) == {"teacher", "tagger", "cmlm"}
    assert "teacher" in loaded.config.distillation
    loaded = mine(extends="smoke-families", only=["tagger"])
    assert decoded(loaded) == {"tagger"} and not loaded.config.distillation
    # A search may name a system besides: those that a dropped one ranks go.
    ranked = [
        {"system": "tagger", "search": "argmax", "lengths": 2, "rescorer": rescorer}
        for rescorer in ("teacher", "seq2seq")
    ]
    loaded = load_over({"extends": "smoke-families", "decodes": ranked}, only=["tagger-engine"])
    assert [decode.values.rescorer for decode in loaded.decodes] == ["seq2seq"]


PLUGIN = """
import dataclasses
from workflow_src.searches.argmax import SEARCH, ArgmaxSettings
from workflow_src.spec import Plugin

class Settings(ArgmaxSettings):
    pass

SEARCH = dataclasses.replace(SEARCH, name="ours", title="ours", settings=Settings, families=("tagger",))
PLUGIN = Plugin("ours", "1", searches=(SEARCH,))
"""


def test_only_knows_what_the_search_of_a_plug_in_names(own_module, load_over):
    """The decode that a dropped teacher ranks goes, with a plug-in's search as with one of ours."""
    own_module("ours", PLUGIN)
    decodes = [
        {"system": "tagger", "search": "ours", "lengths": 2, **({"rescorer": rescorer} if rescorer else {})}
        for rescorer in ("teacher", None)
    ]
    loaded = load_over({"extends": "smoke-families", "plugins": ["ours"], "decodes": decodes}, only=["tagger"])
    assert set(loaded.systems) == {"tagger"}
    assert [(decode.search, decode.values.rescorer) for decode in loaded.decodes] == [("ours", None)]


def test_systems_of_ones_own_stay_with_what_they_need():
    system = {"family": "lvm", "preset": "miniature", "data": "distilled-by-teacher", "training": {"max_steps": 5}}
    loaded = mine(only=["ctc"], systems={"own": system, "energy": {"training": {"max_steps": 7}}})
    assert set(loaded.systems) == {"teacher", "ctc", "lm", "own", "lvm", "energy"}
    assert loaded.systems["energy"].training.max_steps == 7


def test_only_over_a_shipped_experiment_by_its_name_and_along_a_chain():
    assert set(
        load_experiment("smoke", only=["teacher"], decodes=[{"system": "teacher", "search": "greedy"}]).systems
    ) == {"teacher"}
    shapes = mine(extends="tatoeba-one-pass", only=["student-long", "ctc-4-1"])
    assert set(shapes.systems) == {"teacher", "student-long", "ctc-4-1"}


@pytest.mark.parametrize("name", files.experiment_names())
def test_only_leaves_every_shipped_experiment_valid(name):
    """Whatever family is asked for: what names the others goes with them."""
    systems = load_experiment(name).systems
    one_of_each_family = {system.family.name: name for name, system in systems.items()}.values()
    for system in one_of_each_family:
        try:
            cut = Plan(load_experiment(name, only=[system]))
        except ConfigError as refused:
            # Counted language models are decoded by no search of their own.
            assert (refused.setting, refused.value) == ("only", [system])
            assert systems[system].family.name == "ngram"
        else:
            assert system in cut.loaded.systems and {d.system for d in cut.loaded.decodes} <= set(cut.loaded.systems)


def test_scorers_and_analyses_of_dropped_systems_go():
    full = load_experiment("smoke-families").analyses["energies"]
    assert full.enabled is True and set(full.scorer) == {"seq2seq", "teacher"}
    cut = mine(extends="smoke-families", only=["cmlm"])
    assert cut.analyses["energies"].scorer == ("teacher",)
    cut = Plan(mine(extends="smoke-families", only=["tagger"]))
    assert cut.loaded.analyses["energies"].scorer is None
    # Nothing refines latents any more, and nothing is asked of them.
    assert not [a for a in cut.analyses.values() if a.enabled and a.name in ("convergence", "latent_paths")]
    with pytest.raises(ConfigError, match=r"^analyses.components.enabled"):
        Plan(mine(extends="smoke-families", only=["tagger"], analyses={"components": {"enabled": True}}))


def test_how_pairs_are_scored_by_a_dropped_system_goes(load_over):
    parent = {"extends": "smoke", "likelihood": {"teacher": {}, "energy": {"keep": 0.5}}}
    assert set(load_over(parent, only=["ctc"]).config.likelihood) == {"teacher"}


def test_grids_stay_whole_or_go():
    full = Plan(load_experiment("engine-grid"))
    assert [grid.family for grid in full.grids] == ["inference-tagger", "inference-network"]
    taggers = [name for name, s in full.loaded.systems.items() if s.family.name == "inference-tagger"]
    cut = Plan(load_experiment("engine-grid", only=taggers))
    assert cut.grids == full.grids[:1]
    assert not Plan(load_experiment("engine-grid", only=taggers[:-1])).grids


@pytest.mark.parametrize(
    ("only", "fields"),
    [
        (["scoer"], {"setting": "only", "nearest": "score"}),
        ("score", {"setting": "only", "value": "score"}),
        ([3], {"setting": "only[0]", "value": 3}),
    ],
)
def test_a_wrong_only_is_refused_in_one_sentence(only, fields):
    with refuses(**fields):
        mine(only=only)


@pytest.mark.parametrize(
    ("systems", "fields"),
    [
        ({"nosuch": None}, {"setting": "systems.nosuch", "nearest": None}),
        ({"scor": None}, {"setting": "systems.scor", "nearest": "score"}),
        ({"ctc": {"model": {"dropout": [0.1, 0.2]}}, "ctc-dropout0_3": None}, {"setting": "systems.ctc-dropout0_3"}),
    ],
)
@pytest.mark.parametrize("only", [None, ["score"]])
def test_null_for_a_system_that_does_not_exist_is_refused(systems, fields, only):
    with refuses(**fields):
        mine(systems=systems, **({"only": only} if only else {}))


def test_a_system_is_removed_once_along_a_chain(load_over):
    decodes = [{"system": "teacher", "search": "greedy"}]
    parent = {"extends": "smoke", "systems": {"energy": None}, "decodes": decodes}
    assert "energy" not in load_over(parent).systems
    with refuses(setting="systems.energy"):
        load_over(parent, systems={"energy": None})


def test_only_without_extends_is_refused():
    with pytest.raises(ConfigError, match=r"^only is .* nothing is extended"):
        load(read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml") | {"only": ["teacher"]})


def test_a_listed_translation_of_a_dropped_system_is_refused():
    with pytest.raises(ConfigError, match=r"decodes.0..system is 'score'"):
        mine(only=["teacher"], decodes=[{"system": "score", "search": "score"}])


# Presets of trainings


def trained(training):
    return mine(systems={"teacher": {"training": training}}).systems["teacher"].training


def test_a_preset_is_its_settings_and_settings_beside_it_win():
    system = {"family": "transformer", "preset": "miniature"}
    training = {"preset": "short-sentences", "max_steps": 10, "weight_decay": 0.5}
    loaded = mine(
        systems={
            "own": system | {"training": training},
            "long": system | {"training": PRESETS["short-sentences"] | {"max_steps": 10, "weight_decay": 0.5}},
        }
    )
    assert loaded.systems["own"].training == loaded.systems["long"].training
    assert loaded.systems["own"].training.weight_decay == 0.5
    assert loaded.systems["own"].training.dev_sentences == 1000


def test_another_preset_takes_the_place_of_the_extended_experiments():
    """Settings that stand beside it there stay."""
    shipped = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")["systems"]["teacher"]["training"]
    assert "preset" in shipped and "max_steps" in shipped
    training = trained({"preset": "short-sentences"})
    assert training.max_steps == shipped["max_steps"]
    assert training.dev_sentences == PRESETS["short-sentences"]["dev_sentences"]
    assert trained({"preset": "short-sentences", "dev_sentences": 7}).dev_sentences == 7
    # A single value changes nothing else, and null leaves a value to the preset.
    assert trained({"dev_sentences": 7}) == trained({}).model_copy(update={"dev_sentences": 7})
    assert trained({"preset": "gu-2021"}).max_steps == shipped["max_steps"] != PRESETS["gu-2021"]["max_steps"]
    assert trained({"preset": "gu-2021", "max_steps": None}).max_steps == PRESETS["gu-2021"]["max_steps"]


def test_what_is_read_may_be_changed():
    """Equal text is parsed once, and every reader gets a copy."""
    path = CONFIG_FOLDER / "experiments/smoke.yaml"
    read_yaml(path)["systems"].clear()
    files.read_preset(CONFIG_FOLDER / "training.yaml", "short-sentences", "teacher").clear()
    assert read_yaml(path)["systems"] and read_yaml(CONFIG_FOLDER / "training.yaml")["short-sentences"]


def test_rules_get_the_settings_of_a_preset_and_not_its_name():
    """A renamed preset reruns nothing."""
    plan = Plan(mine(systems={"teacher": {"training": {"preset": "short-sentences"}}}))
    training = json.loads(plan.settings_training("teacher"))["training"]
    assert "preset" not in training and training["dev_sentences"] == PRESETS["short-sentences"]["dev_sentences"]


def test_an_unknown_preset_names_the_nearest():
    with refuses(setting="systems.teacher.training.preset", allowed=tuple(sorted(PRESETS)), nearest="short-sentences"):
        trained({"preset": "short-sentence"})
    with pytest.raises(ConfigError, match=r"systems.teacher.training.preset is 5"):
        trained({"preset": 5})


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains(name):
    system = {"family": "transformer", "preset": "miniature", "training": {"max_steps": 10, "preset": name}}
    assert mine(systems={"own": system}).systems["own"].training.max_steps == 10


# Misspelt systems


GRID = {"titel": "A", "family": "lvm", "rows": "data", "columns": "preset"}


def test_a_misspelt_system_names_the_nearest():
    with refuses(
        setting="systems.scoer",
        allowed=("ctc", "energy", "lm", "lvm", "score", "teacher"),
        hint="or a new one with a family",
        nearest="score",
    ):
        load_experiment("smoke", systems={"scoer": {}})
    with pytest.raises(ConfigError, match=r"^systems.zz: no system; "):
        load_experiment("smoke", systems={"zz": {}})


@pytest.mark.parametrize(
    ("place", "value", "setting", "nearest"),
    [
        ("decodes", [{"systm": "teacher", "search": "greedy"}], "decodes[0].systm", "system"),
        ("systems.own", {"famly": "lvm", "preset": "miniature"}, "systems.own", None),
        ("systems.own", {"family": "lvm", "prest": "miniature"}, "systems.own.prest", "preset"),
        ("systems.teacher.training.prest", "toy", "systems.teacher.training.prest", "preset"),
        ("distillation.techer.beam", 2, "distillation.techer", "teacher"),
        ("analyses.energeis.enabled", True, "analyses.energeis", "energies"),
        ("recipe", {"name": "mine", "dataset": {"nmae": "mine"}}, "recipe.dataset.nmae", "name"),
        ("report.grids", [GRID], "report.grids[0].titel", "title"),
    ],
)
def test_a_misspelt_setting_is_named_rather_than_the_missing_one(place, value, setting, nearest):
    with refuses(setting=setting, nearest=nearest):
        mine(**changes_at(place, value))


# Papers


def test_papers_have_the_max_length_that_their_notes_say():
    noted = 0
    for path in (CONFIG_FOLDER / "experiments" / "papers").glob("*.yaml"):
        text = " ".join(line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#"))
        for number in re.findall(r"pairs of at most (\d+) subwords", text):
            assert load_experiment(path.stem).config.recipe.max_length == int(number), path.stem
            noted += 1
    assert noted >= 5


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("one two three four five", "eins zwei drei vier fünf sechs sieben acht neun", True),
        ("one two", "a b c d e", False),
        ("words " * 300, "Wörter " * 400, True),
        ("I go", "unwiderruflich selbstverständlich", True),
    ],
)
def test_pairs_of_huang_et_al_differ_by_a_factor_of_two_at_most(source, target, kept):
    loaded, languages = load_experiment("wmt14-dat"), ("en", "de")
    stays = bool(list(clean([Pair(source, target)], steps_of(loaded.cleaning, languages))))
    assert (stays and drop_reason(source, target, loaded.normalisation, languages, True) is None) == kept


def test_settings_of_papers_are_found_by_name():
    papers = sorted(path.stem for path in (CONFIG_FOLDER / "experiments" / "papers").glob("*.yaml"))
    assert papers and set(papers) < set(files.experiment_names())
    loaded = mine(extends=papers[0])
    assert loaded.systems == load_experiment(papers[0]).systems
    full = read_yaml(CONFIG_FOLDER / "experiments" / "papers" / f"{papers[0]}.yaml")
    assert load(full).systems == loaded.systems


@pytest.mark.parametrize(
    "recipe",
    [
        {"dataset": {"name": "mine", "languages": ["de", "en"], "kind": "generated", "generator": {"name": "toy"}}},
        {"source": "en", "target": "de"},
        {"subwords": {"vocabulary_size": 100}},
        {"limits": {"train": 50}},
        {"dataset": {"generator": {"train": 900}}},
        {"clean": {"copies": {}}},
    ],
)
def test_another_recipe_has_a_folder_of_its_own(recipe):
    """Under the extended recipe's name, its files would be replaced without a word."""
    with refuses(setting="recipe.name", value="smoke"):
        mine(recipe=recipe)
    assert mine(recipe={**recipe, "name": "mine"})
    own = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")["recipe"]
    for same in ({"source": own["source"]}, {"dataset": own["dataset"]}):
        assert mine(recipe=same)


def shared_files(plan):
    """Settings of what lies in the folder of a plan's recipe, by what it is."""
    shared = {name: getattr(plan, name)() for name in ("settings_download", "settings_normalise", "settings_subwords")}
    shared |= {("encoded", text): plan.settings_encode(text) for text in plan.texts}
    for name, system in plan.loaded.systems.items():
        if not system.family.imported:
            shared["system", name] = plan.settings_training(name)
            shared["relations", name] = [system.init_from, system.base, system.roles, system.carries]
    for teacher in plan.teachers:
        shared["text", teacher] = [plan.settings_distillation(teacher), plan.distillation(teacher).shards]
    for decode in plan.loaded.decodes:
        shared["decode", decode.system, plan.folder(decode)] = [plan.settings_decode(decode), decode.shards]
    return shared


def test_shipped_experiments_of_a_recipe_agree_on_the_files_that_they_share():
    """Else each would make the other's files anew."""
    first = {}
    for name in files.experiment_names():
        plan = Plan(load_experiment(name))
        for key, settings in shared_files(plan.compared()).items():
            owner, other = first.setdefault((plan.recipe.name, key), (name, settings))
            assert settings == other, f"{name} and {owner} differ in {key}"


def test_none_is_no_value_and_null_gives_back_what_is_extended():
    training = {"preset": "short-sentences", "max_steps": 5}
    for changes, clip_norm in (({}, 1.0), ({"clip_norm": "none"}, None), ({"clip_norm": 0.5}, 0.5)):
        loaded = load_experiment("smoke", systems={"ctc": {"training": training | changes}})
        assert loaded.systems["ctc"].training.clip_norm == clip_norm
        back = {"systems": {"ctc": {"training": {"clip_norm": None}}}}
        assert load_experiment("smoke", **back).systems["ctc"].training.clip_norm == 1.0
    swept = load_experiment("smoke", systems={"ctc": {"training": {"clip_norm": [None, 0.5]}}}, only=["ctc"])
    norms = [system.training.clip_norm for name, system in swept.systems.items() if name.startswith("ctc-")]
    assert norms == [None, 0.5]
    decodes = [{"system": "ctc", "search": "ctc-beam", "beam": 3, "beam_threshold": value} for value in (None, "none")]
    for decode in decodes:
        loaded = load_experiment("smoke", decodes=[decode], only=["ctc"])
        assert loaded.decodes[-1].values.beam_threshold is None


def test_the_word_none_turns_off_what_holds_text():
    """Such as the name of a partition, of an engine or of a system."""
    loaded = load_experiment("smoke", runtime={"partition": "none"}, recipe={"subwords_from": "none"})
    assert (loaded.config.runtime.partition, loaded.config.recipe.subwords_from) == (None, None)
    decode = {"system": "ctc", "search": "ctc-beam", "beam": 3, "language_model": "none", "rescorer": "none"}
    loaded = load_experiment("smoke", decodes=[decode | {"engine": "none"}], only=["ctc"])
    values = loaded.decodes[-1].values
    assert (values.language_model, values.rescorer, loaded.decodes[-1].own_engine) == (None, None, True)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"systems": {"ctc": {"objective": "none"}}}, "systems.ctc.objective"),
        ({"systems": {"ctc": {"training": "none"}}}, "systems.ctc.training"),
        ({"systems": {"ctc": {"model": "none"}}}, "systems.ctc.model"),
        ({"decodes": "none"}, "decodes"),
        ({"report": {"grids": "none"}}, "report.grids"),
    ],
)
def test_the_word_none_in_place_of_a_section_is_refused_by_its_name(changes, setting):
    with refuses(setting=setting):
        load_experiment("smoke", **changes)


def test_text_of_one_language_may_be_added_to_the_extended_recipe(tmp_path):
    (tmp_path / "news.de").write_text("der Hund\n")
    text = {"monolingual": [{"texts": {"de": str(tmp_path / "news.de")}}]}
    assert mine(recipe=text | {"limits": {"monolingual": 1}})
    with pytest.raises(ConfigError):
        mine(recipe=text | {"limits": {"train": 1}})


def test_the_word_none_stays_where_it_is_a_value():
    assert load_experiment("smoke", report={"remove_repetitions": "none"}).config.report.remove_repetitions == "none"


def test_the_word_null_of_a_command_line_removes_as_null_does():
    """Snakemake reads values within sections of its command line as text."""
    steps = {"ctc": {"training": {"max_steps": 7, "patience": "null"}}}
    assert load_experiment("smoke", systems=steps).systems["ctc"].training.patience is None
    decodes = [{"system": "ctc", "search": "ctc-greedy"}]
    loaded = load_experiment("smoke", systems={"energy": "null"}, decodes=decodes, analyses={"energies": "null"})
    assert "energy" not in loaded.systems


def test_systems_that_exchange_their_roles_are_compared():
    """Both are inputs all the same, and Snakemake compares lists of inputs in any order."""
    smoke = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")
    lvm = {name: value for name, value in smoke["systems"]["lvm"].items() if name not in ("search_defaults", "carries")}

    def compared(**related) -> str:
        systems = {"lvm": lvm, "second": lvm, "score": smoke["systems"]["score"] | related}
        return Plan(mine(only=["score"], systems=systems)).compared().settings_training("score")

    first, second = compared(base="lvm", init_from="second"), compared(base="second", init_from="lvm")
    assert first != second
    # One relation is no part of what is compared.
    assert compared(base="lvm") == Plan(load_experiment("smoke")).compared().settings_training("score")
