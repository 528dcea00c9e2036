"""Documents of jobs that cannot be run: each stage refuses them by the field, before it reads anything."""

from __future__ import annotations

import importlib

import pytest
from refusals import fields_of

from workflow_src.errors import ConfigError
from workflow_src.jobs import read_inputs
from workflow_src.records.atomic import write_json

BEAM = {"system": "teacher", "search": "beam"}
COUNTED = {"name": "lm", "family": "ngram", "model": {}}
TRAINING = {name: "x" for name in ("dev", "subwords", "reference", "corpus_summary", "state", "output_folder")}
TRACES = {"examples": 1, "searches": [], "teacher": None}
# Documents that can be run.
DOCUMENTS = {
    "decode": {"settings": BEAM, "bundle": "x", "source": "x", "output": "x", "shard": 0, "shards": 2},
    "distill": {"settings": {}, "model": "x", "subwords": "x", "source": "x", "shard": 0, "shards": 2, "output": "x"},
    "score_pairs": {
        "settings": {},
        "model": "x",
        "subwords": "x",
        "pairs": "x",
        "shard": 0,
        "shards": 2,
        "output": "x",
    },
    "train": {"settings": COUNTED | {"data": "raw"}, "seed": 1, "train": ["a"]} | TRAINING,
    "analyse": {"settings": TRACES, "bundles": {}, "source": "x", "reference": "x", "output": "x"},
}


def read(stage, document, tmp_path):
    write_json(tmp_path / "job.json", document)
    return read_inputs(importlib.import_module(f"workflow_src.stages.{stage}").Inputs, tmp_path / "job.json")


@pytest.mark.parametrize(
    ("stage", "changes", "fields"),
    [
        *((stage, {"shards": 0}, {"setting": "shards", "value": 0}) for stage in ("decode", "distill", "score_pairs")),
        ("decode", {"batch": 0}, {"setting": "batch", "value": 0}),
        ("train", {"log_every": 0}, {"setting": "log_every", "value": 0}),
        ("analyse", {"settings": TRACES | {"examples": -1}}, {"setting": "settings.examples", "value": -1}),
    ],
)
def test_a_document_that_cannot_be_run_is_refused(stage, changes, fields, tmp_path):
    read(stage, DOCUMENTS[stage], tmp_path)
    with pytest.raises(ConfigError) as refusal:
        read(stage, DOCUMENTS[stage] | changes, tmp_path)
    assert fields_of(refusal.value, fields) == fields
