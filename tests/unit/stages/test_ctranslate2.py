"""A trained bundle as a CTranslate2 folder: same translations as our own search, and the same distilled text."""

import json
import shutil

import pytest
from refusals import fields_of
from stage_words import distill_words

from workflow_src.engines.ctranslate2_spec import FIX
from workflow_src.errors import ConfigError, InputError
from workflow_src.records.atomic import read_json
from workflow_src.serving.translator import Translator

pytest.importorskip("ctranslate2", reason="needs the extra fast")


@pytest.fixture(scope="module")
def exported(teacher, run_stage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("system") / "ctranslate2"
    words = ["--settings", "{}", "--bundle", str(teacher[0]), "--output-folder", str(folder)]
    assert run_stage("export_engine", ["--engine", "ctranslate2", *words]).startswith("teacher is in ")
    # Once more into the same place: nothing of the first time is in the way.
    run_stage("export_engine", ["--engine", "ctranslate2", *words])
    return folder


@pytest.fixture(scope="module")
def lines(tiny):
    return [pair[0] for pair in tiny.pairs] + ["", "Ein Fjord?"]


def test_the_folder_holds_all_a_translation_needs(exported):
    names = {path.name for path in exported.iterdir()}
    assert names == {"model.bin", "config.json", "shared_vocabulary.json", "bundle.json", "subwords"}
    assert [path.name for path in exported.parent.iterdir()] == [exported.name]
    description = read_json(exported / "bundle.json")
    assert description["engine"] == "ctranslate2" and description["provenance"]["ctranslate2"]
    # The default search comes first.
    assert description["searches"] == ["beam", "greedy"]


@pytest.mark.parametrize("settings", [{"search": "greedy"}, {"search": "beam", "beam": 4}, {}])
def test_translations_are_those_of_the_bundle(exported, teacher, lines, settings):
    expected = Translator.load(teacher[0], "cpu", "float32", threads=1).translate(lines, **settings)
    for threads in (1, 2):
        converted = Translator.load(exported, "cpu", threads=threads)
        assert (converted.device, converted.precision) == ("cpu", "float32")
        for batch in (3, 64):
            translations = converted.translate(lines, batch=batch, **settings)
            is_cut = converted.search(lines, converted.request(batch=batch, **settings, return_scores=True)).cut
            cut = {i for i, cut_short in enumerate(is_cut) if cut_short}
            assert len(cut) < len(lines)
            assert [x for i, x in enumerate(translations) if i not in cut] == [
                x for i, x in enumerate(expected) if i not in cut
            ]
    assert converted.translate([], **settings) == []


def test_a_decode_uses_its_compute_type(exported, lines, run_stage, tmp_path):
    (tmp_path / "test.de").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    texts = {}
    for compute_type in ("float32", "int8"):
        settings = {"search": "beam", "beam": 2, "engine": "ctranslate2", "compute_type": compute_type}
        output = tmp_path / compute_type / "test.txt"
        words = ["--settings", json.dumps(settings), "--bundle", str(exported), "--source", str(tmp_path / "test.de")]
        run_stage("decode", [*words, "--output", str(output)])
        texts[compute_type] = output.with_suffix(".jsonl").read_text(encoding="utf-8")
    assert texts["float32"] != texts["int8"]
    assert all(len(text.splitlines()) == len(lines) for text in texts.values())


def test_hypotheses_are_those_of_the_bundle(exported, teacher, lines):
    own, converted = (Translator.load(folder, "cpu", "float32", threads=1) for folder in (teacher[0], exported))
    settings = {"beam": 4, "n_best": 4, "max_length_ratio": 4.0}
    expected, translations = (translator.translate(lines, **settings) for translator in (own, converted))
    assert [translation.text for translation in translations] == converted.translate(
        lines, beam=4, max_length_ratio=4.0
    )
    same = 0
    for translation, other in zip(expected, translations, strict=True):
        scores = [hypothesis.score for hypothesis in other.hypotheses]
        assert scores == sorted(scores, reverse=True) and other.source == translation.source
        same += [hypothesis.subwords for hypothesis in translation.hypotheses] == [h.subwords for h in other.hypotheses]
        assert other.score == pytest.approx(translation.score, abs=2e-3)
    # Both keep finished hypotheses; the last ones may differ.
    assert same > 0.8 * len(lines)
    with pytest.raises(ConfigError) as refused:
        converted.translate(lines, search="greedy", n_best=2)
    assert fields_of(refused.value, {"setting": "n_best", "value": 2, "hint": "take search beam"})
    with pytest.raises(ConfigError) as refused:
        converted.translate(lines, return_origins=True)
    assert refused.value.setting == "return_origins"


def test_distilled_text_is_the_same_whoever_computes_it(tiny, teacher, run_stage, tmp_path):
    distilled = {}
    for engine in ("eager", "ctranslate2", "auto"):
        output = tmp_path / engine
        source = tiny.corpus / "train.de"
        words = distill_words(teacher[1], tiny.folder, source, output, beam=4, engine=engine)
        run_stage("distill", [*words, "--threads", "2"])
        distilled[engine] = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    by_own_code = distilled["eager"]
    assert len(by_own_code) == 40
    for engine in ("ctranslate2", "auto"):
        assert [entry["text"] for entry in distilled[engine]] == [entry["text"] for entry in by_own_code]
        assert [entry["score"] for entry in distilled[engine]] == pytest.approx(
            [e["score"] for e in by_own_code], abs=2e-3
        )


def test_bad_input_is_one_sentence(exported, teacher, tiny_bundles, refused, tmp_path, monkeypatch):
    words = ["--settings", "{}", "--bundle", str(tiny_bundles["lvm"]), "--output-folder", str(tmp_path / "x")]
    error = refused("export_engine", ["--engine", "ctranslate2", *words])
    assert "holds lvm; " in str(error) and "transformer only" in str(error)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError) as failure:
        Translator.load(exported, "cpu", "float16", 1)
    assert (failure.value.setting, failure.value.value) == ("precision", "float16")
    translator = Translator.load(exported, "cpu", threads=1)
    with pytest.raises(InputError) as failure:
        translator.search(["Hund " * 60], translator.request(return_scores=True), first_line=7)
    fields = {"subject": "line 7", "mentions": (" 59",)}
    assert fields_of(failure.value, fields) == fields
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    words[3] = str(teacher[0])
    error = refused("export_engine", ["--engine", "ctranslate2", *words])
    assert (error.setting, error.value) == ("engine", "ctranslate2")
    with pytest.raises(ConfigError) as failure:
        Translator.load(exported, "cpu", threads=1)
    assert (failure.value.setting, failure.value.hint) == ("engine", FIX)


def test_a_damaged_folder_is_refused(exported, tmp_path):
    copy = shutil.copytree(exported, tmp_path / "copy")
    (copy / "model.bin").write_bytes(b"not a model")
    with pytest.raises(InputError, match=r"model\.bin "):
        Translator.load(copy, "cpu", threads=1)
