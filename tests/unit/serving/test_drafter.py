"""Bundles of autoregressive systems that carry a drafter, and drafters of other bundles."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from refusals import fields_of

from workflow_src import Translator
from workflow_src.errors import ConfigError
from workflow_src.spec import UNK

LINES = ["der Hund ruht heute", "ein Vogel kommt", "kein Baum bleibt dort", ""]


@pytest.fixture(scope="module")
def bundles(tiny, training_words, run_stage, tmp_path_factory):
    """A teacher and a one-pass system, and bundles of both and of the teacher with that drafter."""
    root = tmp_path_factory.mktemp("drafted")
    words = ["--languages", "de", "en"]
    words += ["--subwords", str(tiny.folder), "--normalisation", json.dumps(tiny.normalisation)]
    weights = {}
    for family in ("transformer", "nat"):
        run_stage("train", training_words(family, root / family))
        weights[family] = root / family / "model.safetensors"

    def export(name, model, *options):
        run_stage("export_bundle", [*words, "--model", str(model), "--output-folder", str(root / name), *options])
        return root / name

    return SimpleNamespace(
        export=export,
        weights=weights,
        plain=export("plain", weights["transformer"]),
        drafter=export("drafter", weights["nat"]),
        carrying=export("carrying", weights["transformer"], "--roles", f"drafter={weights['nat']}"),
    )


def load(folder) -> Translator:
    return Translator.load(folder, device="cpu", threads=1, engine="eager")


def test_a_bundle_checks_drafts_of_the_system_that_it_carries(bundles):
    carrying, plain = load(bundles.carrying), load(bundles.plain)
    expected = plain.translate(LINES, search="greedy", return_scores=True)
    drafted = carrying.translate(LINES, search="verified", return_scores=True)
    outside = plain.translate(LINES, search="verified", drafter=load(bundles.drafter), return_scores=True)
    for actual in (drafted, outside):
        assert [line.text for line in actual] == [line.text for line in expected]
        assert [line.score for line in actual] == pytest.approx([line.score for line in expected], abs=1e-5)
    # Its own searches, and its name, stay.
    assert carrying.translate(LINES) == plain.translate(LINES) and carrying.description.system == "teacher"


def test_a_bundle_drafts_with_the_language_model_that_it_carries(bundles, training_words, run_stage, tmp_path):
    counted = {"name": "lm", "family": "ngram", "preset": "miniature", "data": "raw", "model": {"order": 2}}
    counted["bleu_tokeniser"] = "13a"
    run_stage("train", training_words("ngram", tmp_path / "ngram", settings=counted))
    model = f"language_model={tmp_path / 'ngram/model.safetensors'}"
    drafter = ["--roles", f"drafter={bundles.weights['nat']}"]
    both = load(bundles.export(tmp_path / "both", bundles.weights["transformer"], *drafter, model))
    assert both.translate(LINES, search="verified") == load(bundles.plain).translate(LINES, search="greedy")
    # Whatever is near enough is accepted: drafts of the beam with the language model.
    alone = load(bundles.export(tmp_path / "alone", bundles.weights["nat"], "--roles", model))
    expected = alone.translate(LINES, search="ctc-beam", beam=20, lm_weight=5.0)
    assert expected != alone.translate(LINES, search="ctc-greedy")
    freely = {"search": "verified", "lm_weight": 5.0, "tolerance": 1e6, "top": 60}
    assert both.translate(LINES, **freely) == expected
    # Systems beside a bundle are the same by the names of settings and by their roles.
    counted_alone = load(bundles.export(tmp_path / "lm", tmp_path / "ngram/model.safetensors"))
    systems, plain = {"drafter": load(bundles.drafter), "language_model": counted_alone}, load(bundles.plain)
    assert plain.translate(LINES, **freely, **systems) == expected
    assert plain.translate(LINES, plain.request(**freely, systems=systems)) == expected


@pytest.mark.graphs
def test_graphs_of_a_bundle_check_drafts_of_its_drafter(bundles, tmp_path, monkeypatch):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="needs the extra fast")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    carrying, automatic = (Translator.load(bundles.carrying, "cpu", threads=1, engine=e) for e in ("fast", "auto"))
    expected = carrying.translate(LINES, search="greedy")
    monkeypatch.setattr(carrying.network, "start", None)
    assert carrying.translate(LINES, search="verified", batch=1) == expected
    # Graphs of batches are not there yet.
    assert automatic.prepare(automatic.request("verified", batch=1))
    assert automatic.translate(LINES, search="verified") == expected
    outside = Translator.load(bundles.plain, "cpu", threads=1, engine="fast")
    assert outside.translate(LINES, search="verified", drafter=load(bundles.drafter), batch=1) == expected


def test_a_rank_without_tolerance_is_a_mistake_unless_dev_chose_it(bundles, run_stage, tmp_path):
    carrying, chosen = load(bundles.carrying), {"verified": {"tolerance": 0.0, "top": 2}}
    with pytest.raises(ConfigError) as refused:
        carrying.translate(LINES, search="verified", top=2)
    fields = {"setting": "top", "value": 2, "hint": "add tolerance"}
    assert fields_of(refused.value, fields) == fields
    choice = {"experiment": "e", "rows": [], "search_defaults": chosen, "remove_repetitions": None}
    words = ["--settings", json.dumps(choice), "--bundle", str(bundles.carrying), "--output-folder", str(tmp_path)]
    run_stage("finish_bundle", words)
    finished = load(tmp_path)
    assert finished.translate(LINES, search="verified") == carrying.translate(LINES, search="greedy")
    assert finished.request("verified", tolerance=1.0).settings.top == 2
    with pytest.raises(ConfigError):
        finished.request("verified", top=3)


def test_more_drafts_than_subwords_are_refused(bundles):
    carrying = load(bundles.carrying)
    size = carrying.subwords.target_size
    with pytest.raises(ConfigError) as refused:
        carrying.translate(LINES, search="verified", drafts=size + 1)
    fields = {"setting": "drafts", "value": size + 1, "mentions": (f"{size} or less",)}
    assert fields_of(refused.value, fields) == fields


def test_passes_are_counted_sentence_by_sentence(bundles):
    carrying = load(bundles.carrying)
    hypotheses = carrying.search(LINES, carrying.request("verified", tolerance=1e6, top=UNK))
    greedy = carrying.search(LINES, carrying.request("greedy", return_scores=True))
    assert [0 < passes for passes in hypotheses.steps] == [True, True, True, False]
    exact = carrying.search(LINES, carrying.request("verified", return_scores=True)).steps
    assert all(passes <= len(words) + 1 for passes, words in zip(exact, greedy.tokens, strict=True))


def test_without_a_drafter_there_is_nothing_to_check(bundles):
    plain = load(bundles.plain)
    with pytest.raises(ConfigError) as refused:
        plain.translate(LINES, search="verified")
    fields = {"setting": "drafter", "mentions": ("translates in one pass",), "hint": "name one as drafter"}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(ConfigError) as refused:
        plain.translate(LINES, search="verified", drafter=load(bundles.plain))
    fields = {"setting": "drafter", "value": "teacher", "mentions": ("translates in one pass", "nat")}
    assert fields_of(refused.value, fields) == fields
    drafter, others = load(bundles.drafter), SimpleNamespace(digest="another", placeholders=None)
    other_subwords = Translator(drafter.description, drafter.models, others, drafter.runtime)
    with pytest.raises(ConfigError) as refused:
        plain.translate(LINES, search="verified", drafter=other_subwords)
    fields = {"setting": "drafter", "mentions": ("subwords",)}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(ConfigError) as refused:
        load(bundles.carrying).translate(LINES, search="verified", draft_search="argmax")
    fields = {"setting": "draft_search", "value": "argmax", "allowed": ("ctc-beam", "ctc-greedy")}
    assert fields_of(refused.value, fields) == fields
