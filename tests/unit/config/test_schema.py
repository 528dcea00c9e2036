"""The JSON schema of experiments' files, by a validator of JSON schemas."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from workflow_src.config import load
from workflow_src.config.files import CONFIG_FOLDER, dataset_names, experiment_file, experiment_names, merge, read_yaml
from workflow_src.config.schema import SCHEMA, text

FILES = [CONFIG_FOLDER / "config.yaml", *(Path(experiment_file(name)) for name in experiment_names())]

PART = {"texts": {"de": "my.de", "en": "my.en"}}
TABLE = {"table": "my.tsv", "columns": {"de": 0, "en": 1}}
RECORDS = {"records": "my.jsonl", "columns": {"de": "t.de", "en": "t.en"}, "score_column": "score", "minimum_score": 1}
MEMORY = {"tmx": "my.tmx.gz", "variants": {"de": "de-AT"}}
# A dataset of the user's own, whose test set is one list of parts.
DATASET = {
    "name": "mine",
    "languages": ["de", "en"],
    "train": [PART, TABLE, RECORDS, MEMORY],
    "dev": [PART],
    "test": [PART],
}


@pytest.fixture(scope="module")
def validator():
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_the_file_is_up_to_date():
    assert SCHEMA.read_text(encoding="utf-8") == text(), "run `python -m workflow_src.config.schema`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_files_name_the_schema_and_fit_it(path, validator):
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named and os.path.samefile(path.parent / named[1], SCHEMA)
    assert [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize(
    "content",
    [
        {"sedes": [1]},
        {"seeds": ["one"]},
        {"runtime": {"device": 3}},
        {"runtime": {"precision": "float64"}},
        {"systems": {"lvm": {"famly": "lvm"}}},
        {"recipe": {"subwords": {"vocabulary_size": "large"}}},
        {"recipe": {"placeholders": ["url"]}},
        {"recipe": {"clean": [3]}},
        {"recipe": {"dataset": {"split": {"method": "every-nht"}}}},
        {"recipe": {"dataset": {"train": [{"texts": {"de": 3}}]}}},
        {"recipe": {"dataset": {"train": [PART | {"table": "my.tsv"}]}}},
        {"recipe": {"dataset": {"test": {"news": PART}}}},
        {"systems": {"lvm": {"training": {"max_steps": "automatic"}}}},
    ],
)
def test_a_mistake_does_not_fit(content, validator):
    assert not validator.is_valid(content)


def test_a_file_laid_over_another_may_lack_settings_and_remove_entries(validator):
    assert validator.is_valid({"experiment": "mine", "extends": "smoke", "systems": {"lvm": None}, "analyses": None})


def test_a_part_of_a_section_fits_where_it_may_be_of_several_kinds(validator):
    assert validator.is_valid({"recipe": {"dataset": {"split": {"longest": 300}}}})


@pytest.mark.parametrize(
    "content",
    [
        {"recipe": {"clean": ["length"]}},
        {"recipe": {"clean": {"length": {}}}},
        {"metrics": ["bleu"]},
        {"metrics": {"bleu": None}},
        {"recipe": {"placeholders": True}},
        {"recipe": {"placeholders": ["urls"]}},
        {"recipe": {"placeholders": False}},
        {"systems": {"lvm": {"training": {"max_steps": "auto"}}}},
        {"systems": {"lvm": {"training": {"max_steps": {"at_most": 3000}}}}},
        {"recipe": {"dataset": DATASET}},
        {"recipe": {"dataset": DATASET | {"test": {"news": [PART], "talks": [TABLE]}}}},
        {"recipe": {"dataset": DATASET | {"dev": [{"texts": {"de": "my.de", "en": ["my.en", "mine.en"]}}]}}},
        {"recipe": {"dataset": DATASET | {"dev": [], "split": {"method": "every-nth", "every": 10}}}},
    ],
)
def test_every_form_of_a_setting_is_read_and_fits(content, validator):
    load(merge(read_yaml(experiment_file("smoke")), content))
    assert [error.message for error in validator.iter_errors(content)] == []


@pytest.mark.parametrize("name", dataset_names())
def test_shipped_datasets_fit_as_a_recipes_own(name, validator):
    content = {"recipe": {"dataset": read_yaml(CONFIG_FOLDER / "datasets" / f"{name}.yaml")}}
    assert [error.message for error in validator.iter_errors(content)] == []
