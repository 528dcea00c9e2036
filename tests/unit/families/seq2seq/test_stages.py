"""An LSTM with attention through the stages: trained, exported, decoded, distilled from."""

from __future__ import annotations

import json

import pytest

from workflow_src.serving.translator import Translator

LONGER = {"max_steps": 40, "validate_every": 20, "save_every": 20}


@pytest.fixture(scope="module")
def weights(tiny, training_words, run_stage):
    folder = tiny.root / "systems/seq2seq"
    run_stage("train", training_words("seq2seq", folder, **LONGER))
    return folder / "model.safetensors"


@pytest.fixture(scope="module")
def bundle(weights, export_words, run_stage):
    run_stage("export_bundle", export_words(weights, None, weights.parent / "bundle"))
    return weights.parent / "bundle"


def test_it_learns(weights):
    history = [json.loads(line) for line in (weights.parent / "training.jsonl").open()]
    assert history[1]["loss"] < history[0]["loss"] and history[1]["dev_loss"] < history[0]["dev_loss"]


@pytest.mark.parametrize("settings", [{"search": "greedy"}, {"search": "beam", "beam": 3, "length_penalty": 0.6}])
def test_shards_and_batches_change_no_translation(tiny, bundle, run_stage, tmp_path, settings):
    def decoded(name, batch):
        words = ["--settings", json.dumps(settings), "--bundle", str(bundle), "--device", "cpu"]
        words += ["--source", str(tiny.corpus / "dev.de"), "--output", str(tmp_path / name), "--batch", str(batch)]
        run_stage("decode", words)
        return (tmp_path / name).read_text(encoding="utf-8")

    together = decoded("together.txt", 64)
    assert together == decoded("alone.txt", 1) and together.count("\n") == 8 and together.strip()


def test_a_bundle_translates_in_narrow_precision_too(tiny, bundle):
    lines = (tiny.corpus / "dev.de").read_text(encoding="utf-8").splitlines()
    for precision in ("float32", "bfloat16"):
        translator = Translator.load(bundle, device="cpu", threads=1, precision=precision)
        assert len(translator.translate(lines, search="beam", beam=2)) == len(lines)


def test_it_teaches_with_the_engine_that_computes_it(tiny, weights, run_stage, tmp_path):
    def settings(engine):
        return ["--settings", json.dumps({"beam": 2, "length_penalty": 1.0, "batch": 7, "engine": engine})]

    words = [
        "--device",
        "cpu",
        "--model",
        str(weights),
        "--subwords",
        str(tiny.folder),
        "--shard",
        "0",
        "--shards",
        "1",
    ]
    words += ["--source", str(tiny.corpus / "train.de")]
    texts = {}
    for engine in ("auto", "eager"):
        output = tmp_path / engine / "0-of-1.jsonl"
        run_stage("distill", [*words, "--output", str(output), *settings(engine)])
        texts[engine] = output.read_text(encoding="utf-8")
    assert texts["auto"] == texts["eager"] and texts["auto"].count("\n") == 40
