"""What a wrong configuration is told: the setting, its value, what is allowed, the nearest valid name."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.cli import read_configuration
from workflow_src.config import ConfigError, Plan, load, load_experiment
from workflow_src.config.compose import CONFIG_FOLDER, experiment_names, merge, read_yaml
from workflow_src.config.sizes import AutoStepsConfig

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")


def told(changes: dict[str, Any], base: dict[str, Any] = SMOKE) -> str:
    """The sentence that the smoke experiment with `changes` laid over it is refused with."""
    with pytest.raises(ConfigError) as refused:
        load(merge(copy.deepcopy(base), changes))
    message = str(refused.value)
    assert "\n" not in message and message.endswith((".", "?")) or "; change it in the configuration" in message
    return message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"sedes": [1]}, ['unknown setting "sedes" in the configuration', "seeds", 'Did you mean "seeds"?']),
        ({"zzz": 1}, ['unknown setting "zzz"', "allowed: "]),
        (
            {"systems": {"lvm": {"training": {"max_step": 5}}}},
            ['unknown setting "max_step" in systems.lvm.training', "warmup_steps", 'Did you mean "max_steps"?'],
        ),
        (
            {"systems": {"lvm": {"objective": {"kl_budgets": 5}}}},
            ["systems.lvm.objective", 'Did you mean "kl_budget"?'],
        ),
        ({"systems": {"lvm": {"model": {"layer": 5}}}}, ["systems.lvm.model", 'Did you mean "layers"?']),
        ({"recipe": {"subwords": {"vocab_size": 5}}}, ["recipe.subwords", "vocabulary_size"]),
        ({"recipe": {"normalisation": {"lowercased": True}}}, ["recipe.normalisation", 'Did you mean "lowercase"?']),
        ({"recipe": {"dataset": {"generators": {}}}}, ["recipe.dataset", 'Did you mean "generator"?']),
        ({"runtime": {"devise": "cpu"}}, ["runtime", 'Did you mean "device"?']),
        ({"speed": {"repeat": 1}}, ["in speed", 'Did you mean "repeats"?']),
        ({"report": {"tittle": "x"}}, ["in report", 'Did you mean "title"?']),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest(changes, parts):
    message = told(changes)
    assert not [part for part in parts if part not in message], message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"seeds": "many"}, ["setting seeds ", "'many'"]),
        ({"runtime": {"devices": 0}}, ["setting runtime.devices has the value 0", "above 0"]),
        (
            {"runtime": {"devices": 2, "device": "cuda:1"}},
            ["setting runtime: device cuda:1 names one GPU, devices is 2; say cuda or auto"],
        ),
        (
            {"systems": {"lvm": {"training": {"explode_factor": 1}}}},
            ["setting systems.lvm.training.explode_factor has the value 1", "above 1"],
        ),
        ({"systems": {"lvm": {"training": {"max_skipped": -1}}}}, ["systems.lvm.training.max_skipped", "-1"]),
        ({"seeds": []}, ["setting seeds ", "[]", "at least 1"]),
        ({"recipe": {"limits": {"train": True}}}, ["recipe.limits has the value {'train': True}", "whole number"]),
        ({"seeds": [10**30]}, ["setting seeds", "must be below"]),
        ({"systems": {"teacher": {"training": {"max_steps": 10**400}}}}, ["max_steps has", "a smaller number"]),
        ({"recipe": {"subwords": {"vocabulary_size": 10**400}}}, ["vocabulary_size has", "a smaller number"]),
        ({"decodes": [{"system": "lvm", "search": "delta", "steps": 10**400}]}, ["decodes[0].steps", "a smaller"]),
        ({"distillation": {"teacher": {"seed": -1}}}, ["distillation.teacher.seed has the value -1", "0 or more"]),
        ({"distillation": {"teacher": {"seed": 99}}}, ["distillation.teacher.seed is 99; allowed: 1 (seeds)"]),
        ({"runtime": {"device": "cuda:01"}}, ["runtime.device", "'cuda:01'"]),
        ({5: 3}, ["the configuration: the name 5 is no text"]),
        ({"systems": {"teacher": {"family": "a\nb" + "x" * 400}}}, ['unknown family "a\\nbxxx', 'xxx..."']),
        ({"seeds": [True]}, ["setting seeds has the value [True]: it must be a whole number"]),
        ({"systems": {"teacher": {"training": {"max_steps": True}}}}, ["max_steps has the value True", "whole number"]),
        ({"systems": {"teacher": {"training": {"learning_rate": False}}}}, ["the value False", "must be a number"]),
        (
            {"decodes": [{"system": "lvm", "search": "delta", "steps": [1, True]}]},
            ["decodes[0].steps", "True"],
        ),
        ({"seeds": [1, 1]}, ["setting seeds has the value [1, 1]: it has 1 twice; name every one once"]),
        ({"systems": {"teacher": {"training": {"max_steps": -1}}}}, ["systems.teacher.training.max_steps", "-1"]),
        (
            {"systems": {"teacher": {"training": {"learning_rate": 0}}}},
            ["learning_rate has the value 0", "above 0"],
        ),
        ({"systems": {"teacher": {"training": {"schedule": "cosine"}}}}, ["'cosine'", "inverse-sqrt", "polynomial"]),
        (
            {"systems": {"teacher": {"model": {"dropout": 1.5}}}},
            ["systems.teacher.model.dropout", "1.5", "below 1"],
        ),
        ({"systems": {"teacher": {"model": {"heads": 3}}}}, ["dim 32 must be a multiple of heads 3"]),
        (
            {"systems": {"teacher": {"training": {"batch_tokens": "lots"}}}},
            ["batch_tokens", "'lots'", "a whole number"],
        ),
        ({"recipe": {"source": "English"}}, ["recipe.source", "'English'"]),
        ({"recipe": {"target": "de"}}, ["source and target are both de; they must be different languages"]),
        ({"recipe": {"subwords": {"vocabulary_size": 2}}}, ["vocabulary_size", "above 8"]),
        ({"runtime": {"device": "tpu"}}, ["runtime.device", "'tpu'"]),
        (
            {"report": {"remove_repetitions": True}},
            ["report.remove_repetitions has the value True", "subwords, words or none", "true meant is now words"],
        ),
        ({"report": {"remove_repetitions": False}}, ["the value False", "false meant is now none"]),
        (
            {"report": {"remove_repetitions": "subword"}},
            ["report.remove_repetitions", "'subwords'", "'words'", "'none'"],
        ),
        ({"report": {"expected_convention": "intl"}}, ["report.expected_convention", "intl-lowercase"]),
        ({"runtime": {"precision": "float8"}}, ["runtime.precision", "'float8'", "bfloat16"]),
        (
            {"systems": {"Big Model": {"family": "lvm"}}},
            ['systems: the name "Big Model" cannot be used: a system\'s name is made of small letters'],
        ),
        # A name that pydantic gives to an alternative of a union, too.
        (
            {"systems": {"BigConfig": {"family": "lvm"}}},
            ['systems: the name "BigConfig" cannot be used: a system\'s name is made of small letters'],
        ),
        (
            {"systems": {"str": {"family": "lvm", "preset": "miniature", "training": {"max_steps": "many"}}}},
            ["setting systems.str.training.max_steps has the value 'many'"],
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(changes, parts):
    message = told(changes)
    assert not [part for part in parts if part not in message], message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"recipe": {"dataset": "totoeba"}}, ['unknown dataset "totoeba"', "multi30k", 'Did you mean "tatoeba"?']),
        ({"recipe": {"source": "fr"}}, ['unknown language "fr" in dataset toy-smoke', "de, en"]),
        ({"systems": {"teacher": {"family": "transfomer"}}}, ["systems.teacher", 'Did you mean "transformer"?']),
        ({"systems": {"teacher": {"preset": "tinny"}}}, ['unknown preset "tinny"', 'Did you mean "tiny"?']),
        (
            {"systems": {"score": {"base": "lvn"}}},
            ['unknown system "lvn" in systems.score.base', 'Did you mean "lvm"?'],
        ),
        ({"systems": {"lvm": {"init_from": "teecher"}}}, ["systems.lvm.init_from", 'Did you mean "teacher"?']),
        (
            {"systems": {"lvm": {"data": "distilled-by-teache"}}},
            ['unknown system "teache" in systems.lvm.data', 'Did you mean "teacher"?'],
        ),
        ({"systems": {"lvm": {"data": "mine"}}}, ['systems.lvm.data is "mine"', "recipe.distilled"]),
        ({"distillation": {"teechers": {}}}, ['unknown system "teechers" in distillation']),
        ({"distillation": {"teacher": {"beam": 0}}}, ["distillation.teacher.beam is 0; it must be 1 or more"]),
        (
            {"distillation": {"teacher": {"beams": 3}}},
            ['unknown setting "beams"', "max_length_ratio", 'Did you mean "beam"?'],
        ),
        ({"distillation": {"teacher": {"rescorer": "ctc"}}}, ['unknown setting "rescorer" in distillation.teacher']),
        ({"decodes": [{"system": "teach", "search": "greedy"}]}, ['unknown system "teach" in decodes[0]']),
        (
            {"decodes": [{"system": "lvm", "search": "beam", "beam": 4}]},
            ['unknown search "beam" in decodes[0] (system lvm)', "delta, latent-search, prior-mean"],
        ),
        (
            {"decodes": [{"system": "lvm", "search": "dleta", "steps": 1}]},
            ['unknown search "dleta" in decodes[0] (system lvm)', 'Did you mean "delta"?'],
        ),
        ({"extends": "smok"}, ['unknown experiment "smok"', 'Did you mean "smoke"?']),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(changes, parts):
    message = told(changes)
    assert not [part for part in parts if part not in message], message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"systems": {"score": {"base": None}}}, ["systems.score", "needs base", "family lvm"]),
        ({"systems": {"score": {"base": "teacher"}}}, ["systems.score.base is teacher", "must be of family lvm"]),
        ({"systems": {"teacher": {"base": "lvm"}}}, ["systems.teacher", "remove the setting base"]),
        ({"systems": {"lvm": {"data": "distilled-by-score"}}}, ["circle", "lvm -> score -> lvm"]),
        ({"systems": {"teacher": {"init_from": "teacher"}}}, ["circle", "teacher -> teacher"]),
        ({"systems": {"lvm": {"data": "distilled-by-energy"}, "energy": {"base": "lvm"}}}, ["circle"]),
        ({"systems": {"score": {"model": {"latent_dim": 4}}}}, ["systems.score", "4", "its base lvm", "must agree"]),
        ({"systems": {"lvm": {"training": {"max_steps": 0}}}}, ["max_steps is 0 without initial_weights"]),
        ({"decodes": [{"system": "lvm", "search": "delta"}]}, ["decodes[0]", "needs steps"]),
        ({"decodes": [{"system": "lvm", "search": "prior-mean", "steps": 1}]}, ["takes no steps"]),
        ({"decodes": [{"system": "teacher", "search": "beam"}]}, ["decodes[0]", "add beam"]),
        ({"decodes": [{"system": "teacher", "search": "greedy", "beam": 2}]}, ["remove beam"]),
        (
            {"decodes": [{"system": "lvm", "search": "prior-mean", "engine": "ctranslate2"}]},
            ["decodes[0]: engine ctranslate2 translates with greedy, beam only, not with prior-mean"],
        ),
        (
            {"decodes": [{"system": "teacher", "search": "greedy", "compute_type": "int8"}]},
            ["decodes[0]: compute_type belongs to engine ctranslate2"],
        ),
        (
            {
                "decodes": [
                    {"system": "lvm", "search": "delta", "steps": 8, "engine": "onnxruntime", "stop_threshold": 0.1}
                ]
            },
            ["decodes[0]: engine onnxruntime cannot compute search delta with stop_threshold; remove one of the two"],
        ),
        (
            {"decodes": [{"system": "teacher", "search": "greedy", "engine": "onnx"}]},
            ['unknown engine "onnx" in decodes[0]; allowed: continuum, ctranslate2, onnxruntime'],
        ),
        ({"speed": {"protocols": []}}, ["speed.protocols", "at least 1"]),
        ({"speed": {"protocols": ["tpu"]}}, ["speed.protocols[0]", "'tpu'", "cpu-all-threads"]),
        ({"decodes": [{"system": "teacher", "search": "beam", "beam": 0}]}, ["decodes[0].beam is 0", "1 or more"]),
        ({"decodes": [{"system": "lvm", "search": "delta", "steps": [1, 1]}]}, ['two decodes named "delta-1"']),
    ],
)
def test_systems_and_decodes_that_do_not_fit_are_told_with_the_remedy(changes, parts):
    message = told(changes)
    assert not [part for part in parts if part not in message], message


def readme() -> tuple[dict[str, Any], dict[str, Any], str]:
    """README's file for own text, the lines for larger networks, and all of its text."""
    text = (CONFIG_FOLDER.parent / "README.md").read_text(encoding="utf-8")
    mine, larger = (yaml.safe_load(block.split("```")[0]) for block in text.split("```yaml")[1:3])
    return mine, larger, text


def test_the_readmes_own_text_file_is_valid():
    mine, larger, text = readme()
    own = Plan(load(mine))
    assert own.loaded.dataset.own_files(("de", "en")) == ["my.de", "my.en"]
    assert own.report == "results/mine/report"
    # Lines beside names and the description.
    block = text.split("```yaml")[1].split("```")[0].strip().splitlines()
    named = [line for line in block if re.match(r" *(experiment|description|name|#)", line)]
    assert len(block) - len(named) <= 10 and "null" not in "".join(block)
    shipped = load_experiment("recommended")
    assert own.loaded.systems == shipped.systems and own.loaded.decodes == shipped.decodes
    large = load({**mine, **larger})
    assert {system.model.dim for name, system in large.systems.items() if name != "lm"} == {512}
    assert all(isinstance(large.systems[name].training.max_steps, AutoStepsConfig) for name in larger["systems"])


def test_the_readmes_table_tells_the_sizes_that_follow_from_a_corpus():
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


TEACHER = {"system": "teacher", "search": "beam", "beam": 4}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"decodes": [TEACHER | {"splits": ["test", "test"]}]},
            "setting decodes[0].splits has the value ['test', 'test']: it has test twice; name every one once; ",
        ),
        (
            {"decodes": [TEACHER | {"splits": []}]},
            "setting decodes[0].splits has the value []: it is empty; it must have at least 1 entry; ",
        ),
        (
            {"decodes": [TEACHER | {"beam": []}]},
            "decodes[0].beam is an empty list; give one value or more, or remove the decode.",
        ),
        (
            {"decodes": [TEACHER | {"engine": "ctranslate2", "compute_type": []}]},
            "decodes[0].compute_type is an empty list; give one value or more, or remove the decode.",
        ),
        (
            {"decodes": [TEACHER | {"engine": "ctranslate2", "compute_type": "int4"}]},
            "decodes[0]: engine ctranslate2 computes in float32 or int8 or float16, not in int4; correct compute_type.",
        ),
        (
            {"decodes": [TEACHER | {"length_penalty": 1.0, "tune": {"length_penalty": [0.8, 1.0]}}]},
            "decodes[0].length_penalty is 1.0, and tune.length_penalty lists values to choose from; remove one of the ",
        ),
        (
            {"decodes": [TEACHER | {"tune": {"length_penalty": [0.8, 0.8]}}]},
            "setting decodes[0].tune.length_penalty has the value [0.8, 0.8]: it has 0.8 twice; name every one once; ",
        ),
        (
            {"decodes": [TEACHER | {"length_penalty": float("inf")}]},
            "decodes[0].length_penalty is inf; it must be a finite number, 0 or more.",
        ),
        ({"seeds": 1}, "setting seeds has the value 1: it must be a list, such as [a, b]; "),
        (
            {"systems": {"teacher": "hello"}},
            "setting systems.teacher has the value 'hello': it must be a section of `name: value` lines; ",
        ),
        ({"systems": {5: {}}}, "systems: the name 5 is no text; write it in quotes, or choose another."),
        (
            {"systems": {"lehrer\n": {"family": "transformer", "preset": "tiny"}}},
            'systems: the name "lehrer\\n" cannot be used: a system\'s name is made of small letters, digits, - and _.',
        ),
        (
            {"systems": {"a" * 101: {"family": "transformer", "preset": "tiny"}}},
            f'systems: the name "{"a" * 37}..." cannot be used: a name has at most 100 characters, and this one '
            "has 101.",
        ),
        (
            {"systems": {"teacher": {"training": {"keep": "average", "patience": 3}}}},
            "setting systems.teacher.training: patience is 3, and keep is average; say keep: best, or remove patience.",
        ),
        (
            {"systems": {"teacher": {"training": {"betas": [1.5, 2]}}}},
            "setting systems.teacher.training.betas[0] has the value 1.5: it must be below 1; ",
        ),
        (
            {"systems": {"teacher": {"training": {"betas": [0.9]}}}},
            "setting systems.teacher.training.betas has too few entries: entry 2 is missing; add it.",
        ),
        (
            {"systems": {"teacher": {"training": {"learning_rate": float("inf")}}}},
            "setting systems.teacher.training.learning_rate has the value inf: it must be a finite number; ",
        ),
        (
            {"systems": {"lvm": {"init_from": "teacher", "initial_weights": "mine.safetensors"}}},
            "setting systems.lvm: it starts from init_from and from initial_weights; remove one of them.",
        ),
        (
            {"systems": {"lvm": {"init_from": "teacher", "model": {"dim": 64}}}},
            "systems.lvm.model.dim is 64, its start teacher has 32; they must agree.",
        ),
        (
            {"systems": {"lvm": {"initial_weights": "{mine}.safetensors"}}},
            "setting systems.lvm.initial_weights has the value '{mine}.safetensors': paths may not have { or }; ",
        ),
        (
            {"runtime": {"device": "gpu"}},
            "setting runtime.device has the value 'gpu': it must be auto, cpu, cuda, or cuda:N for one of several; ",
        ),
        (
            {"speed": {"protocols": ["gpu", "gpu"]}},
            "setting speed.protocols has the value ['gpu', 'gpu']: it has gpu twice; name every one once; ",
        ),
        (
            {"analyses": {"tokens": {"steps": [-1]}}},
            "setting analyses.tokens.steps[0] has the value -1: it must be 0 or more; ",
        ),
        (
            {"plugins": [".x"]},
            "setting plugins[0] has the value '.x': a package is named as Python imports it, such as my_package; ",
        ),
        (
            {"distillation": {"lvm": {}}},
            "distillation.lvm: a system of family lvm cannot teach; name one of family transformer or seq2seq, or ",
        ),
        ({"extends": ["smoke", "demo"]}, "extends is ['smoke', 'demo']; it must name an experiment of "),
        ({"extends": ""}, "extends is ''; it must name an experiment of config/experiments/."),
        (
            {"recipe": {"dataset": {"generator": {"many": 3}}}},
            'unknown setting "many" in recipe.dataset.generator; allowed: dev, kinds, seed, test, train.',
        ),
        (
            {"recipe": {"dataset": {"generator": {"train": -5}}}},
            "setting recipe.dataset.generator.train has the value -5: it must be above 0; ",
        ),
        (
            {"recipe": {"dataset": {"languages": ["fr", "it"]}, "source": "fr", "target": "it"}},
            "setting recipe.dataset: a generated corpus is of de and en, not of fr and it.",
        ),
        (
            {"recipe": {"limits": {"train": 2**63}}},
            "setting recipe.limits has the value ",
        ),
        (
            {"recipe": {"normalisation": {"lowercase": True}}},
            "setting recipe.normalisation.lowercase leaves no capitals in outputs, and references as they are given "
            "have them; say references: normalised beside it, or references: given to score outputs so.",
        ),
        (
            {"recipe": {"dataset": {"languages": ["de", "de"]}}},
            "setting recipe.dataset.languages has the value ['de', 'de']: it has de twice; name every one once; ",
        ),
    ],
)
def test_one_sentence_says_what_is_wrong(changes, sentence):
    message = told(changes)
    assert message.startswith(sentence), message


OWN = {"name": "mine", "languages": ["de", "en"], "split": {"method": "connected-groups", "dev": 5, "test": 5}}


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"texts": {"de": "my.de"}}, "train[0].texts of dataset mine has no en; it has de. Add en."),
        ({"table": "my.tsv", "columns": {"en": 0}}, "train[0].columns of dataset mine has no de; it has en. Add de."),
        (
            {"texts": {"de": "a {b}.de", "en": "my.en"}},
            "setting recipe.dataset.train[0].texts.de has the value 'a {b}.de': paths may not have { or }; rename the ",
        ),
        (
            {"texts": {"de": "", "en": "my.en"}},
            "setting recipe.dataset.train[0].texts.de has the value '': it must name a file; ",
        ),
    ],
)
def test_texts_that_no_rule_can_read_are_refused_before_anything_runs(part, sentence):
    with pytest.raises(ConfigError) as refused:
        load(SMOKE | {"recipe": {"name": "mine", "dataset": OWN | {"train": [part]}, "source": "de", "target": "en"}})
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(("longest", "positions"), [(500, 501), (100, 101), (1, 2)])
def test_a_split_that_takes_longer_sentences_than_a_model_reads_is_refused(longest, positions):
    part = {"texts": {"de": "my.de", "en": "my.en"}}
    own = OWN | {"train": [part], "split": OWN["split"] | {"longest": longest}}
    recipe = {"name": "mine", "dataset": own, "source": "de", "target": "en"}

    def loaded(positions):
        systems = {"teacher": SMOKE["systems"]["teacher"] | {"model": {"max_positions": positions}}}
        decodes = [{"system": "teacher", "search": "greedy"}]
        return load({"experiment": "mine", "recipe": recipe, "systems": systems, "decodes": decodes})

    with pytest.raises(ConfigError) as refused:
        loaded(positions)
    said = str(refused.value)
    assert said.startswith(f"systems.teacher.model.max_positions is {positions}, and the split of dataset mine takes ")
    assert (
        f"of up to {longest} characters" in said
        and f"set split.longest of the dataset to {max(positions - 2, 1)}" in said
    )
    assert loaded(longest + 2).dataset.split.longest == longest
    # Own dev and test are looked at when they are encoded.
    whole = own | {"split": None, "dev": [part], "test": [part]}
    recipe["dataset"] = whole
    assert loaded(positions).dataset.split is None


def test_long_values_are_cut_in_messages():
    message = told({"seeds": [["a"] * 1000]})
    assert len(message) < 250 and message.startswith("setting seeds[0] has the value ['a', 'a', ")


@pytest.mark.parametrize("key", ["systems", "decodes", "recipe", "experiment"])
def test_a_null_is_refused_by_check_as_by_snakemake(key, tmp_path):
    """Snakemake lays a configuration file over `config.yaml` so that a null stays one."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"experiment: mine\nextends: smoke\n{key}:\n".replace("experiment: mine\n" * (key == "experiment"), "")
    )
    given = yaml.safe_load(file.read_text())
    with pytest.raises(ConfigError) as of_snakemake:
        load(read_yaml(CONFIG_FOLDER / "config.yaml") | given)
    with pytest.raises(ConfigError) as of_check:
        read_configuration(str(file))
    assert str(of_check.value) == str(of_snakemake.value) == f"missing setting {key}: add it to the configuration."


def test_a_folder_is_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match=f"{re.escape(str(tmp_path))} is a folder; give the name of an experiment or"):
        read_configuration(str(tmp_path))


def test_no_part_of_a_message_is_pydantics_own():
    message = told({"recipe": {"dataset": {"generator": 3}}})
    assert message.startswith("setting recipe.dataset.generator has the value 3: ")
    message = told({"decodes": [{"system": "lvm", "search": "delta", "steps": "many"}]})
    assert message.startswith("decodes[0].steps is 'many': ")


def test_experiments_that_do_not_exist_or_are_not_named():
    with pytest.raises(ConfigError, match='unknown experiment "dmo"; allowed: .*Did you mean "demo"'):
        load({"experiment": "dmo"})
    with pytest.raises(ConfigError, match="missing setting experiment"):
        load({})
    with pytest.raises(ConfigError, match=r"missing setting recipe.name"):
        load({"experiment": "mine", "recipe": {"dataset": "toy"}})


def test_parts_of_a_recipe_are_laid_over_a_shipped_experiment():
    loaded = load({"experiment": "smoke", "recipe": {"subwords": {"vocabulary_size": 250}}})
    assert loaded.config.recipe.subwords.vocabulary_size == 250
    assert loaded.config.recipe.name == "smoke"


def refused_file(text: str | bytes, folder: Path) -> str:
    path = folder / "mine.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as refused:
        read_yaml(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)
    return str(refused.value)


def test_files_that_are_no_configuration(tmp_path):
    assert "is not valid YAML" in refused_file("a: [1", tmp_path)
    assert "must hold settings" in refused_file("- a\n- b\n", tmp_path)
    assert "is not valid YAML" in refused_file(b"a: \xff\xfe", tmp_path)
    assert 'it has "seeds" twice in one section; remove one' in refused_file("seeds: [1]\na: 2\nseeds: [2]\n", tmp_path)
    assert "nests too deeply; check its brackets." in refused_file("a: " + "[" * 3000, tmp_path)
    with pytest.raises(ConfigError, match="is a folder; name a file."):
        read_yaml(tmp_path)
    with pytest.raises(ConfigError, match="nothing.yaml does not exist"):
        read_yaml(tmp_path / "nothing.yaml")


def test_a_name_that_a_section_says_anew_beside_what_it_takes_in_is_not_twice(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("x: {y: {a: &a {k: 1}, b: &b {<<: *a, k: 3}}}\nc: {<<: *b}\nd: {1: a, '1': b}\n")
    assert read_yaml(file) == {"x": {"y": {"a": {"k": 1}, "b": {"k": 3}}}, "c": {"k": 3}, "d": {1: "a", "1": "b"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {yes: 1, true: 2}", 'it has "yes" twice in one section'),
        ("a: !!bool x", "'x' is not what its tag says"),
        ("a: 2024-13-45", "is not valid YAML: month must be in 1..12"),
        ("a: " + "9" * 5000, "is not valid YAML: "),
    ],
)
def test_values_that_yaml_cannot_read_are_told_with_the_file(text, message, tmp_path):
    said = refused_file(text, tmp_path)
    assert message in said and "mine.yaml" in said


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!!python/tuple"])
def test_tags_that_build_objects_are_refused_and_nothing_runs(tag, tmp_path):
    trace = tmp_path / "trace"
    message = refused_file(f"experiment: {tag} ['touch {trace}']\n", tmp_path)
    assert "python" in message and not trace.exists()


@pytest.mark.parametrize("name", experiment_names())
def test_shipped_experiments_are_valid_and_stay_so_when_written_and_read(name):
    loaded = load_experiment(name)
    again = load(yaml.safe_load(yaml.safe_dump(loaded.config.model_dump(mode="json"), sort_keys=False)))
    assert Plan(again).settings_report() == Plan(loaded).settings_report()


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
    with pytest.raises(
        ConfigError, match=r"recipe\.distilled: the name .*: a distilled text is named by small letters"
    ):
        load_experiment("demo", recipe={"distilled": {name: "mine.en"}})


def test_engines_make_decodes_of_their_own_and_leave_ours_as_they_were():
    rows = [
        {"system": "teacher", "search": "beam", "beam": [1, 4]},
        {
            "system": "teacher",
            "search": "beam",
            "beam": 4,
            "engine": "ctranslate2",
            "compute_type": ["float32", "int8"],
        },
        {"system": "teacher", "search": "greedy", "engine": "ctranslate2"},
        {"system": "teacher", "search": "beam", "beam": 2, "name": "fast", "engine": "ctranslate2"},
    ]
    plan = Plan(load(merge(copy.deepcopy(SMOKE), {"decodes": rows})))
    names = [decode.name for decode in plan.loaded.decodes]
    assert names == [
        "beam-1",
        "beam-4",
        "beam-4-ctranslate2-float32",
        "beam-4-ctranslate2-int8",
        "greedy-ctranslate2-float32",
        "fast",
    ]
    own, other = plan.loaded.decodes[1], plan.loaded.decodes[3]
    assert own.settings == {"search": "beam"} | own.values.model_dump(mode="json")
    assert other.settings == own.settings | {"engine": "ctranslate2", "compute_type": "int8"}
    assert (own.engine, other.engine) == ("continuum", "ctranslate2")
    assert plan.decoded_with(own, 1).endswith("teacher/seed-1/bundle/bundle.json")
    assert plan.decoded_with(other, 1).endswith("teacher/seed-1/ctranslate2/bundle.json")
    assert plan.exported_to("ctranslate2") == ["teacher"]
    # The examples show our own translations.
    assert '"beam": 4' in plan.settings_analysis() and "ctranslate2" not in plan.settings_analysis()
