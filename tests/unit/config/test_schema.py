"""The JSON schema of experiments' files, by a validator of JSON schemas."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from workflow_src.config.files import CONFIG_FOLDER, experiment_file, experiment_names
from workflow_src.config.schema import SCHEMA, text

FILES = [CONFIG_FOLDER / "config.yaml", *(Path(experiment_file(name)) for name in experiment_names())]


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
    ],
)
def test_a_mistake_does_not_fit(content, validator):
    assert not validator.is_valid(content)


def test_a_file_laid_over_another_may_lack_settings_and_remove_entries(validator):
    assert validator.is_valid({"experiment": "mine", "extends": "smoke", "systems": {"lvm": None}, "analyses": None})


@pytest.mark.parametrize("content", [{"recipe": {"clean": ["length"]}}, {"metrics": ["bleu"]}])
def test_lists_of_names_fit(content, validator):
    assert validator.is_valid(content)
