"""What a configuration may ask of an LSTM with attention: all that it may ask of a teacher, but no other engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from refusals import refuses

from workflow_src.config import load
from workflow_src.config.files import CONFIG_FOLDER, merge, read_yaml
from workflow_src.config.plan import Plan
from workflow_src.config.resources import Requests

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")
TRAINING = {"max_steps": 2, "batch_tokens": 100}
LSTM = {"family": "seq2seq", "preset": "miniature", "training": TRAINING}


def experiment(*decodes: dict[str, Any], **others: Any) -> dict[str, Any]:
    return merge(SMOKE, {"systems": {"lstm": LSTM, **others}, "decodes": list(decodes)})


def test_it_teaches_ranks_and_is_decoded_by_the_searches_that_exist():
    one_pass = {"family": "nat", "preset": "miniature", "data": "distilled-by-lstm", "training": TRAINING}
    plan = Plan(
        load(
            experiment(
                {"system": "lstm", "search": "greedy"},
                {"system": "lstm", "search": "beam", "beam": [1, 2], "tune": {"length_penalty": [0.5, 1.0]}},
                {"system": "lstm", "search": "beam", "beam": 2, "rescorer": "teacher", "name": "ranked"},
                {"system": "student", "search": "ctc-beam", "beam": 2, "rescorer": "lstm"},
                {"system": "teacher", "search": "beam", "beam": 2, "rescorer": "lstm", "name": "by-lstm"},
                student=one_pass,
            )
        )
    )
    assert "lstm" in plan.teachers and plan.systems_of("train_teacher") == ["teacher", "lstm"]
    settings = json.loads(plan.settings_training("lstm"))
    assert settings["family"] == "seq2seq" and settings["model"]["encoder_dim"] == 12
    # Reports, speed and requests ask for titles, labels and weights.
    assert plan.settings_report() and plan.settings_speed()
    needs = Requests(plan, gpu=False)
    assert needs.need("train_teacher", type("Wildcards", (), {"system": "lstm"}))[0] > 0


@pytest.mark.parametrize(
    ("decode", "fields"),
    [
        (
            {"search": "beam", "beam": 4, "engine": "ctranslate2"},
            {
                "setting": "decodes[0].engine",
                "problem": "it computes systems of family transformer only, not of seq2seq; remove the engine",
            },
        ),
        (
            {"search": "greedy", "engine": "onnxruntime"},
            {"setting": "decodes[0].engine", "mentions": ("greedy has none",)},
        ),
    ],
)
def test_engines_that_do_not_know_it_are_refused_in_one_sentence(decode, fields):
    with refuses(**fields):
        load(experiment({"system": "lstm", **decode}))


@pytest.mark.parametrize("distillation", [{}, {"beam": 3, "max_length_ratio": 1.5, "shards": 3}])
def test_it_distils_with_the_settings_of_the_search(distillation):
    loaded = load(experiment({"system": "lstm", "search": "greedy"}) | {"distillation": {"lstm": distillation}})
    settings = loaded.config.distillation["lstm"].search_settings()
    written = json.loads(Plan(loaded).settings_distillation("lstm"))
    assert (written.pop("batch"), written.pop("engine")) == (128, "auto")
    # Settings that name other systems, or need one, are none of a teacher's.
    assert written.keys() == {"beam", "length_penalty", "max_length_ratio"}
    assert written.items() <= settings.model_dump(mode="json").items()
    assert (settings.beam, settings.max_length_ratio) == (
        distillation.get("beam", 4),
        distillation.get("max_length_ratio", 2.0),
    )


@pytest.mark.parametrize("engine, refused", [("auto", False), ("eager", False), ("ctranslate2", True)])
def test_it_distils_with_the_engine_that_computes_it(engine, refused):
    content = experiment({"system": "lstm", "search": "greedy"}) | {"distillation": {"lstm": {"engine": engine}}}
    if not refused:
        assert load(content).config.distillation["lstm"].engine == engine
        return
    with refuses(setting="distillation.lstm.engine"):
        load(content)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ({"heads": 4}, {"setting": "systems.lstm.model.heads", "nearest": None}),
        ({"encoder_dim": 0}, {"setting": "systems.lstm.model.encoder_dim", "value": 0}),
        ({"dropout": 1.0}, {"setting": "systems.lstm.model.dropout", "value": 1.0}),
    ],
)
def test_settings_that_it_has_not_are_refused(model, fields):
    with refuses(**fields):
        load(experiment({"system": "lstm", "search": "greedy"}, lstm=LSTM | {"model": model}))
