"""Which tokeniser counts BLEU of a target language, and which settings are refused."""

from __future__ import annotations

import json
from importlib.machinery import ModuleSpec

import pytest
import sacrebleu
from refusals import refuses

from workflow_src.config import Plan
from workflow_src.config.languages import spaced
from workflow_src.config.load import load_experiment
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.data.bleu import bleu_metric, corpus_bleu
from workflow_src.errors import ConfigError, InputError


@pytest.fixture
def without_mecab(monkeypatch):
    monkeypatch.setattr("workflow_src.config.tokenisers.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        *((code, "zh") for code in ("zh", "zho", "cmn")),
        *((code, "char") for code in ("ja", "ko", "th", "lo", "km", "my", "bo", "dz")),
        *((code, "13a") for code in ("de", "en", "hi", "vi", "ar")),
    ],
)
def test_the_tokeniser_follows_the_target(without_mecab, target, expected):
    assert bleu_tokeniser(target) == expected
    # sacreBLEU knows it, and takes no sentence of a script without spaces for one word.
    assert len(bleu_metric(expected).tokenizer("他明天去北京开会。").split()) == (1 if expected == "13a" else 9)
    assert spaced(target) == (expected == "13a" or target == "ko")


def test_japanese_and_korean_are_cut_into_words_where_packages_are_installed(monkeypatch):
    monkeypatch.setattr("workflow_src.config.tokenisers.find_spec", lambda name: ModuleSpec(name, None))
    assert (bleu_tokeniser("ja"), bleu_tokeniser("ko"), bleu_tokeniser("th")) == ("ja-mecab", "ko-mecab", "char")


@pytest.mark.parametrize(
    ("target", "tokeniser", "fields"),
    [
        ("de", "zh", {"setting": "recipe.bleu_tokeniser", "allowed": ("auto", "char", "flores200")}),
        ("zh", "13a", {"setting": "recipe.bleu_tokeniser", "allowed": ("auto", "char", "flores200")}),
        ("th", "intl", {"setting": "recipe.bleu_tokeniser", "allowed": ("auto", "char", "flores200")}),
        (
            "ja",
            "ja-mecab",
            {
                "setting": "recipe.bleu_tokeniser",
                "problem": 'it needs MeCab and ipadic, not installed: pip install "sacrebleu[ja]", or say char',
            },
        ),
        (
            "de",
            "flores200",
            {
                "setting": "recipe.bleu_tokeniser",
                "mentions": ("models/flores200sacrebleuspm", "BLEU(tokenize='flores200')"),
            },
        ),
    ],
)
def test_a_tokeniser_that_does_not_fit_is_refused(without_mecab, tmp_path, monkeypatch, target, tokeniser, fields):
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    with refuses(InputError, **fields):
        bleu_tokeniser(target, tokeniser)
    if tokeniser == "flores200":
        # Nor does a job download what it lacks.
        with pytest.raises(ConfigError, match="models/flores200sacrebleuspm"):
            bleu_metric(tokeniser)
    # A model that is there may be named.
    (tmp_path / "models").mkdir()
    (tmp_path / "models/flores200sacrebleuspm").touch()
    assert bleu_tokeniser(target, "flores200") == "flores200" and bleu_tokeniser(target, "char") == "char"


def test_bleu_of_identical_text_is_100_and_no_more():
    lines = ["The child sleeps ."] * 8
    assert corpus_bleu(lines, lines, "13a") == corpus_bleu(lines, lines, "char") == 100
    assert sacrebleu.BLEU().corpus_score(lines, [lines]).score > 100


def test_an_experiment_that_names_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match=r"recipe.bleu_tokeniser"):
        load_experiment("smoke", recipe={"bleu_tokeniser": "zh"})


def test_the_tokeniser_changes_what_counts_bleu_and_nothing_else():
    plain, char = (Plan(load_experiment("smoke", recipe={"bleu_tokeniser": name})) for name in ("auto", "char"))
    decode = plain.loaded.decodes[0]
    quality = plain.settings_quality(), char.settings_quality()
    significance = plain.settings_significance("test"), char.settings_significance("test")
    for settings in (quality, significance):
        before, after = map(json.loads, settings)
        tokenisers = before["corpus"].pop("tokeniser"), after["corpus"].pop("tokeniser")
        assert tokenisers == ("13a", "char") and before == after
    system = next(name for name in plain.loaded.systems if not plain.system(name).family.fit)
    assert json.loads(char.settings_training(system))["bleu_tokeniser"] == "char"
    assert json.loads(char.settings_choose(decode))["corpus"]["tokeniser"] == "char"
    assert plain.settings_decode(decode) == char.settings_decode(decode)
    assert plain.settings_encode() == char.settings_encode() and plain.settings_speed() == char.settings_speed()
