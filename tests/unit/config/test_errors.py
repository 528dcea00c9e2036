"""Errors of a configuration: the setting, its value, what is allowed, the nearest valid name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from configurations import changes_at, read_configuration
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from workflow_src.config import Plan, load, load_experiment
from workflow_src.config.datasets import DatasetConfig
from workflow_src.config.files import CONFIG_FOLDER, experiment_names, merge, read_yaml
from workflow_src.config.resolved import Loaded
from workflow_src.config.sizes import AutoStepsConfig
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.spec import UNKNOWN

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")


def load_smoke(changes: dict[str, Any]) -> Loaded:
    """The smoke experiment with changes laid over it."""
    return load(merge(SMOKE, changes))


# Settings that are none, at any depth, and names that are none, with the nearest that is one.
MISSPELT = [
    ("sedes", [1], "seeds"),
    ("zzz", 1, None),
    ("systems.lvm.training.max_step", 5, "max_steps"),
    ("systems.lvm.objective.kl_budgets", 5, "kl_budget"),
    ("systems.lvm.model.layer", 5, "layers"),
    ("recipe.normalisation.lowercased", True, "lowercase"),
    ("recipe.dataset.generators", {}, "generator"),
    ("recipe.source", "English", "en"),
    ("recipe.dataset", "totoeba", "tatoeba"),
    ("runtime.device", "tpu", "cpu"),
    ("runtime.device", "cuda:01", "cuda:N"),
    ("runtime.precision", "float8", "float32"),
    ("report.remove_repetitions", "subword", "subwords"),
    ("systems.teacher.family", "transfomer", "transformer"),
    ("systems.teacher.family", "a\nb" + "x" * 400, None),
    ("systems.teacher.preset", "tinny", "tiny"),
    ("systems.score.base", "lvn", "lvm"),
    ("systems.lvm.init_from", "teecher", "teacher"),
    ("systems.lvm.data", "distilled-by-teache", "distilled-by-teacher"),
    ("distillation.teechers", {}, "teacher"),
    ("distillation.lvm", {}, None),
    ("distillation.teacher.beams", 3, "beam"),
    ("distillation.teacher.rescorer", "ctc", None),
    ("extends", "smok", "smoke"),
]


@pytest.mark.parametrize(("setting", "value", "nearest"), MISSPELT)
def test_a_misspelt_name_is_refused_with_the_nearest(setting, value, nearest):
    with refuses(setting=setting, nearest=nearest):
        load_smoke(changes_at(setting, value))


WRONG_VALUES = [
    ("seeds", "many"),
    ("seeds", 1),
    ("seeds", []),
    ("seeds", [1, 1]),
    ("seeds", [True]),
    ("runtime.devices", 0),
    ("recipe.limits", {"train": True}),
    ("recipe.limits", {"train": 2**63}),
    ("recipe.subwords.vocabulary_size", 2),
    ("recipe.subwords.vocabulary_size", "big"),
    ("recipe.subwords.vocabulary_size", 10**400),
    ("recipe.target", "de"),
    ("recipe.normalisation.lowercase", True),
    ("recipe.dataset.split", 3),
    ("recipe.dataset.languages", ["de", "de"]),
    ("recipe.dataset.generator.name", ["toy"]),
    ("recipe.dataset.generator.train", -5),
    ("systems.teacher", "hello"),
    ("systems.teacher.base", "lvm"),
    ("systems.teacher.model.dropout", 1.5),
    ("systems.teacher.training.max_steps", 10**400),
    ("systems.teacher.training.batch_tokens", "lots"),
    ("systems.teacher.training.learning_rate", False),
    ("systems.teacher.training.learning_rate", 0),
    ("systems.teacher.training.learning_rate", float("inf")),
    ("systems.lvm.training.max_steps", 0),
    ("systems.lvm.training.clip_norm", 0),
    ("systems.lvm.training.max_skipped", -1),
    ("systems.lvm.data", ""),
    ("systems.lvm.initial_weights", "{mine}.safetensors"),
    ("systems.score.base", "teacher"),
    ("systems.score.objective.pre_update_after", 1.0),
    ("distillation.teacher.seed", -1),
    ("distillation.teacher.beam", 0),
    ("speed.protocols", []),
    ("speed.protocols", ["gpu", "gpu"]),
    ("report.grids", 3),
    ("extends", ["smoke", "demo"]),
    ("extends", ""),
]


@pytest.mark.parametrize(("setting", "value"), WRONG_VALUES)
def test_a_value_that_cannot_be_used_is_named_with_its_setting(setting, value):
    with refuses(setting=setting, value=value):
        load_smoke(changes_at(setting, value))


NOT_ALLOWED = [
    ("distillation.teacher.seed", 99, ("1",)),
    ("systems.teacher.training.schedule", "cosine", ("inverse-sqrt", "polynomial")),
    ("report.remove_repetitions", True, ("none", "subwords", "words")),
    ("report.remove_repetitions", False, ("none", "subwords", "words")),
    ("report.expected_convention", "intl", ("intl-lowercase", "sacrebleu", "tokenised")),
    ("recipe.source", "fr", ("de", "en")),
    ("systems.lvm.data", "mine", ("distilled-by-SYSTEM", "likely-by-SYSTEM", "monolingual-by-SYSTEM", "raw")),
    ("systems.lvm.data", "distilled-by-score", ("distilled-by-teacher",)),
    ("systems.score.model.latent_dim", 4, ("2",)),
    # Systems that have no weights for the network.
    ("systems.ctc.init_from", "score", ("ctc", "lvm", "teacher")),
    ("systems.ctc.init_from", "lm", ("ctc", "lvm", "teacher")),
    ("systems.score.init_from", "teacher", ("ctc", "energy", "lvm", "score")),
]


@pytest.mark.parametrize(("setting", "value", "allowed"), NOT_ALLOWED)
def test_a_value_of_few_is_refused_with_those_that_are_allowed(setting, value, allowed):
    with refuses(setting=setting, value=value, allowed=allowed):
        load_smoke(changes_at(setting, value))


LVM_CIRCLE = {"lvm": {"init_from": "ctc"}, "ctc": {"init_from": "lvm"}}
FROM_TEACHER = {"init_from": "teacher"}
# Where the mistake is, what is written there, and the setting that is named, from there on.
MISTAKES = [
    # Names that would break the sentence into lines, or fill the screen.
    ("se\neds", 1, {"setting": "'se\\neds'"}),
    ("speed", {"x" * 500: 1}, {"setting": f"speed.'{'x' * 95} ..."}),
    ("runtime", {"devices": 2, "device": "cuda:1"}, {"setting": "runtime.device", "value": "cuda:1"}),
    ("seeds", [10**30], {"setting": "seeds[0]", "value": 10**30}),
    ("systems.teacher", {5: 3}, {"setting": "a name in systems.teacher", "value": 5, "allowed": "text"}),
    ("recipe.dataset.train", [3], {"setting": "recipe.dataset.train[0]", "value": 3}),
    ("decodes", [3], {"setting": "decodes[0]", "value": 3}),
    ("systems.teacher.model.heads", 3, {"setting": "systems.teacher.model.dim", "value": 32}),
    ("systems.BigConfig.family", "lvm", {"setting": "a name in systems", "value": "BigConfig", "mentions": ("100",)}),
    ("systems.lehrer\n.family", "lvm", {"setting": "a name in systems", "value": "lehrer\n"}),
    (f"systems.{'a' * 101}.family", "lvm", {"setting": "a name in systems", "mentions": ("100",)}),
    ("speed.protocols", ["tpu"], {"setting": "speed.protocols[0]", "value": "tpu", "nearest": "gpu"}),
    ("systems.teacher.training", {"patience": 3}, {"setting": "systems.teacher.training.patience", "value": 3}),
    (
        "systems.teacher.training",
        {"batch_tokens": 500, "accumulate": 501},
        {"setting": "systems.teacher.training.accumulate", "value": 501},
    ),
    (
        "systems.teacher.training",
        {"keep": "last", "average_last": 9},
        {"setting": "systems.teacher.training.average_last", "value": 9},
    ),
    ("systems.teacher.training.betas", [1.5, 2], {"setting": "systems.teacher.training.betas[0]", "value": 1.5}),
    ("systems.teacher.training.betas", [0.9], {"setting": "systems.teacher.training.betas[1]", "problem": "missing"}),
    (
        "systems.score.objective",
        {"pre_update_probability": 0, "pre_update_after": 0.9},
        {"setting": "systems.score.objective.pre_update_after", "value": 0.9},
    ),
    ("systems.score", {"model": {"start": "random"}, "init_from": "lvm"}, {"setting": "systems.score.init_from"}),
    (
        "systems.score",
        {"model": {"start": "random"}, "initial_weights": "mine.safetensors"},
        {"setting": "systems.score.initial_weights", "value": "mine.safetensors"},
    ),
    (
        "systems.lvm.objective",
        {"kl_budget": 0.5, "budget_end": 0.6},
        {"setting": "systems.lvm.objective.budget_end", "value": 0.6},
    ),
    (
        "systems.lvm.objective",
        {"kl_budget": 0, "budget_hold": 0.3},
        {"setting": "systems.lvm.objective.budget_hold", "value": 0.3},
    ),
    ("systems.lvm", FROM_TEACHER | {"initial_weights": "mine.safetensors"}, {"setting": "systems.lvm.init_from"}),
    ("systems.lvm", FROM_TEACHER | {"model": {"dim": 64}}, {"setting": "systems.lvm.model.dim", "allowed": ("32",)}),
    ("systems.lvm", FROM_TEACHER | {"model": {"heads": 4}}, {"setting": "systems.lvm.model.heads", "allowed": ("2",)}),
    (
        "systems.lvm",
        FROM_TEACHER | {"model": {"norm": "post"}},
        {"setting": "systems.lvm.model.norm", "allowed": ("pre",)},
    ),
    ("systems.score.base", None, {"setting": "systems.score.base", "problem": "missing"}),
    ("systems.teacher.init_from", "teacher", {"setting": "systems", "problem": "a circle, teacher -> teacher"}),
    ("systems", LVM_CIRCLE, {"setting": "systems", "problem": "a circle, lvm -> ctc -> lvm"}),
    ("analyses.tokens.steps", [-1], {"setting": "analyses.tokens.steps[0]", "value": -1}),
    ("plugins", [".x"], {"setting": "plugins[0]", "value": ".x"}),
    (
        "recipe",
        {"dataset": {"languages": ["fr", "it"]}, "source": "fr", "target": "it"},
        {"setting": "recipe.dataset.languages", "value": ["fr", "it"]},
    ),
    (
        "recipe.dataset.generator.many",
        3,
        {"setting": "recipe.dataset.generator.many", "allowed": ("dev", "kinds", "seed", "test", "train")},
    ),
    (
        "recipe.dataset.languages",
        [False, "en"],
        {"setting": "recipe.dataset.languages[0]", "value": False, "mentions": ("in quotes",)},
    ),
]


@pytest.mark.parametrize(("place", "written", "fields"), MISTAKES)
def test_a_mistake_names_the_setting_that_is_wrong(place, written, fields):
    with refuses(**fields):
        load_smoke(changes_at(place, written))


TEACHER = {"system": "teacher", "search": "beam", "beam": 4}
LVM = {"system": "lvm", "search": "delta", "steps": 1}
# A decode, the setting of it that is wrong, and what the sentence says beside its name.
WRONG_DECODES = [
    (LVM | {"steps": 10**400}, "steps", {"nearest": None}),
    (LVM | {"steps": [1, True]}, "steps", {"value": True}),
    (LVM | {"search": "beam"}, "search", {"value": "beam", "allowed": ("delta", "latent-search", "prior-mean")}),
    (LVM | {"search": "dleta"}, "search", {"value": "dleta", "nearest": "delta"}),
    ({"system": "lvm", "search": "delta"}, "steps", {"hint": "add it"}),
    (
        LVM | {"search": "prior-mean"},
        "steps",
        {"problem": "no setting of search prior-mean but of delta, energy, latent-search, score"},
    ),
    ({"system": "lvm", "search": "prior-mean", "engine": "ctranslate2"}, "engine", {"value": "ctranslate2"}),
    (LVM | {"engine": "onnxruntime", "stop_threshold": 0.1}, "engine", {"value": "onnxruntime"}),
    (TEACHER | {"system": "teach"}, "system", {"value": "teach", "nearest": "teacher"}),
    (TEACHER | {"search": "greedy"}, "beam", {"mentions": ("ctc-beam",)}),
    # A list where only text may stand.
    (TEACHER | {"search": ["beam"]}, "search", {"value": ["beam"], "allowed": "text"}),
    (TEACHER | {"engine": "eager-int8"}, "engine", {"value": "eager-int8", "nearest": "eager"}),
    (TEACHER | {"engine": "onnx"}, "engine", {"mentions": ("eager", "ctranslate2-int8", "cuda_graphs-bfloat16")}),
    (TEACHER | {"engine": "ctranslate2-int4"}, "engine", {"nearest": "ctranslate2-int8"}),
    (TEACHER | {"engine": []}, "engine", {"value": [], "allowed": "a length of 1 or more"}),
    (TEACHER | {"engine": ["eager", "eager"]}, "engine", {"value": ["eager", "eager"], "allowed": "each once"}),
    (TEACHER | {"beam": 0}, "beam", {"value": 0}),
    (TEACHER | {"beam": []}, "beam", {"value": []}),
    (TEACHER | {"splits": ["test", "test"]}, "splits", {"value": ["test", "test"]}),
    (TEACHER | {"splits": []}, "splits", {"value": []}),
    (TEACHER | {"tune": []}, "tune", {"value": [], "allowed": "a length of 1 or more"}),
    (TEACHER | {"tune": [1, 2]}, "tune[0]", {"value": 1, "allowed": "text"}),
    (TEACHER | {"length_penalty": 1.0, "tune": {"length_penalty": [0.8, 1.0]}}, "length_penalty", {"value": 1.0}),
    (TEACHER | {"tune": {"length_penalty": [0.8, 0.8]}}, "tune.length_penalty", {"value": [0.8, 0.8]}),
    (TEACHER | {"length_penalty": float("inf")}, "length_penalty", {"value": float("inf")}),
]


@pytest.mark.parametrize(("decode", "setting", "fields"), WRONG_DECODES)
def test_a_wrong_setting_of_a_decode_is_named_with_its_place(decode, setting, fields):
    with refuses(setting=f"decodes[0].{setting}", **fields):
        load_smoke({"decodes": [decode]})


def test_two_decodes_of_one_name_are_refused():
    with refuses(setting="decodes", problem="lvm has two named delta-1"):
        load_smoke({"decodes": [LVM | {"steps": [1, 1]}]})


@pytest.mark.parametrize(
    ("defaults", "decode", "fields"),
    [
        ({"engine": "eagre"}, {}, {"setting": "decode_defaults.engine", "value": "eagre", "nearest": "eager"}),
        # An engine that the decode itself does not name.
        (
            {"engine": ["eager", "onnxruntime-int8"]},
            {},
            {"setting": "decode_defaults.engine", "mentions": ("decodes[0]", "system teacher", "search beam")},
        ),
        ({"engine": "eager"}, {"engine": "onnxruntime-int8"}, {"setting": "decodes[0].engine"}),
        ({"tune_by": "blue"}, {"tune": ["length_penalty"]}, {"setting": "decode_defaults.tune_by", "nearest": "bleu"}),
        (
            {"tune_by": "bleu"},
            {"tune": ["length_penalty"], "tune_by": "blue", "name": "own"},
            {"setting": "decodes[0].tune_by", "value": "blue", "nearest": "bleu"},
        ),
    ],
)
def test_a_wrong_field_is_named_where_it_is_written_for_one_decode_or_for_all(defaults, decode, fields):
    with refuses(**fields):
        load_smoke({"decode_defaults": defaults, "decodes": [TEACHER | decode]})


@pytest.mark.parametrize("engine", ["cuda_graphs", "ctranslate2-float16"])
def test_a_machine_without_the_gpu_that_an_engine_needs_is_refused(engine):
    with refuses(setting="runtime.device", value="cpu", mentions=(engine,)):
        load_smoke({"decodes": [TEACHER | {"engine": engine}], "runtime": {"device": "cpu"}})


def test_a_made_name_that_is_too_long_for_files_is_refused():
    given = {"beam": 2, "name": "n" * 95, "length_penalty": [0.5, 0.75]}
    decode = {"system": "teacher", "search": "beam"} | given
    with refuses(setting="decodes[0].name", value=given["name"] + "-penalty0.5"):
        load_smoke({"decodes": [decode]})
    load_smoke({"decodes": [decode | {"length_penalty": 0.5}]})


def readme() -> tuple[dict[str, Any], dict[str, Any], str]:
    """README's file for own text, the lines for larger networks, and all of its text."""
    text = (CONFIG_FOLDER.parent / "README.md").read_text(encoding="utf-8")
    mine, larger = (yaml.safe_load(block.split("```")[0]) for block in text.split("```yaml")[1:3])
    return mine, larger, text


def test_the_readmes_own_text_file_is_valid():
    mine, larger, text = readme()
    plan = Plan(load(mine))
    assert plan.loaded.dataset.own_files(("de", "en")) == ["my.de", "my.en"]
    assert plan.report == "results/mine/report"
    # Lines beside names and the description.
    block = text.split("```yaml")[1].split("```")[0].strip().splitlines()
    names = [line for line in block if re.match(r" *(experiment|description|name|#)", line)]
    assert len(block) - len(names) <= 10 and "null" not in "".join(block)
    shipped = load_experiment("recommended")
    assert plan.loaded.systems == shipped.systems and plan.loaded.decodes == shipped.decodes
    large = load({**mine, **larger})
    assert {system.model.dim for name, system in large.systems.items() if name != "lm"} == {512}
    assert all(isinstance(large.systems[name].training.max_steps, AutoStepsConfig) for name in larger["systems"])


def test_the_readmes_table_has_the_sizes_that_follow_from_a_corpus():
    rows = re.findall(r"^\| ([\d,]+|5 million) \| ([\d,]+) \| ([\d,]+) \|$", readme()[2], re.MULTILINE)
    assert len(rows) == 3
    shipped = load_experiment("recommended")
    for pairs, subwords, updates in rows:
        pairs = int(pairs.replace(" million", "000000").replace(",", ""))
        # Ten subwords and the end symbol.
        sized = shipped.sized(pairs, 11 * pairs)
        assert f"{sized.config.recipe.subwords.vocabulary_size:,}" == subwords
        for name in ("teacher", "one-pass"):
            assert f"{round(sized.systems[name].training.max_steps, -2):,}" == updates


OWN = {"name": "mine", "languages": ["de", "en"], "split": {"method": "connected-groups", "dev": 5, "test": 5}}


TEXTS = {"texts": {"de": "my.de", "en": "my.en"}}
TABLE = {"table": "my.tsv", "columns": {"de": 0, "en": 1}}


def own_dataset(**settings: Any) -> DatasetConfig:
    """The user's own dataset with these settings, as an experiment has it."""
    recipe = {"name": "mine", "dataset": OWN | {"train": [TEXTS]} | settings, "source": "de", "target": "en"}
    return load(SMOKE | {"recipe": recipe}).dataset


METHODS = ("connected-groups", "every-nth")


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (
            {"split": {"method": "every-nht", "every": 10}},
            {"setting": "split.method", "value": "every-nht", "allowed": METHODS, "nearest": "every-nth"},
        ),
        ({"split": {"every": 10}}, {"setting": "split.method", "problem": "missing", "allowed": METHODS}),
        ({"split": {"methud": "every-nth", "every": 10}}, {"setting": "split.methud", "nearest": "method"}),
        ({"split": {"method": "every-nth", "evry": 10}}, {"setting": "split.evry", "nearest": "every"}),
        ({"split": {"method": "every-nth", "dev": 10}}, {"setting": "split.dev", "problem": UNKNOWN}),
        (
            {"split": {"method": "every-nth", "every": 10, "key_language": "de"}},
            {"setting": "split.key_language", "problem": UNKNOWN},
        ),
        ({"test": [TEXTS]}, {"setting": "split.method", "value": "connected-groups", "mentions": ("test",)}),
        ({"dev": [TEXTS]}, {"setting": "split.method", "value": "connected-groups", "mentions": ("dev",)}),
        ({"train": [TEXTS | TABLE]}, {"setting": "train[0].table", "value": "my.tsv", "problem": "texts is set too"}),
        ({"train": [TEXTS | {"header": True}]}, {"setting": "train[0].header", "value": True, "mentions": ("table",)}),
        ({"train": [TEXTS | {"quoted": True}]}, {"setting": "train[0].quoted", "value": True, "mentions": ("table",)}),
        (
            {"train": [TABLE | {"markup": "sgm"}]},
            {"setting": "train[0].markup", "value": "sgm", "mentions": ("table",)},
        ),
        ({"train": [{"texts": None, "table": None}]}, {"setting": "train[0].texts", "problem": "missing"}),
        ({"train": [{"tabel": "my.tsv", "columns": {}}]}, {"setting": "train[0].tabel", "nearest": "table"}),
    ],
)
def test_a_part_or_a_split_names_the_setting_that_is_wrong(settings, fields):
    with refuses(**fields | {"setting": f"recipe.dataset.{fields['setting']}"}):
        own_dataset(**settings)


def test_test_sets_of_a_dataset_stand_behind_the_test_of_a_split_by_groups():
    assert own_dataset(test={"official": [TEXTS]}).test_sets == ("test", "official")


@pytest.mark.parametrize(("part", "other"), [(TEXTS, "table"), (TABLE, "texts")])
def test_null_leaves_a_part_to_its_other_kind(part, other):
    assert own_dataset(train=[part | {other: None}]) == own_dataset(train=[part])


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ({"texts": {"de": "my.de"}}, {"setting": "train[0].texts of dataset mine", "hint": "add en"}),
        ({"table": "my.tsv", "columns": {"en": 0}}, {"setting": "train[0].columns of dataset mine", "hint": "add de"}),
        ({"texts": {"de": "a {b}.de", "en": "my.en"}}, {"setting": "recipe.dataset.train[0].texts.de"}),
        ({"texts": {"de": "", "en": "my.en"}}, {"setting": "recipe.dataset.train[0].texts.de"}),
        (
            {"texts": {"de": 3, "en": "my.en"}},
            {"setting": "recipe.dataset.train[0].texts.de", "value": 3, "allowed": "a path, or a list of paths"},
        ),
        ({"texts": {"de": None, "en": "my.en"}}, {"setting": "recipe.dataset.train[0].texts.de", "value": None}),
        ({"texts": {"de": ["my.de", 3], "en": "my.en"}}, {"setting": "recipe.dataset.train[0].texts.de[1]"}),
        (
            {"texts": {"de": "https://some.where/my.de", "en": "my.en"}},
            {
                "setting": "recipe.dataset.train[0].texts.de",
                "value": "https://some.where/my.de",
                "mentions": ("files",),
            },
        ),
        (
            {"table": "ftp://some.where/my.tsv", "columns": {"de": 0, "en": 1}},
            {"setting": "recipe.dataset.train[0].table", "value": "ftp://some.where/my.tsv", "mentions": ("files",)},
        ),
    ],
)
def test_texts_that_no_rule_can_read_are_refused_before_anything_runs(part, fields):
    with refuses(**fields):
        load(SMOKE | {"recipe": {"name": "mine", "dataset": OWN | {"train": [part]}, "source": "de", "target": "en"}})


def test_a_split_may_take_sentences_of_more_characters_than_a_model_has_positions():
    """Encoding counts their subwords."""
    dataset = OWN | {"train": [{"texts": {"de": "my.de", "en": "my.en"}}], "split": OWN["split"] | {"longest": 500}}
    recipe = {"name": "mine", "dataset": dataset, "source": "de", "target": "en"}
    systems = {"teacher": SMOKE["systems"]["teacher"] | {"model": {"max_positions": 128}}}
    decodes = [{"system": "teacher", "search": "greedy"}]
    loaded = load({"experiment": "mine", "recipe": recipe, "systems": systems, "decodes": decodes})
    assert loaded.dataset.split.longest > loaded.systems["teacher"].model.max_positions


def test_long_values_are_cut_in_messages():
    with pytest.raises(ConfigError) as refused:
        load_smoke({"seeds": [["a"] * 1000]})
    message = str(refused.value)
    assert len(message) < 250 and "['a', 'a', " in message


@pytest.mark.parametrize("key", ["systems", "decodes", "recipe", "experiment"])
def test_a_null_is_refused_by_check_as_by_snakemake(key, tmp_path):
    """Snakemake lays a configuration file over `config.yaml` so that a null stays one."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"experiment: mine\nextends: smoke\n{key}:\n".replace("experiment: mine\n" * (key == "experiment"), "")
    )
    configuration = yaml.safe_load(file.read_text())
    with pytest.raises(ConfigError) as of_snakemake:
        load(read_yaml(CONFIG_FOLDER / "config.yaml") | configuration)
    with pytest.raises(ConfigError) as of_check:
        read_configuration(str(file))
    assert str(of_check.value) == str(of_snakemake.value) and of_check.value.setting == key


def test_a_folder_is_no_configuration(tmp_path):
    with pytest.raises(ArtifactError, match="is a folder") as refused:
        read_configuration(str(tmp_path))
    assert refused.value.path == str(tmp_path)


def test_experiments_that_do_not_exist_or_are_not_named():
    with refuses(nearest="demo"):
        load({"experiment": "dmo"})
    with pytest.raises(ConfigError, match=r"^experiment: missing"):
        load({})
    with pytest.raises(ConfigError, match=r"^recipe.name: missing"):
        load({"experiment": "mine", "recipe": {"dataset": "toy"}})


def problem_of_file(text: str | bytes, folder: Path) -> str:
    path = folder / "mine.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ArtifactError) as refused:
        read_yaml(path)
    assert "\n" not in str(refused.value) and refused.value.path == str(path)
    return refused.value.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1", "not valid YAML"),
        ("a: 1\nb: c: d\n", "line 2"),
        ("- a\n- b\n", "no settings"),
        (b"a: \xff\xfe", "invalid start byte"),
        ("seeds: [1]\na: 2\nseeds: [2]\n", '"seeds" twice in one section, in lines 1 and 3'),
        ("a: " + "[" * 3000, "nests too deeply"),
        ("a: {yes: 1, true: 2}", '"yes" twice'),
        ("a: !!bool x", "'x'"),
        ("a: 2024-13-45", "month must be in 1..12"),
        ("a: " + "9" * 5000, "digits"),
    ],
    ids=range(10),
)
def test_files_that_are_no_configuration(text, problem, tmp_path):
    assert problem in problem_of_file(text, tmp_path)


def test_paths_that_are_no_configuration(tmp_path):
    with pytest.raises(ArtifactError, match="is a folder"):
        read_yaml(tmp_path)
    with pytest.raises(ArtifactError, match="exist"):
        read_yaml(tmp_path / "nothing.yaml")


def test_a_name_that_a_section_says_anew_beside_what_it_takes_in_is_not_twice(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("x: {y: {a: &a {k: 1}, b: &b {<<: *a, k: 3}}}\nc: {<<: *b}\nd: {1: a, '1': b}\n")
    assert read_yaml(file) == {"x": {"y": {"a": {"k": 1}, "b": {"k": 3}}}, "c": {"k": 3}, "d": {1: "a", "1": "b"}}


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!!python/tuple"])
def test_tags_that_build_objects_are_refused_and_nothing_runs(tag, tmp_path):
    trace = tmp_path / "trace"
    message = problem_of_file(f"experiment: {tag} ['touch {trace}']\n", tmp_path)
    assert "python" in message and not trace.exists()


@pytest.mark.parametrize("name", experiment_names())
def test_shipped_experiments_are_valid_and_stay_so_when_written_and_read(name):
    loaded = load_experiment(name)
    reloaded = load(
        yaml.safe_load(yaml.safe_dump(loaded.config.model_dump(mode="json", exclude_unset=True), sort_keys=False))
    )
    assert Plan(reloaded).settings_report() == Plan(loaded).settings_report()


@pytest.mark.parametrize("name", experiment_names())
def test_expected_figures_name_rows_of_the_experiment(name):
    loaded = load_experiment(name)
    names = {decode.name for decode in loaded.decodes}
    names |= {f"{decode.system}/{decode.name}" for decode in loaded.decodes}
    assert set(loaded.config.report.expected) <= names


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from(["seeds", "systems", "decodes", "recipe", "distillation", "speed", "runtime", "mirrors"]),
)
def test_whatever_is_given_either_loads_or_is_refused_in_a_sentence(value, key):
    try:
        load({**SMOKE, key: value})
    except ConfigError as error:
        assert str(error)


@pytest.mark.parametrize("name", ["raw", "../x", "distilled-by-teacher", "A b", "mine\n"])
def test_names_of_distilled_texts_that_would_clash_or_leave_the_folder_are_refused(name):
    with refuses(setting="a name in recipe.distilled"):
        load_experiment("demo", recipe={"distilled": {name: "mine.en"}})


def test_engines_make_decodes_of_their_own_and_leave_ours_as_they_were():
    rows = [
        {"system": "teacher", "search": "beam", "beam": 1},
        {"system": "teacher", "search": "beam", "beam": 4, "engine": ["eager", "ctranslate2", "ctranslate2-int8"]},
        {"system": "teacher", "search": "greedy", "engine": "ctranslate2"},
        {"system": "teacher", "search": "beam", "beam": 2, "name": "fast", "engine": "ctranslate2"},
    ]
    plan = Plan(load_smoke({"decodes": rows}))
    names = [decode.name for decode in plan.loaded.decodes]
    assert names == [
        "beam-1",
        "beam-4",
        "beam-4-ctranslate2-float32",
        "beam-4-ctranslate2-int8",
        "greedy-ctranslate2-float32",
        "fast",
    ]
    pytorch, other = plan.loaded.decodes[1], plan.loaded.decodes[3]
    assert pytorch.settings == {"search": "beam"} | pytorch.values.model_dump(mode="json")
    assert other.settings == pytorch.settings | {"engine": "ctranslate2", "compute_type": "int8"}
    assert (pytorch.engine, other.engine) == ("eager", "ctranslate2")
    assert plan.exported_file("teacher", 1, plan.export_of(pytorch)).endswith("teacher/seed-1/bundle/bundle.json")
    assert plan.exported_file("teacher", 1, plan.export_of(other)).endswith("teacher/seed-1/ctranslate2/bundle.json")
    assert plan.exported_to("ctranslate2") == ["teacher"]
    # The examples show our own translations.
    assert '"beam": 4' in plan.settings_analysis() and "ctranslate2" not in plan.settings_analysis()
