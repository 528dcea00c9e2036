"""Errors of a configuration: the setting, its value, what is allowed, the nearest valid name."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from configurations import read_configuration
from hypothesis import given
from hypothesis import strategies as st
from refusals import fields_of

from workflow_src.config import Plan, load, load_experiment
from workflow_src.config.datasets import DatasetConfig
from workflow_src.config.files import CONFIG_FOLDER, experiment_names, merge, read_yaml
from workflow_src.config.sizes import AutoStepsConfig
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.spec import UNKNOWN

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")


def refusal(changes: dict[str, Any]) -> ConfigError:
    """The error that the smoke experiment with `changes` laid over it is refused with."""
    with pytest.raises(ConfigError) as refused:
        load(merge(copy.deepcopy(SMOKE), changes))
    return refused.value


TEACHER = {"system": "teacher", "search": "beam", "beam": 4}
# Settings of smoke that a user gets wrong, and the facts that the sentence must have.
MISTAKES = [
    ({"sedes": [1]}, {"setting": "sedes", "nearest": "seeds"}),
    ({"zzz": 1}, {"setting": "zzz", "nearest": None}),
    # Names that would break the sentence into lines, or fill the screen.
    ({"se\neds": 1}, {"setting": "'se\\neds'"}),
    ({"speed": {"x" * 500: 1}}, {"setting": f"speed.'{'x' * 95} ..."}),
    (
        {"systems": {"lvm": {"training": {"max_step": 5}}}},
        {"setting": "systems.lvm.training.max_step", "nearest": "max_steps"},
    ),
    (
        {"systems": {"lvm": {"objective": {"kl_budgets": 5}}}},
        {"setting": "systems.lvm.objective.kl_budgets", "nearest": "kl_budget"},
    ),
    ({"systems": {"lvm": {"model": {"layer": 5}}}}, {"setting": "systems.lvm.model.layer", "nearest": "layers"}),
    (
        {"recipe": {"normalisation": {"lowercased": True}}},
        {"setting": "recipe.normalisation.lowercased", "nearest": "lowercase"},
    ),
    ({"recipe": {"dataset": {"generators": {}}}}, {"setting": "recipe.dataset.generators", "nearest": "generator"}),
    ({"seeds": "many"}, {"setting": "seeds", "value": "many"}),
    ({"runtime": {"devices": 0}}, {"setting": "runtime.devices", "value": 0}),
    (
        {"runtime": {"devices": 2, "device": "cuda:1"}},
        {"setting": "runtime.device", "value": "cuda:1", "nearest": "cuda"},
    ),
    ({"systems": {"lvm": {"training": {"clip_norm": 0}}}}, {"setting": "systems.lvm.training.clip_norm", "value": 0}),
    (
        {"systems": {"lvm": {"training": {"max_skipped": -1}}}},
        {"setting": "systems.lvm.training.max_skipped", "value": -1},
    ),
    ({"seeds": []}, {"setting": "seeds", "value": []}),
    ({"recipe": {"limits": {"train": True}}}, {"setting": "recipe.limits", "value": {"train": True}}),
    ({"seeds": [10**30]}, {"setting": "seeds[0]", "value": 1000000000000000000000000000000}),
    (
        {"systems": {"teacher": {"training": {"max_steps": 10**400}}}},
        {"setting": "systems.teacher.training.max_steps", "nearest": None},
    ),
    (
        {"recipe": {"subwords": {"vocabulary_size": 10**400}}},
        {"setting": "recipe.subwords.vocabulary_size", "nearest": None},
    ),
    (
        {"decodes": [{"system": "lvm", "search": "delta", "steps": 10**400}]},
        {"setting": "decodes[0].steps", "nearest": None},
    ),
    ({"distillation": {"teacher": {"seed": -1}}}, {"setting": "distillation.teacher.seed", "value": -1}),
    (
        {"distillation": {"teacher": {"seed": 99}}},
        {"setting": "distillation.teacher.seed", "value": 99, "allowed": ("1",)},
    ),
    ({"runtime": {"device": "cuda:01"}}, {"setting": "runtime.device", "value": "cuda:01", "nearest": "cuda:N"}),
    ({5: 3}, {"setting": "5", "nearest": None}),
    ({"systems": {"teacher": {5: 3}}}, {"setting": "a name in systems.teacher", "value": 5, "allowed": "text"}),
    ({"recipe": {5: 3}}, {"setting": "a name in recipe", "value": 5}),
    ({"recipe": {"dataset": {"train": [3]}}}, {"setting": "recipe.dataset.train[0]", "value": 3}),
    ({"recipe": {"dataset": {"split": 3}}}, {"setting": "recipe.dataset.split", "value": 3}),
    ({"decodes": [3]}, {"setting": "decodes[0]", "value": 3}),
    ({"systems": {"teacher": 3}}, {"setting": "systems.teacher", "value": 3}),
    ({"report": {"grids": 3}}, {"setting": "report.grids", "value": 3}),
    ({"systems": {"teacher": {"family": "a\nb" + "x" * 400}}}, {"setting": "systems.teacher.family", "nearest": None}),
    ({"seeds": [True]}, {"setting": "seeds", "value": [True]}),
    (
        {"systems": {"teacher": {"training": {"learning_rate": False}}}},
        {"setting": "systems.teacher.training.learning_rate", "value": False},
    ),
    (
        {"decodes": [{"system": "lvm", "search": "delta", "steps": [1, True]}]},
        {"setting": "decodes[0].steps", "value": True},
    ),
    ({"seeds": [1, 1]}, {"setting": "seeds", "value": [1, 1]}),
    (
        {"systems": {"teacher": {"training": {"learning_rate": 0}}}},
        {"setting": "systems.teacher.training.learning_rate", "value": 0},
    ),
    (
        {"systems": {"teacher": {"training": {"schedule": "cosine"}}}},
        {"setting": "systems.teacher.training.schedule", "value": "cosine", "allowed": ("inverse-sqrt", "polynomial")},
    ),
    ({"systems": {"teacher": {"model": {"dropout": 1.5}}}}, {"setting": "systems.teacher.model.dropout", "value": 1.5}),
    ({"systems": {"teacher": {"model": {"heads": 3}}}}, {"setting": "systems.teacher.model.dim", "value": 32}),
    (
        {"systems": {"teacher": {"training": {"batch_tokens": "lots"}}}},
        {"setting": "systems.teacher.training.batch_tokens", "value": "lots"},
    ),
    ({"recipe": {"source": "English"}}, {"setting": "recipe.source", "value": "English", "nearest": "en"}),
    ({"recipe": {"target": "de"}}, {"setting": "recipe.target", "value": "de"}),
    ({"recipe": {"subwords": {"vocabulary_size": 2}}}, {"setting": "recipe.subwords.vocabulary_size", "value": 2}),
    ({"recipe": {"subwords": {"vocabulary_size": "big"}}}, {"setting": "recipe.subwords.vocabulary_size"}),
    ({"runtime": {"device": "tpu"}}, {"setting": "runtime.device", "value": "tpu", "nearest": "cpu"}),
    (
        {"report": {"remove_repetitions": True}},
        {"setting": "report.remove_repetitions", "value": True, "allowed": ("none", "subwords", "words")},
    ),
    (
        {"report": {"remove_repetitions": False}},
        {"setting": "report.remove_repetitions", "value": False, "allowed": ("none", "subwords", "words")},
    ),
    (
        {"report": {"remove_repetitions": "subword"}},
        {"setting": "report.remove_repetitions", "value": "subword", "nearest": "subwords"},
    ),
    (
        {"report": {"expected_convention": "intl"}},
        {
            "setting": "report.expected_convention",
            "value": "intl",
            "allowed": ("intl-lowercase", "sacrebleu", "tokenised"),
        },
    ),
    ({"runtime": {"precision": "float8"}}, {"setting": "runtime.precision", "value": "float8", "nearest": "float32"}),
    ({"systems": {"Big Model": {"family": "lvm"}}}, {"setting": "a name in systems", "value": "Big Model"}),
    (
        {"systems": {"BigConfig": {"family": "lvm"}}},
        {"setting": "a name in systems", "value": "BigConfig", "mentions": ("100",)},
    ),
    (
        {"systems": {"str": {"family": "lvm", "preset": "miniature", "training": {"max_steps": "many"}}}},
        {"setting": "systems.str.training.max_steps", "value": "many"},
    ),
    ({"recipe": {"dataset": "totoeba"}}, {"setting": "recipe.dataset", "value": "totoeba", "nearest": "tatoeba"}),
    ({"recipe": {"source": "fr"}}, {"setting": "recipe.source", "value": "fr", "allowed": ("de", "en")}),
    (
        {"systems": {"teacher": {"family": "transfomer"}}},
        {"setting": "systems.teacher.family", "value": "transfomer", "nearest": "transformer"},
    ),
    (
        {"systems": {"teacher": {"preset": "tinny"}}},
        {"setting": "systems.teacher.preset", "value": "tinny", "nearest": "tiny"},
    ),
    ({"systems": {"score": {"base": "lvn"}}}, {"setting": "systems.score.base", "value": "lvn", "nearest": "lvm"}),
    (
        {"systems": {"lvm": {"init_from": "teecher"}}},
        {"setting": "systems.lvm.init_from", "value": "teecher", "nearest": "teacher"},
    ),
    (
        {"systems": {"lvm": {"data": "distilled-by-teache"}}},
        {"setting": "systems.lvm.data", "value": "distilled-by-teache", "nearest": "distilled-by-teacher"},
    ),
    ({"systems": {"lvm": {"data": ""}}}, {"setting": "systems.lvm.data", "value": ""}),
    (
        {"systems": {"lvm": {"data": "mine"}}},
        {
            "setting": "systems.lvm.data",
            "value": "mine",
            "allowed": ("distilled-by-SYSTEM", "likely-by-SYSTEM", "monolingual-by-SYSTEM", "raw"),
        },
    ),
    ({"distillation": {"teechers": {}}}, {"setting": "distillation.teechers", "nearest": "teacher"}),
    ({"distillation": {"teacher": {"beam": 0}}}, {"setting": "distillation.teacher.beam", "value": 0}),
    ({"distillation": {"teacher": {"beams": 3}}}, {"setting": "distillation.teacher.beams", "nearest": "beam"}),
    ({"distillation": {"teacher": {"rescorer": "ctc"}}}, {"setting": "distillation.teacher.rescorer", "nearest": None}),
    (
        {"decodes": [{"system": "teach", "search": "greedy"}]},
        {"setting": "decodes[0].system", "value": "teach", "nearest": "teacher"},
    ),
    (
        {"decodes": [{"system": "lvm", "search": "beam", "beam": 4}]},
        {"setting": "decodes[0].search", "value": "beam", "allowed": ("delta", "latent-search", "prior-mean")},
    ),
    (
        {"decodes": [{"system": "lvm", "search": "dleta", "steps": 1}]},
        {"setting": "decodes[0].search", "value": "dleta", "nearest": "delta"},
    ),
    ({"extends": "smok"}, {"setting": "extends", "value": "smok", "nearest": "smoke"}),
    ({"systems": {"score": {"base": None}}}, {"setting": "systems.score.base", "problem": "missing"}),
    ({"systems": {"score": {"base": "teacher"}}}, {"setting": "systems.score.base", "value": "teacher"}),
    ({"systems": {"teacher": {"base": "lvm"}}}, {"setting": "systems.teacher.base", "value": "lvm"}),
    (
        {"systems": {"lvm": {"data": "distilled-by-score"}}},
        {"setting": "systems.lvm.data", "value": "distilled-by-score", "allowed": ("distilled-by-teacher",)},
    ),
    (
        {"systems": {"teacher": {"init_from": "teacher"}}},
        {"setting": "systems", "problem": "a circle, teacher -> teacher"},
    ),
    (
        {"systems": {"lvm": {"init_from": "ctc"}, "ctc": {"init_from": "lvm"}}},
        {"setting": "systems", "problem": "a circle, lvm -> ctc -> lvm"},
    ),
    (
        {"systems": {"score": {"model": {"latent_dim": 4}}}},
        {"setting": "systems.score.model.latent_dim", "value": 4, "allowed": ("2",)},
    ),
    ({"systems": {"lvm": {"training": {"max_steps": 0}}}}, {"setting": "systems.lvm.training.max_steps", "value": 0}),
    ({"decodes": [{"system": "lvm", "search": "delta"}]}, {"setting": "decodes[0].steps", "hint": "add it"}),
    (
        {"decodes": [{"system": "lvm", "search": "prior-mean", "steps": 1}]},
        {
            "setting": "decodes[0].steps",
            "problem": "no setting of search prior-mean but of delta, energy, latent-search, score",
        },
    ),
    ({"decodes": [{"system": "teacher", "search": "beam"}]}, {"setting": "decodes[0].beam", "hint": "add it"}),
    (
        {"decodes": [{"system": "teacher", "search": "greedy", "beam": 2}]},
        {"setting": "decodes[0].beam", "mentions": ("ctc-beam",)},
    ),
    (
        {"decodes": [{"system": "lvm", "search": "prior-mean", "engine": "ctranslate2"}]},
        {"setting": "decodes[0].engine", "value": "ctranslate2"},
    ),
    (
        {"decodes": [{"system": "teacher", "search": "greedy", "engine": "eager-int8"}]},
        {"setting": "decodes[0].engine", "value": "eager-int8", "nearest": "eager"},
    ),
    (
        {"decodes": [{"system": "lvm", "search": "delta", "steps": 8, "engine": "onnxruntime", "stop_threshold": 0.1}]},
        {"setting": "decodes[0].engine", "value": "onnxruntime"},
    ),
    (
        {"decodes": [{"system": "teacher", "search": "greedy", "engine": "onnx"}]},
        {
            "setting": "decodes[0].engine",
            "value": "onnx",
            "mentions": ("eager", "ctranslate2-int8", "cuda_graphs-bfloat16"),
        },
    ),
    (
        {"decodes": [{"system": "lvm", "search": "prior-mean", "engine": "cuda_graphs"}], "runtime": {"device": "cpu"}},
        {"setting": "runtime.device", "value": "cpu", "mentions": ("cuda_graphs",)},
    ),
    ({"speed": {"protocols": []}}, {"setting": "speed.protocols", "value": []}),
    ({"speed": {"protocols": ["tpu"]}}, {"setting": "speed.protocols[0]", "value": "tpu", "nearest": "gpu"}),
    ({"decodes": [{"system": "teacher", "search": "beam", "beam": 0}]}, {"setting": "decodes[0].beam", "value": 0}),
    (
        {"decodes": [{"system": "lvm", "search": "delta", "steps": [1, 1]}]},
        {"setting": "decodes", "problem": "lvm has two named delta-1"},
    ),
    (
        {"decodes": [TEACHER | {"splits": ["test", "test"]}]},
        {"setting": "decodes[0].splits", "value": ["test", "test"]},
    ),
    ({"decodes": [TEACHER | {"splits": []}]}, {"setting": "decodes[0].splits", "value": []}),
    ({"decodes": [TEACHER | {"beam": []}]}, {"setting": "decodes[0].beam", "value": []}),
    (
        {"decodes": [TEACHER | {"engine": []}]},
        {"setting": "decodes[0].engine", "value": [], "allowed": "a length of 1 or more"},
    ),
    (
        {"decodes": [TEACHER | {"engine": ["eager", "eager"]}]},
        {"setting": "decodes[0].engine", "value": ["eager", "eager"], "allowed": "each once"},
    ),
    (
        {"decodes": [TEACHER | {"tune": []}]},
        {"setting": "decodes[0].tune", "value": [], "allowed": "a length of 1 or more"},
    ),
    ({"decodes": [TEACHER | {"tune": [1, 2]}]}, {"setting": "decodes[0].tune[0]", "value": 1, "allowed": "text"}),
    # A list where only text may stand.
    (
        {"decodes": [TEACHER | {"search": ["beam"]}]},
        {"setting": "decodes[0].search", "value": ["beam"], "allowed": "text"},
    ),
    (
        {"decode_defaults": {"engine": "eagre"}, "decodes": [TEACHER]},
        {"setting": "decode_defaults.engine", "value": "eagre", "nearest": "eager"},
    ),
    # An engine that the decode itself does not name.
    (
        {"decode_defaults": {"engine": ["eager", "onnxruntime-int8"]}, "decodes": [TEACHER]},
        {
            "setting": "decode_defaults.engine",
            "value": "onnxruntime-int8",
            "mentions": ("decodes[0]", "system teacher", "search beam"),
        },
    ),
    (
        {"decode_defaults": {"engine": "eager"}, "decodes": [TEACHER | {"engine": "onnxruntime-int8"}]},
        {"setting": "decodes[0].engine", "value": "onnxruntime-int8"},
    ),
    (
        {"decode_defaults": {"tune_by": "blue"}, "decodes": [TEACHER | {"tune": ["length_penalty"]}]},
        {"setting": "decode_defaults.tune_by", "value": "blue", "nearest": "bleu"},
    ),
    (
        {
            "decode_defaults": {"tune_by": "bleu"},
            "decodes": [TEACHER | {"tune": ["length_penalty"], "tune_by": "blue", "name": "own"}],
        },
        {"setting": "decodes[0].tune_by", "value": "blue", "nearest": "bleu"},
    ),
    (
        {"decodes": [TEACHER | {"engine": "ctranslate2-int4"}]},
        {"setting": "decodes[0].engine", "value": "ctranslate2-int4", "nearest": "ctranslate2-int8"},
    ),
    (
        {"decodes": [TEACHER | {"length_penalty": 1.0, "tune": {"length_penalty": [0.8, 1.0]}}]},
        {"setting": "decodes[0].length_penalty", "value": 1.0},
    ),
    (
        {"decodes": [TEACHER | {"tune": {"length_penalty": [0.8, 0.8]}}]},
        {"setting": "decodes[0].tune.length_penalty", "value": [0.8, 0.8]},
    ),
    (
        {"decodes": [TEACHER | {"length_penalty": float("inf")}]},
        {"setting": "decodes[0].length_penalty", "value": float("inf")},
    ),
    ({"seeds": 1}, {"setting": "seeds", "value": 1}),
    ({"systems": {"teacher": "hello"}}, {"setting": "systems.teacher", "value": "hello"}),
    ({"systems": {5: {}}}, {"setting": "a name in systems", "value": 5}),
    (
        {"systems": {"lehrer\n": {"family": "transformer", "preset": "tiny"}}},
        {"setting": "a name in systems", "value": "lehrer\n", "mentions": ("100",)},
    ),
    (
        {"systems": {"a" * 101: {"family": "transformer", "preset": "tiny"}}},
        {"setting": "a name in systems", "mentions": ("100",)},
    ),
    (
        {"systems": {"teacher": {"training": {"keep": "average", "patience": 3}}}},
        {"setting": "systems.teacher.training.patience", "value": 3},
    ),
    (
        {"systems": {"teacher": {"training": {"batch_tokens": 500, "accumulate": 501}}}},
        {"setting": "systems.teacher.training.accumulate", "value": 501},
    ),
    (
        {"systems": {"teacher": {"training": {"keep": "last", "average_last": 9}}}},
        {"setting": "systems.teacher.training.average_last", "value": 9},
    ),
    (
        {"systems": {"score": {"objective": {"pre_update_probability": 0, "pre_update_after": 0.9}}}},
        {"setting": "systems.score.objective.pre_update_after", "value": 0.9},
    ),
    (
        {"systems": {"score": {"objective": {"pre_update_after": 1.0}}}},
        {"setting": "systems.score.objective.pre_update_after", "value": 1.0},
    ),
    (
        {"systems": {"score": {"model": {"start": "random"}, "init_from": "lvm"}}},
        {"setting": "systems.score.init_from", "value": "lvm"},
    ),
    (
        {"systems": {"score": {"model": {"start": "random"}, "initial_weights": "mine.safetensors"}}},
        {"setting": "systems.score.initial_weights", "value": "mine.safetensors"},
    ),
    (
        {"systems": {"lvm": {"objective": {"kl_budget": 0.5, "budget_end": 0.6}}}},
        {"setting": "systems.lvm.objective.budget_end", "value": 0.6},
    ),
    (
        {"systems": {"lvm": {"objective": {"kl_budget": 0, "budget_hold": 0.3}}}},
        {"setting": "systems.lvm.objective.budget_hold", "value": 0.3},
    ),
    (
        {"systems": {"teacher": {"training": {"betas": [1.5, 2]}}}},
        {"setting": "systems.teacher.training.betas[0]", "value": 1.5},
    ),
    (
        {"systems": {"teacher": {"training": {"betas": [0.9]}}}},
        {"setting": "systems.teacher.training.betas[1]", "problem": "missing"},
    ),
    (
        {"systems": {"teacher": {"training": {"learning_rate": float("inf")}}}},
        {"setting": "systems.teacher.training.learning_rate", "value": float("inf")},
    ),
    (
        {"systems": {"lvm": {"init_from": "teacher", "initial_weights": "mine.safetensors"}}},
        {"setting": "systems.lvm.init_from", "value": "teacher"},
    ),
    (
        {"systems": {"lvm": {"init_from": "teacher", "model": {"dim": 64}}}},
        {"setting": "systems.lvm.model.dim", "value": 64, "allowed": ("32",)},
    ),
    (
        {"systems": {"lvm": {"init_from": "teacher", "model": {"heads": 4}}}},
        {"setting": "systems.lvm.model.heads", "value": 4, "allowed": ("2",)},
    ),
    (
        {"systems": {"lvm": {"init_from": "teacher", "model": {"norm": "post"}}}},
        {"setting": "systems.lvm.model.norm", "value": "post", "allowed": ("pre",)},
    ),
    # Systems that have no weights for the network.
    (
        {"systems": {"lm": {"family": "ngram", "preset": "miniature"}, "ctc": {"init_from": "lm"}}},
        {"setting": "systems.ctc.init_from", "value": "lm", "allowed": ("ctc", "lvm", "teacher")},
    ),
    (
        {"systems": {"ctc": {"init_from": "score"}}},
        {"setting": "systems.ctc.init_from", "value": "score", "allowed": ("ctc", "lvm", "teacher")},
    ),
    (
        {"systems": {"score": {"init_from": "teacher"}}},
        {"setting": "systems.score.init_from", "value": "teacher", "allowed": ("ctc", "energy", "lvm", "score")},
    ),
    (
        {"systems": {"lvm": {"initial_weights": "{mine}.safetensors"}}},
        {"setting": "systems.lvm.initial_weights", "value": "{mine}.safetensors"},
    ),
    ({"runtime": {"device": "gpu"}}, {"setting": "runtime.device", "value": "gpu", "nearest": "cpu"}),
    ({"speed": {"protocols": ["gpu", "gpu"]}}, {"setting": "speed.protocols", "value": ["gpu", "gpu"]}),
    ({"analyses": {"tokens": {"steps": [-1]}}}, {"setting": "analyses.tokens.steps[0]", "value": -1}),
    ({"plugins": [".x"]}, {"setting": "plugins[0]", "value": ".x"}),
    ({"distillation": {"lvm": {}}}, {"setting": "distillation.lvm"}),
    ({"extends": ["smoke", "demo"]}, {"setting": "extends", "value": ["smoke", "demo"]}),
    ({"extends": ""}, {"setting": "extends", "value": ""}),
    (
        {"recipe": {"dataset": {"generator": {"many": 3}}}},
        {"setting": "recipe.dataset.generator.many", "allowed": ("dev", "kinds", "seed", "test", "train")},
    ),
    ({"recipe": {"dataset": {"generator": {"name": ["toy"]}}}}, {"setting": "recipe.dataset.generator.name"}),
    ({"extends": "smoke", "recipe": {"limits": 100}}, {"setting": "recipe.limits", "value": 100}),
    ({"recipe": {"dataset": {"generator": {"train": -5}}}}, {"setting": "recipe.dataset.generator.train", "value": -5}),
    (
        {"recipe": {"dataset": {"languages": ["fr", "it"]}, "source": "fr", "target": "it"}},
        {"setting": "recipe.dataset.languages", "value": ["fr", "it"]},
    ),
    ({"recipe": {"limits": {"train": 2**63}}}, {"setting": "recipe.limits", "value": {"train": 9223372036854775808}}),
    ({"recipe": {"normalisation": {"lowercase": True}}}, {"setting": "recipe.normalisation.lowercase", "value": True}),
    (
        {"recipe": {"dataset": {"languages": [False, "en"]}}},
        {"setting": "recipe.dataset.languages[0]", "value": False, "mentions": ("in quotes",)},
    ),
    (
        {"recipe": {"dataset": {"languages": ["de", "de"]}}},
        {"setting": "recipe.dataset.languages", "value": ["de", "de"]},
    ),
]


@pytest.mark.parametrize(("changes", "fields"), MISTAKES)
def test_a_mistake_names_the_setting_its_value_and_the_nearest_name(changes, fields):
    assert fields_of(refusal(changes), fields) == fields


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
        ({"train": [TEXTS | TABLE]}, {"setting": "train[0].table", "value": "my.tsv", "mentions": ("texts",)}),
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
    with pytest.raises(ConfigError) as refused:
        own_dataset(**settings)
    expected = fields | {"setting": f"recipe.dataset.{fields['setting']}"}
    assert fields_of(refused.value, expected) == expected


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
    with pytest.raises(ConfigError) as refused:
        load(SMOKE | {"recipe": {"name": "mine", "dataset": OWN | {"train": [part]}, "source": "de", "target": "en"}})
    assert fields_of(refused.value, fields) == fields


@pytest.mark.parametrize(("longest", "positions"), [(500, 501), (100, 101), (1, 2)])
def test_a_split_that_takes_longer_sentences_than_a_model_reads_is_refused(longest, positions):
    part = {"texts": {"de": "my.de", "en": "my.en"}}
    dataset = OWN | {"train": [part], "split": OWN["split"] | {"longest": longest}}
    recipe = {"name": "mine", "dataset": dataset, "source": "de", "target": "en"}

    def loaded(positions):
        systems = {"teacher": SMOKE["systems"]["teacher"] | {"model": {"max_positions": positions}}}
        decodes = [{"system": "teacher", "search": "greedy"}]
        return load({"experiment": "mine", "recipe": recipe, "systems": systems, "decodes": decodes})

    with pytest.raises(ConfigError) as refused:
        loaded(positions)
    assert (refused.value.setting, refused.value.value) == ("systems.teacher.model.max_positions", positions)
    assert refused.value.allowed == f"{longest + 2} or more" and str(max(positions - 2, 1)) in refused.value.hint
    assert loaded(longest + 2).dataset.split.longest == longest
    # Own dev and test are looked at when they are encoded.
    complete = dataset | {"split": None, "dev": [part], "test": [part]}
    recipe["dataset"] = complete
    assert loaded(positions).dataset.split is None


def test_long_values_are_cut_in_messages():
    message = str(refusal({"seeds": [["a"] * 1000]}))
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
    with pytest.raises(ConfigError) as refused:
        load({"experiment": "dmo"})
    assert refused.value.nearest == "demo"
    with pytest.raises(ConfigError, match=r"^experiment: missing"):
        load({})
    with pytest.raises(ConfigError, match=r"^recipe.name: missing"):
        load({"experiment": "mine", "recipe": {"dataset": "toy"}})


def test_parts_of_a_recipe_are_laid_over_a_shipped_experiment():
    loaded = load({"experiment": "smoke", "recipe": {"subwords": {"vocabulary_size": 250}}})
    assert loaded.config.recipe.subwords.vocabulary_size == 250
    assert loaded.config.recipe.name == "smoke"


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
    with pytest.raises(ConfigError) as refused:
        load_experiment("demo", recipe={"distilled": {name: "mine.en"}})
    assert refused.value.setting == "a name in recipe.distilled"


def test_engines_make_decodes_of_their_own_and_leave_ours_as_they_were():
    rows = [
        {"system": "teacher", "search": "beam", "beam": 1},
        {"system": "teacher", "search": "beam", "beam": 4, "engine": ["eager", "ctranslate2", "ctranslate2-int8"]},
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
    pytorch, other = plan.loaded.decodes[1], plan.loaded.decodes[3]
    assert pytorch.settings == {"search": "beam"} | pytorch.values.model_dump(mode="json")
    assert other.settings == pytorch.settings | {"engine": "ctranslate2", "compute_type": "int8"}
    assert (pytorch.engine, other.engine) == ("eager", "ctranslate2")
    assert plan.exported_file("teacher", 1, plan.export_of(pytorch)).endswith("teacher/seed-1/bundle/bundle.json")
    assert plan.exported_file("teacher", 1, plan.export_of(other)).endswith("teacher/seed-1/ctranslate2/bundle.json")
    assert plan.exported_to("ctranslate2") == ["teacher"]
    # The examples show our own translations.
    assert '"beam": 4' in plan.settings_analysis() and "ctranslate2" not in plan.settings_analysis()
