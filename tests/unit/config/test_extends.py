"""What an experiment takes over from the one that it extends, and what it must say for itself."""

from __future__ import annotations

import json

import pytest
from refusals import refuses

from workflow_src.config import Plan, files, load, load_experiment
from workflow_src.config.datasets import DatasetConfig
from workflow_src.config.files import CONFIG_FOLDER, experiment_file, experiment_names, merge, read_yaml
from workflow_src.config.load import check_own_name
from workflow_src.errors import ConfigError

SAID = {"title": "A title", "notes": "A note.", "expected": {"score-1": 26.3}, "expected_source": "A paper, Table 1"}


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """A folder of experiments in place of the shipped ones: `parent` says everything about itself, `child` nothing."""
    for folder in ("datasets", "models", "training.yaml"):
        (tmp_path / folder).symlink_to(CONFIG_FOLDER / folder)
    (tmp_path / "experiments").mkdir()
    parent = read_yaml(CONFIG_FOLDER / "experiments/smoke.yaml")
    parent["systems"]["ctc"]["search_defaults"] = {"ctc-beam": {"lm_weight": 0.3}}
    parent |= {"experiment": "parent", "description": "The parent's words.", "report": SAID | {"examples": 3}}
    child = {"experiment": "child", "extends": "parent", "recipe": {"name": "child"}}
    for name, content in (("parent", parent), ("child", child)):
        (tmp_path / "experiments" / f"{name}.yaml").write_text(json.dumps(content))
    monkeypatch.setattr(files, "CONFIG_FOLDER", tmp_path)


@pytest.mark.parametrize("settings", [{"extends": "smoke"}, {"recipe": {"name": "own", "dataset": "toy"}}])
@pytest.mark.parametrize("name", ["demo", "smoke"])
def test_an_experiment_of_the_users_has_a_name_of_its_own(name, settings):
    """Without one it would have that of config/config.yaml."""
    with refuses(setting="experiment", value=name):
        check_own_name({"experiment": name, **settings})


def test_a_shipped_experiment_with_other_settings_over_it_keeps_its_name():
    content = read_yaml(experiment_file("smoke"))
    check_own_name(content | {"seeds": [1, 2]})
    check_own_name({"experiment": "smoke", "recipe": {"subwords": {"vocabulary_size": 250}}})


def own_words(loaded):
    report = loaded.config.report
    return loaded.config.description, {key: getattr(report, key) for key in SAID}


NOTHING = ("", {"title": None, "notes": "", "expected": {}, "expected_source": ""})


def test_nothing_that_an_experiment_says_about_itself_is_inherited(shipped):
    parent, child = load({"experiment": "parent"}), load({"experiment": "child"})
    assert own_words(parent) == ("The parent's words.", SAID)
    assert own_words(child) == NOTHING
    # Settings are: those of the report too.
    assert child.config.report.examples == parent.config.report.examples == 3
    assert parent.systems["ctc"].search_defaults == {"ctc-beam": {"lm_weight": 0.3}}
    # What the parent's bundles search with was chosen on another corpus.
    assert child.systems == parent.systems | {"ctc": parent.systems["ctc"].model_copy(update={"search_defaults": {}})}
    assert child.config.decodes == parent.config.decodes


def test_a_grandchild_and_a_configuration_file_inherit_no_more(shipped):
    assert own_words(load({"experiment": "mine", "extends": "child", "recipe": {"name": "mine"}})) == NOTHING
    about = {"description": "Mine.", "report": {"notes": "My note.", "expected": {"beam-2": 20.0}}}
    words = own_words(load({"experiment": "mine", "extends": "parent", "recipe": {"name": "mine"}} | about))
    assert words == ("Mine.", NOTHING[1] | {"notes": "My note.", "expected": {"beam-2": 20.0}})
    mine = load({"experiment": "mine", "extends": "parent"}).config
    assert mine.description == "" and mine.report.expected == {}


def test_a_file_of_the_users_is_extended_like_a_shipped_experiment(shipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = {"experiment": "first", "extends": "parent", "recipe": {"name": "first"}, "seeds": [7]}
    (tmp_path / "first.yaml").write_text(json.dumps(first | {"description": "The first's."}))
    second = load({"experiment": "second", "extends": "first.yaml", "recipe": {"name": "second"}})
    assert second.config.seeds == (7,) and own_words(second) == NOTHING
    assert second.systems == load({"experiment": "third", "extends": "parent", "recipe": {"name": "third"}}).systems
    (tmp_path / "first.yaml").write_text(json.dumps(first | {"extends": "first.yaml"}))
    with pytest.raises(ConfigError, match=r"first\.yaml -> first\.yaml"):
        load({"experiment": "second", "extends": "first.yaml"})
    with pytest.raises(ConfigError, match=r"absent\.yaml.* does not exist") as refused:
        load({"experiment": "second", "extends": "absent.yaml"})
    assert str(tmp_path) in str(refused.value)


def test_a_setting_changed_in_an_experiment_leaves_its_words(shipped):
    """`--config` over an experiment that is run by its name is no other experiment."""
    assert own_words(load({"experiment": "parent", "seeds": [2]})) == ("The parent's words.", SAID)


def test_each_shipped_experiment_has_a_description_of_its_own():
    descriptions = {}
    for name in experiment_names():
        about = read_yaml(experiment_file(name)).get("description", "")
        assert about.strip(), f"config/experiments/{name}.yaml has no description"
        assert load_experiment(name).config.description == about
        descriptions[about] = name
    assert len(descriptions) == len(experiment_names())


OWN = {
    "name": "mine",
    "languages": ["tr", "en"],
    "split": {"method": "connected-groups", "dev": 5, "test": 5},
    "train": [{"texts": {"tr": "my.tr", "en": "my.en"}}],
}


@pytest.mark.parametrize("name", experiment_names())
def test_own_text_takes_the_place_of_any_shipped_corpus(name):
    """Nothing of the corpus that stood there is left, and no null is needed."""
    # As Snakemake does, over the default configuration.
    recipe = {"name": "mine", "dataset": OWN, "source": "tr", "target": "en"}
    raw = {"experiment": "mine", "extends": name, "recipe": recipe}
    plan = Plan(load(read_yaml(CONFIG_FOLDER / "config.yaml") | raw))
    assert plan.loaded.dataset == DatasetConfig.model_validate(OWN)
    downloaded = json.loads(plan.settings_download())
    assert downloaded["kind"] == "files" and downloaded["generator"] is None and downloaded["files"] == {}
    assert json.loads(plan.settings_quality())["corpus"]["generated"] is False
    # What was set beside the corpus is kept.
    assert plan.recipe.subwords == load_experiment(name).config.recipe.subwords


def test_a_definition_replaces_key_by_key_nothing():
    parent = {"dataset": {"name": "a", "kind": "generated", "split": {"method": "every-nth"}, "pairs": 5}, "kept": 1}
    assert merge(parent, {"dataset": {"name": "b", "pairs": None, "train": []}}) == {
        "dataset": {"name": "b", "train": []},
        "kept": 1,
    }
    # Without a name it is a change of the definition that stands there.
    assert merge(parent, {"dataset": {"pairs": 6}})["dataset"] == parent["dataset"] | {"pairs": 6}
    assert merge(parent, {"dataset": "toy"})["dataset"] == "toy"
    # As Snakemake lays files over each other.
    merged = merge(parent, {"dataset": {"name": "b"}}, null_removes=False)
    assert merged["dataset"] == parent["dataset"] | {"name": "b"}


def test_nulls_in_a_definition_do_no_harm():
    recipe = {"name": "mine", "dataset": OWN | {"kind": "files", "generator": None}, "source": "tr", "target": "en"}
    assert load({"experiment": "mine", "extends": "smoke", "recipe": recipe}).dataset.generated is None


@pytest.mark.parametrize("setting", ["train", "dev", "test", "split"])
def test_texts_that_a_generated_corpus_would_not_read_are_refused(setting):
    """So two configuration files come together that Snakemake merges key by key."""
    both = {"name": "mine", "languages": ["de", "en"], "kind": "generated", "generator": {"train": 10}}
    recipe = {"name": "mine", "dataset": both | {setting: OWN.get(setting, OWN["train"])}}
    with refuses(setting=f"recipe.dataset.{setting}", mentions=("generated",)):
        load({"experiment": "mine", "extends": "smoke", "recipe": recipe})


def test_a_generated_corpus_has_the_usual_size_where_nothing_is_set():
    dataset = {"name": "mine", "languages": ["de", "en"], "kind": "generated"}
    plan = Plan(load({"experiment": "mine", "extends": "smoke", "recipe": {"name": "mine", "dataset": dataset}}))
    assert plan.loaded.corpus.generated and json.loads(plan.settings_quality())["corpus"]["generated"] is True
    assert plan.loaded.dataset.generated.train == 24_000


def test_a_generator_of_a_corpus_that_is_read_is_refused():
    recipe = {"name": "mine", "dataset": OWN | {"generator": {"train": 10}}, "source": "tr", "target": "en"}
    with pytest.raises(ConfigError, match=r"^recipe.dataset.generator: kind is files"):
        load({"experiment": "mine", "extends": "smoke", "recipe": recipe})
