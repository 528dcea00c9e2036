"""Drafters in experiments: which systems may draft, what decodes are called, and what bundles carry."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from refusals import refuses

from workflow_src.config import Plan
from workflow_src.config.load import load
from workflow_src.evaluation.manifest import Manifest

CTC = {"drafter": "ctc"}


def experiment(*decodes, **systems):
    """`smoke` with these decodes of its teacher, and further systems."""
    entries = [{"system": "teacher", "search": "verified", **decode} for decode in decodes]
    return load({"experiment": "mine", "extends": "smoke", "systems": systems, "decodes": entries})


def test_names_of_decodes_say_how_drafts_are_made_and_accepted():
    loaded = experiment(
        {"drafter": ["ctc", "lvm"]},
        {"drafter": "ctc", "tolerance": 3.0, "top": 2, "drafts": 3, "block": 12},
        {"drafter": "lvm", "draft_search": "delta"},
        {"drafter": "ctc", "tune": ["tolerance", "top"]},
        {"drafter": "ctc", "drafts": 2, "engine": "cuda_graphs"},
        {"drafter": "ctc", "engine": ["onnxruntime", "onnxruntime-int8"]},
        {"drafter": "ctc", "language_model": "lm", "lm_weight": 0.4, "draft_beam": 5, "tune": ["tolerance"]},
    )
    assert [decode.name for decode in loaded.decodes] == [
        "verified-from-ctc",
        "verified-from-lvm",
        "verified-from-ctc-drafts3-tolerance3-top2-block12",
        "verified-from-lvm-by-delta",
        "verified-from-ctc-tuned",
        "verified-from-ctc-drafts2-cuda_graphs-float32",
        "verified-from-ctc-onnxruntime-float32",
        "verified-from-ctc-onnxruntime-int8",
        "verified-from-ctc-with-lm-weight0.4-beam5-tuned",
    ]
    assert loaded.decodes[4].tune == {"tolerance": [0.0, 0.5, 1.0, 2.0, 3.0], "top": [2, 3, 5]}


def test_labels_show_tolerance_and_passes():
    decodes = [
        {"drafter": "ctc"},
        {"drafter": "ctc", "tolerance": 3.0},
        {"drafter": "ctc", "drafts": 2},
        {"drafter": "ctc", "language_model": "lm"},
    ]
    plan = Plan(experiment(*decodes))
    labels = [decode.label(2.54) for decode in Manifest.of(plan, {}.__getitem__).decodes]
    assert labels == [
        "verified, a draft of ctc (2.5 passes used)",
        "verified, a draft of ctc (tolerance 3; 2.5 passes used)",
        "verified, 2 drafts of ctc (2.5 passes used)",
        "verified, a draft of ctc, beam 20, with lm (2.5 passes used)",
    ]


def test_a_decode_follows_the_bundles_of_what_drafts():
    for decode in ({"drafter": "ctc"}, {"drafter": "ctc", "language_model": "lm"}):
        plan = Plan(experiment(decode))
        (name,) = [decode.name for decode in plan.loaded.decodes]
        files = plan.decode_inputs(SimpleNamespace(system="teacher", seed="1", search=name))
        systems = {"bundle": "teacher"} | decode
        assert files == {role: plan.exported_file(system, "1") for role, system in systems.items()}
        assert set(plan.exported) == set(systems.values())


@pytest.mark.parametrize(
    ("decode", "setting", "fields"),
    [
        ({}, "drafter", {}),
        ({"drafter": "teacher"}, "drafter", {"value": "teacher", "allowed": ("ctc", "lvm")}),
        ({"drafter": "lm"}, "drafter", {"value": "lm", "allowed": ("ctc", "lvm")}),
        ({"drafter": "score"}, "drafter", {"value": "score", "allowed": ("ctc", "lvm")}),
        ({"drafter": "lvm", "drafts": 2}, "drafts", {"value": 2, "hint": "lower it"}),
        (CTC | {"draft_search": "argmax"}, "draft_search", {"allowed": ("ctc-beam", "ctc-greedy")}),
        (CTC | {"draft_search": "ctc-greedy", "drafts": 2}, "draft_search", {"allowed": ("ctc-beam",)}),
        ({"drafter": "lvm", "language_model": "lm"}, "language_model", {"value": "lm"}),
        (CTC | {"draft_search": "ctc-greedy", "language_model": "lm"}, "draft_search", {"allowed": ("ctc-beam",)}),
        (CTC | {"language_model": "ctc"}, "language_model", {"allowed": ("lm",)}),
        (CTC | {"lm_weight": 0.3}, "lm_weight", {"hint": "add language_model"}),
        (CTC | {"word_bonus": 1.0}, "word_bonus", {"hint": "add language_model"}),
        (CTC | {"draft_beam": 5}, "draft_beam", {"hint": "add language_model"}),
        (CTC | {"top": 3}, "top", {"value": 3, "hint": "add tolerance"}),
        # Also a value without effect.
        (CTC | {"tune": {"tolerance": [0.0], "top": [2, 0]}}, "tune.top", {"value": 0}),
        (CTC | {"tune": ["top"]}, "tune.top", {"hint": "add tolerance"}),
        (CTC | {"tolerance": -1.0}, "tolerance", {"value": -1.0}),
        (CTC | {"system": "lstm", "engine": "onnxruntime"}, "engine", {"mentions": ("verified", "seq2seq")}),
        (CTC | {"engine": "ctranslate2"}, "engine", {"value": "ctranslate2"}),
    ],
)
def test_what_cannot_draft_is_refused(decode, setting, fields):
    lstm = {"family": "seq2seq", "preset": "miniature", "training": {"preset": "smoke", "max_steps": 2}}
    with refuses(setting=f"decodes[0].{setting}", **fields):
        experiment(decode, lstm=lstm)


PLUGIN = """
import dataclasses
from workflow_src.decoding.settings import LmWeight, PrefixLanguageModel
from workflow_src.searches.ctc_beam import SEARCH
from workflow_src.spec import Plugin, SearchSettings

class Settings(SearchSettings):
    language_model: PrefixLanguageModel
    lm_weight: LmWeight

SEARCH = dataclasses.replace(SEARCH, name="fused", settings=Settings, families=("nat",), series=None, graph=None,
                             width=lambda settings: 1, held=None, label=None)
PLUGIN = Plugin("fused", "1", searches=(SEARCH,))
"""


def test_a_plug_in_search_with_other_settings_for_a_language_model_makes_no_drafts(own_module):
    own_module("fused", PLUGIN)
    decode = {"system": "teacher", "search": "verified", "drafter": "ctc", "language_model": "lm"}
    mine = {"experiment": "mine", "extends": "smoke", "plugins": ["fused"], "decodes": [decode]}
    assert [decode.values.draft_beam for decode in load(mine).decodes] == [20]
    with refuses(setting="decodes[0].draft_search", allowed=("ctc-beam",)):
        load(mine | {"decodes": [decode | {"draft_search": "fused"}]})


def test_a_teacher_may_carry_a_drafter_that_it_taught():
    """No circle: texts are distilled by the weights, and its bundle is made when both are trained."""
    loaded = experiment({"drafter": "ctc"}, teacher={"carries": {"drafter": "ctc"}})
    plan = Plan(loaded)
    assert plan.system("teacher").carries == {"drafter": "ctc"} and plan.system("ctc").teachers == ["teacher"]
    with refuses(setting="systems.teacher.carries.drafter", value="lm", allowed=("ctc", "lvm")):
        experiment({"drafter": "ctc"}, teacher={"carries": {"drafter": "lm"}})
