"""Codes of languages: which are valid, which mean the same, and what is known of them."""

from __future__ import annotations

import contextlib
import json
import unicodedata

import pytest
from refusals import refuses

from workflow_src.config import Plan
from workflow_src.config.languages import SCRIPTS, scripts_of, spaced, two_letters
from workflow_src.config.load import load_experiment
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.data.normalise import Normaliser
from workflow_src.errors import ConfigError


def recipe_with(source: str, more_of_dataset=None, **more):
    """The configuration of an experiment on text of its own, from `source` to English."""
    dataset = {
        "name": "mine",
        "languages": [source, "en"],
        "train": [{"texts": {source: "a.txt", "en": "a.en"}}],
        "split": {"method": "connected-groups", "dev": 1, "test": 1, "longest": 30},
    }
    recipe = {"name": "mine", "source": source, "target": "en", "dataset": dataset | (more_of_dataset or {})}
    return load_experiment("mine", extends="smoke", recipe=recipe | more)


@pytest.mark.parametrize(
    ("code", "nearest"),
    [
        *(("jp", "ja"), ("cn", "zh"), ("gr", "el"), ("cz", "cs"), ("iw", "he"), ("ua", "uk")),
        *(("german", "de"), ("English", "en"), ("pt-br", "pt"), ("zh_Hans", "zh"), ("DE", "de")),
        *(("xx", None), ("mqq", None)),
    ],
)
def test_a_code_that_is_none_is_refused_with_the_nearest(code, nearest):
    with refuses(nearest=nearest, value=code):
        recipe_with(code)


def test_a_language_without_rules_can_be_declared():
    assert recipe_with("mqq", {"custom_languages": ["mqq"]}).dataset.languages == ("mqq", "en")
    with refuses(setting="recipe.clean.script", mentions=("mqq", "scripts")):
        recipe_with("mqq", {"custom_languages": ["mqq"]}, clean=["script"])


@pytest.mark.parametrize(("source", "target", "is_one"), [("eng", "en", True), ("cmn", "zh", False)])
def test_a_direction_has_two_languages(source, target, is_one):
    dataset = {"languages": [source, target], "train": [{"texts": {source: "a.txt", target: "b.txt"}}]}
    with pytest.raises(ConfigError) if is_one else contextlib.nullcontext() as caught:
        recipe_with(source, dataset, target=target)
    assert not is_one or caught.value.setting == "recipe.target"


def test_a_split_is_by_a_language_of_the_direction():
    dataset = {
        "languages": ["fr", "de", "en"],
        "train": [{"texts": {code: f"a.{code}" for code in ("fr", "de", "en")}}],
    }

    def key_language(source: str, target: str) -> str:
        settings = Plan(recipe_with(source, dataset, target=target)).settings_normalise()
        return json.loads(settings)["split"]["key_language"]

    # Both directions have the same split.
    assert [key_language("de", "en"), key_language("en", "de"), key_language("en", "fr")] == ["de", "de", "fr"]
    stated = {"method": "connected-groups", "dev": 1, "test": 1, "longest": 30, "key_language": "fr"}
    with refuses(value="fr", allowed=("de", "en")):
        recipe_with("de", dataset | {"split": stated})


@pytest.mark.parametrize(
    ("tokenised", "setting", "allowed"),
    [
        ({"fr": "moses"}, "recipe.tokenised", ("en", "ja")),
        ({"ja": "moses"}, "recipe.tokenised.ja", ("words",)),
        ({"en": "words"}, "recipe.tokenised.en", ("moses",)),
        ({"en": "kytea"}, "recipe.tokenised.en", ("moses", "words")),
    ],
)
def test_how_text_is_tokenised_must_fit_the_language(tokenised, setting, allowed):
    with refuses(setting=setting, allowed=allowed):
        recipe_with("ja", tokenised=tokenised)


def test_how_text_is_tokenised_reaches_what_reads_it():
    recipe = {"name": "mine", "tokenised": {"de": "moses", "en": "moses"}, "distilled": {"own": "own.en"}}
    plan = Plan(load_experiment("mine", extends="smoke", recipe=recipe, systems={"ctc": {"data": "own"}}))
    assert json.loads(plan.settings_normalise())["tokenised"] == {"de": "moses", "en": "moses"}
    assert json.loads(plan.settings_normalise_monolingual())["tokenised"] == {"de": "moses"}
    assert json.loads(plan.settings_encode("own"))["tokenised"] == {"en": "moses"}


def test_scripts_are_words_that_names_of_letters_begin_with():
    letters = (unicodedata.name(chr(code), "") for code in range(0x110000) if chr(code).isalpha())
    words = {name.partition(" ")[0] for name in letters}
    assert {script for scripts in SCRIPTS.values() for script in scripts} <= words


def test_codes_of_two_and_three_letters_mean_the_same():
    codes = ("de", "deu", "ger", "ron", "rum", "cmn", "yue", "nob", "azb", "xqz")
    assert [two_letters(code) for code in codes] == ["de", "de", "de", "ro", "ro", "zh", "zh", "nb", "az", "xqz"]
    for two, three in (("ro", "ron"), ("ro", "rum"), ("tr", "tur"), ("en", "eng"), ("de", "deu"), ("zh", "chi")):
        settings = NormalisationConfig(romanian=True, moses_punctuation=True, moses_tokenise=True, lowercase=True)
        line = "„IŞTE“ z.B. Dr. Müller’s 3,5 kg (circa ș.a.) a.m. l'été"
        assert Normaliser(settings, three).line(line) == Normaliser(settings, two).line(line)
        assert scripts_of(three) == scripts_of(two) and spaced(three) == spaced(two)
        assert bleu_tokeniser(three) == bleu_tokeniser(two)
    assert scripts_of("srp") == ("CYRILLIC", "LATIN") and scripts_of("azb") == ("ARABIC",)
    assert scripts_of("xqz") is None


@pytest.mark.parametrize(
    ("language", "text", "small"),
    [
        ("tr", "IŞIK İstanbul I\u0307ZMİR", "ışık istanbul izmir"),
        ("tur", "DIŞARI", "dışarı"),
        ("aze", "İL ILI", "il ılı"),
        ("de", "ISTANBUL İ", "istanbul i̇"),
        # Unicode's SpecialCasing for Lithuanian: Ì, Í and Ĩ keep the dot, as do Į and J below an accent.
        ("lt", "ÌR Í Ĩ ĮI J\u0303 IŠ", "i\u0307\u0300r i\u0307\u0301 i\u0307\u0303 įi j\u0307\u0303 iš"),
        ("el", "ΟΔΟΣ ΣΟΦΟΣ", "οδος σοφος"),
    ],
)
def test_small_letters_follow_the_language(language, text, small):
    normaliser = Normaliser(NormalisationConfig(lowercase=True), language)
    line = normaliser.line(text)
    assert line == unicodedata.normalize("NFC", small) == normaliser.line(line)
