"""A converted model from elsewhere as a system: it translates, distils and ranks as the teacher that it was made from.

The model is our own teacher, exported to CTranslate2 and left with its SentencePiece model alone; the recipe that it
becomes a system of has other subwords, so that everything passes through text.
"""

import json
import shutil

import numpy as np
import pytest
import sentencepiece
import torch
from refusals import fields_of
from stage_words import distill_words

from workflow_src.config.preparation import NormalisationConfig, SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.batching import pad
from workflow_src.data.normalise import Normaliser
from workflow_src.engines.ctranslate2 import CTranslate2Session
from workflow_src.engines.session import Request
from workflow_src.errors import ConfigError, InputError
from workflow_src.families.ctranslate2 import CTranslate2Config, files
from workflow_src.families.ctranslate2.sizes import weights_of
from workflow_src.records.atomic import read_json, sha256, write_json
from workflow_src.registry import searches
from workflow_src.serving.translator import Translator
from workflow_src.training.systems import load_system

pytest.importorskip("ctranslate2", reason="needs the extra fast")


@pytest.fixture(scope="module")
def outside(tiny, teacher, run_stage, tmp_path_factory):
    """A folder as converters write it: the model, its vocabulary, its SentencePiece model."""
    root = tmp_path_factory.mktemp("outside")
    words = ["--bundle", str(teacher[0]), "--output-folder", str(root / "export")]
    run_stage("export_engine", ["--engine", "ctranslate2", "--settings", "{}", *words])
    folder = root / "opus-mt-tiny"
    folder.mkdir()
    for name in ("model.bin", "config.json", "shared_vocabulary.json"):
        shutil.copy(root / "export" / name, folder)
    shutil.copy(tiny.folder / "joint.model", folder / "both.spm")
    return folder


@pytest.fixture(scope="module")
def other_subwords(tiny, tmp_path_factory):
    """Subwords of the recipe, which are not the model's."""
    folder = tmp_path_factory.mktemp("recipe") / "subwords"
    settings = SubwordsConfig(vocabulary_size=55, joint=True)
    subwords.learn(settings, tiny.corpus / "train.de", tiny.corpus / "train.en", folder)
    return folder


def model_settings(folder, **settings):
    sides = {"source_subwords": "both.spm", "target_subwords": "both.spm"}
    return {"folder": str(folder), "max_positions": 60} | sides | settings


@pytest.fixture
def learn_with_spans(tiny, tmp_path):
    """Learns subwords of the recipe with placeholders of these kinds, in the folder of the test."""

    def learn(*kinds):
        settings = SubwordsConfig(vocabulary_size=70, joint=True)
        sides = tiny.corpus / "train.de", tiny.corpus / "train.en"
        return subwords.learn(settings, *sides, tmp_path / "subwords", placeholders=kinds)

    return learn


def import_words(model, recipe_subwords, output, **normalisation):
    settings = {"name": "outside", "family": "ctranslate2", "model": model}
    by_name = files(CTranslate2Config(**model))
    words = ["--settings", json.dumps(settings), "--languages", "de", "en", "--seed", "1"]
    words += ["--subwords", str(recipe_subwords)]
    words += ["--files", *(f"{name}={path}" for name, path in by_name.items())]
    normalisation = NormalisationConfig(**normalisation).model_dump(mode="json")
    return [*words, "--normalisation", json.dumps(normalisation), "--output-folder", str(output)]


@pytest.fixture(scope="module")
def imported(outside, other_subwords, run_stage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("system") / "bundle"
    run_stage("import_model", import_words(model_settings(outside), other_subwords, folder))
    return folder


@pytest.fixture(scope="module")
def export(outside):
    """Our own teacher, decoded by the same engine."""
    return Translator.load(outside.parent / "export", "cpu", threads=1)


@pytest.fixture(scope="module")
def lines(tiny):
    return [pair[0] for pair in tiny.pairs] + [""]


@pytest.mark.parametrize("settings", [{"search": "greedy"}, {"search": "beam", "beam": 4}, {}])
@pytest.mark.parametrize("threads", [1, 2])
def test_its_translations_are_those_of_the_model(imported, export, lines, settings, threads):
    translator = Translator.load(imported, "cpu", threads=threads)
    assert translator.subwords.digest != export.subwords.digest
    expected = export.translate(lines, **settings)
    assert len(set(expected)) > 3
    assert translator.translate(lines, batch=5, **settings) == expected
    assert translator.translate(lines, normalised=True, **settings) == expected


def test_the_bundle_holds_all_a_translation_needs(imported, outside, export, lines):
    description = read_json(imported / "bundle.json")
    inputs = description["provenance"]["inputs"]
    # Another model is another record, so that verify and reruns see it.
    assert inputs["file model.bin"]["sha256"] == sha256(outside / "model.bin")
    assert description["searches"] == ["beam", "greedy"] and description["engine"] == "ctranslate2"
    copy = shutil.copytree(imported, imported.parent / "elsewhere")
    outside.rename(outside.with_name("gone"))
    try:
        assert Translator.load(copy, "cpu", threads=1).translate(lines[:3]) == export.translate(lines[:3])
    finally:
        outside.with_name("gone").rename(outside)


def test_a_decode_writes_subwords_of_the_recipe(imported, outside, other_subwords, lines, run_stage, tmp_path):
    (tmp_path / "test.de").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    settings = {"search": "beam", "beam": 4, "engine": "ctranslate2", "compute_type": "float32"}
    words = ["--settings", json.dumps(settings), "--source", str(tmp_path / "test.de"), "--batch", "7"]
    texts = {}
    for name, folder in (("outside", imported), ("own", outside.parent / "export")):
        output = tmp_path / name / "test.txt"
        run_stage("decode", [*words, "--bundle", str(folder), "--output", str(output)])
        texts[name] = output.read_text(encoding="utf-8")
    assert texts["outside"] == texts["own"]
    records = [json.loads(line) for line in (tmp_path / "outside/test.jsonl").read_text("utf-8").splitlines()]
    pieces = set(subwords.Subwords.load(other_subwords).names()["target"])
    assert {piece for record in records for piece in record["subwords"]} <= pieces
    details = [json.loads(line) for line in (tmp_path / "own/test.jsonl").read_text("utf-8").splitlines()]
    assert [record["score"] for record in records] == pytest.approx([record["score"] for record in details], abs=1e-4)


def test_it_distils_as_its_teacher_in_any_number_of_shards(
    tiny, imported, teacher, other_subwords, run_stage, tmp_path
):
    source = tmp_path / "train.de"
    source.write_text((tiny.corpus / "train.de").read_text("utf-8") + "\n" + "Hund " * 80 + "\n", encoding="utf-8")
    run_stage("distill", distill_words(teacher[1], tiny.folder, source, tmp_path / "own.jsonl", beam=4))
    expected = [json.loads(line) for line in (tmp_path / "own.jsonl").read_text("utf-8").splitlines()]
    for shards in (1, 3):
        paths = [tmp_path / f"{shard}-of-{shards}.jsonl" for shard in range(shards)]
        for shard, path in enumerate(paths):
            words = distill_words(imported / "bundle.json", other_subwords, source, path, shard, shards, beam=4)
            summary = run_stage("distill", words)
        assert summary.endswith(" empty") and ", 1 too long" in summary
        words = ["--settings", '{"beam": 4}', "--shards", *map(str, paths), "--model", str(imported / "bundle.json")]
        words += ["--subwords", str(other_subwords), "--source", str(source)]
        words += ["--output-text", str(tmp_path / "train.en"), "--output-scores", str(tmp_path / "scores.txt")]
        run_stage("merge_distilled", words)
        assert (tmp_path / "train.en").read_text("utf-8").splitlines() == [entry["text"] for entry in expected]
        scores = np.loadtxt(tmp_path / "scores.txt")
        assert scores == pytest.approx([entry["score"] for entry in expected], abs=2e-3)


def test_placeholders_of_lines_that_are_not_translated_are_not_counted(learn_with_spans, outside, run_stage, tmp_path):
    learn_with_spans("variables")
    run_stage("import_model", import_words(model_settings(outside), tmp_path / "subwords", tmp_path / "bundle"))
    source = tmp_path / "train.de"
    source.write_text("der Hund {}\n" + "{name} Hund " * 80 + "\n", encoding="utf-8")
    words = distill_words(tmp_path / "bundle/bundle.json", tmp_path / "subwords", source, tmp_path / "train.jsonl")
    assert "empty; of 1 placeholders, " in run_stage("distill", words)


def test_it_scores_outputs_as_its_teacher_does(tiny, imported, teacher, other_subwords):
    network = Translator.load(imported, "cpu", threads=1).network
    model, _ = load_system(teacher[1])
    recipe = subwords.Subwords.load(other_subwords)
    sources, outputs = zip(*tiny.pairs[:5], strict=True)
    outputs = [*outputs[1:], ""]

    def batch(vocabulary):
        source = pad(vocabulary.encode_source(list(sources)), eos=True)
        return source, pad(vocabulary.encode_target(list(outputs)), eos=False)

    with torch.no_grad():
        source, target = batch(tiny.subwords)
        expected = model.eval().log_probabilities(source, target).sum(1)
    source, target = batch(recipe)
    scores = network.log_probability(network.scoring_states(source), target)
    assert scores.tolist() == pytest.approx(expected.tolist(), abs=2e-3)
    # A sentence may have several outputs.
    rows = torch.tensor([2, 0, 2])
    scores = network.log_probability(network.scoring_states(source).select(rows), target[rows])
    assert scores.tolist() == pytest.approx(expected[rows].tolist(), abs=2e-3)


def test_what_is_too_long_for_it_has_no_score(imported, other_subwords):
    network = Translator.load(imported, "cpu", threads=1).network
    recipe = subwords.Subwords.load(other_subwords)
    source = pad(recipe.encode_source(["Hund " * 80, "der Hund", "der Hund"]), eos=True)
    target = pad(recipe.encode_target(["the dog", "dog " * 80, "the dog"]), eos=False)
    scores = network.log_probability(network.scoring_states(source), target)
    assert torch.isfinite(scores).tolist() == [False, False, True]


def test_it_ranks_candidates_of_another_system(tiny, tiny_bundles, teacher, outside, run_stage, tmp_path):
    """Its choice is that of the teacher itself, whose subwords the ranked system shares."""
    run_stage("import_model", import_words(model_settings(outside), tiny.folder, tmp_path / "bundle"))
    ranked = Translator.load(tiny_bundles["transformer"], "cpu", "float32", 1, engine="eager")
    lines = [pair[0] for pair in tiny.pairs[:12]]
    settings = {"search": "beam", "beam": 4, "length_penalty": 0.0}
    outputs = {}
    for name, folder in (("teacher", teacher[0]), ("outside", tmp_path / "bundle")):
        rescorer = Translator.load(folder, "cpu", "float32", 1, engine="eager")
        request = ranked.request(**settings, rescorer=rescorer, return_scores=True)
        outputs[name] = ranked.search(lines, request)
    assert outputs["outside"].tokens == outputs["teacher"].tokens
    assert outputs["outside"].scores == pytest.approx(outputs["teacher"].scores, abs=1e-3)
    single = ranked.search(lines, ranked.request(**settings, return_scores=True))
    assert single.tokens != outputs["teacher"].tokens


@pytest.mark.parametrize("line", ["der Hund ruht", "der Hund %1 ruht"])
def test_it_ranks_no_ids_that_stand_for_placeholders(
    learn_with_spans, tiny_bundles, outside, run_stage, tmp_path, line
):
    learned = learn_with_spans("variables")
    run_stage("import_model", import_words(model_settings(outside), tmp_path / "subwords", tmp_path / "bundle"))
    rescorer = Translator.load(tmp_path / "bundle", "cpu", "float32", 1, engine="eager")
    translator = Translator.load(tiny_bundles["transformer"], "cpu", "float32", 1, engine="eager")
    ranked = type(translator)(translator.description, translator.models, learned, translator.runtime)
    fields = {"setting": "rescorer", "value": "outside"}
    with pytest.raises(ConfigError) as refused:
        ranked.translate([line], "beam", beam=4, rescorer=rescorer)
    assert fields_of(refused.value, fields) == fields


def test_tokenised_text_is_put_together_for_it(outside, other_subwords, run_stage, tmp_path):
    words = import_words(model_settings(outside), other_subwords, tmp_path / "bundle", moses_tokenise=True)
    run_stage("import_model", words)
    normaliser = Normaliser(NormalisationConfig(moses_tokenise=True), "de")
    raw = ["der Hund, ruht heute.", "ein Mann (kommt) dort"]
    tokenised = [normaliser.line(line) for line in raw]
    assert all(one != other for one, other in zip(tokenised, raw, strict=True))
    translator = Translator.load(tmp_path / "bundle", "cpu", threads=1)
    model = sentencepiece.SentencePieceProcessor(model_file=str(outside / "both.spm"))
    vocabulary = read_json(outside / "shared_vocabulary.json")
    encoded = translator.network.encode_source(tokenised)
    assert [[vocabulary[i] for i in ids] for ids in encoded] == [
        [piece if piece in vocabulary else "<unk>" for piece in pieces] for pieces in model.encode_as_pieces(raw)
    ]
    assert translator.translate(raw) == translator.translate(tokenised, normalised=True)


def test_outputs_are_normalised_as_targets_are(tiny, outside, other_subwords, export, lines, run_stage, tmp_path):
    # A model that writes capitals in a word that the other one writes.
    (tokens,) = export.search(lines[:1], export.request("beam")).tokens
    (piece,) = tiny.subwords.pieces_target(tokens[-1:])
    upper = shutil.copytree(outside, tmp_path / "upper")
    names = [piece.upper() if name == piece else name for name in read_json(outside / "shared_vocabulary.json")]
    assert piece.upper() != piece
    (upper / "shared_vocabulary.json").write_text(json.dumps(names), encoding="utf-8")
    texts = {}
    for lowercase in (False, True):
        folder = tmp_path / str(lowercase)
        normalisation = {"lowercase": True, "references": "normalised"} if lowercase else {}
        run_stage("import_model", import_words(model_settings(upper), other_subwords, folder, **normalisation))
        texts[lowercase] = Translator.load(folder, "cpu", threads=1).translate([line.lower() for line in lines])
    assert any(text != text.lower() for text in texts[False])
    assert texts[True] == [text.lower() for text in texts[False]]


def test_tokens_around_sentences(tiny, teacher, outside, other_subwords, run_stage, tmp_path):
    """Prefixes and suffixes have the same effect as the same tokens in the text."""
    names = tiny.subwords.names()["target"]
    ids = tiny.subwords.encode_source(["der Hund ruht"])[0]
    pieces, begin = [names[i] for i in ids], names[5]
    model = model_settings(outside, source_prefix=pieces[:2], source_suffix=pieces[-1:], target_prefix=[begin])
    run_stage("import_model", import_words(model, other_subwords, tmp_path / "bundle"))
    engine = Translator.load(tmp_path / "bundle", "cpu", threads=1).network.library
    request = Request(searches()["beam"].settings(beam=3, max_length_ratio=2.0))
    output = engine.search([ids[2:-1]], request).tokens[0]
    plain = CTranslate2Session(outside.parent / "export", tiny.subwords.names(), engine.max_positions)
    longest = min(2 * (len(ids) - 3) + 10, engine.max_positions - 1) + 1
    (expected,) = plain.translator.translate_batch(
        [pieces], target_prefix=[[begin]], beam_size=3, max_decoding_length=longest
    )
    assert output and [begin, *(names[i] for i in output)] == expected.hypotheses[0]
    # log p of the output without its prefix, which is no choice of the model.
    with torch.no_grad():
        network, _ = load_system(teacher[1])
        scores = network.eval().log_probabilities(pad([ids], eos=True), pad([[5, *output]], eos=False))[0]
    assert engine.score([ids[2:-1]], [output], 8) == pytest.approx([float(scores[1:].sum())], abs=2e-3)


def test_weights_are_those_of_the_model(outside, tiny, systems):
    config = read_json(systems["transformer"].with_name("config.json"))
    network, _ = load_system(systems["transformer"])
    matrices = {name: p.numel() for name, p in network.named_parameters() if p.dim() == 2}
    counted = {part: sum(n for name, n in matrices.items() if name.startswith(part)) for part in ("encoder", "decoder")}
    output = tiny.subwords.target_size * config["model"]["dim"]
    assert weights_of(outside / "model.bin") == counted | {"output": output}
    assert set(weights_of(outside / "config.json").values()) == {0}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda folder: (folder / "model.bin").write_bytes(b"nothing"), "cannot be loaded by CTranslate2"),
        (lambda folder: (folder / "both.spm").write_bytes(b"nothing"), "is no SentencePiece model"),
        (lambda folder: write_json(folder / "shared_vocabulary.json", ["a", "b"]), "vocabulary knows"),
        (lambda folder: write_json(folder / "shared_vocabulary.json", {"a": 1}), "is no list of tokens"),
        (lambda folder: write_json(folder / "config.json", ["a"]), "config.json cannot be used"),
        (lambda folder: (folder / "config.json").unlink(), "config.json does not exist"),
        (lambda folder: (folder / "both.spm").unlink(), "both.spm does not exist"),
    ],
)
def test_files_that_do_not_fit_are_one_sentence(outside, other_subwords, refused, tmp_path, change, problem):
    folder = shutil.copytree(outside, tmp_path / "model")
    change(folder)
    output = tmp_path / "bundle"
    assert problem in str(refused("import_model", import_words(model_settings(folder), other_subwords, output)))
    assert not (output / "bundle.json").exists()


def test_tokens_that_the_model_has_not_are_refused(outside, other_subwords, refused, tmp_path):
    model = model_settings(outside, target_prefix=["eng_Latn"])
    error = refused("import_model", import_words(model, other_subwords, tmp_path / "bundle"))
    assert "model.target_prefix" in str(error) and "eng_Latn" in str(error)


def test_long_lines_are_refused_by_number_or_cut(imported):
    translator = Translator.load(imported, "cpu", threads=1)
    lines = ["der Hund", "Hund " * 80]
    with pytest.raises(InputError) as refused:
        translator.search(lines, translator.request(return_scores=True), first_line=6)
    assert refused.value.subject == "line 7" and refused.value.problem.startswith("has 4")
    texts = translator.translate(lines)
    assert texts[0] == translator.translate(lines[:1])[0] and texts[1]


def test_hypotheses_scores_and_pieces_are_those_of_the_model(imported, export, lines):
    settings = {"search": "beam", "beam": 3, "n_best": 3}
    expected = export.translate(lines[:8], **settings)
    translations = Translator.load(imported, "cpu", threads=1).translate(lines[:8], **settings)
    assert max(len(translation.hypotheses) for translation in translations) > 1
    for translation, other in zip(translations, expected, strict=True):
        assert [hypothesis.text for hypothesis in translation.hypotheses] == [
            hypothesis.text for hypothesis in other.hypotheses
        ]
        scores = [hypothesis.score for hypothesis in other.hypotheses]
        assert [hypothesis.score for hypothesis in translation.hypotheses] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize(
    "normalisation",
    [{}, {"moses_tokenise": True}, {"lowercase": True, "references": "normalised"}],
    ids=["plain", "tokenised", "lowercase"],
)
def test_placeholders_are_text_to_the_model_and_symbols_in_outputs(
    learn_with_spans, outside, run_stage, tmp_path, normalisation
):
    """However the model splits a span, an output with its symbol gets the span back."""
    learn_with_spans("tags", "variables")
    words = import_words(model_settings(outside), tmp_path / "subwords", tmp_path / "bundle", **normalisation)
    run_stage("import_model", words)
    translator = Translator.load(tmp_path / "bundle", "cpu", threads=1)
    line, network = "der hund %1 <BR/> ruht", translator.network
    assert network.encode_source([line])[0].line == line
    # The model reads the text of the span, not a symbol.
    model = sentencepiece.SentencePieceProcessor(model_file=str(outside / "both.spm"))
    assert len(network.encode_source([line])[0]) == len(model.encode_as_pieces(line))
    texts = ["the %1 dog <BR/>", "the dog <BR/>"]
    network.pieces.decode = lambda outputs: texts[: len(outputs)]
    hypotheses = translator.search([line, line], translator.request(normalised=True, return_scores=True))
    assert translator.subwords.placeholder_outcomes(hypotheses.tokens, [line, line]) == [
        {"spans": 2, "missing": 0, "surplus": 0, "dropped": 0},
        {"spans": 2, "missing": 1, "surplus": 0, "dropped": 0},
    ]
    assert translator.text(hypotheses.tokens, sources=[line, line]) == texts
