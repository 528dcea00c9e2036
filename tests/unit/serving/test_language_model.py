"""A language model beside a one-pass system: counted, carried in its bundle, and used where a search names it."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import irstlm
import numpy as np
import pytest
import torch
import yaml
from conftest import PROJECT, WRITING, snakemake
from refusals import fields_of
from safetensors.torch import load_file

from workflow_src import cli
from workflow_src.config import load_experiment
from workflow_src.config.plan import Plan
from workflow_src.decoding.arpa import read_arpa, write_arpa
from workflow_src.decoding.ngram import estimate
from workflow_src.errors import ConfigError, InputError
from workflow_src.records.atomic import read_json
from workflow_src.registry import families, searches
from workflow_src.serving.translator import Translator
from workflow_src.types import Hypotheses

LINES = ["der Hund ruht heute", "", "kein Vogel kommt dort noch heute", "Baum"]
ALONE = {"search": "ctc-beam", "beam": 3, "min_ratio": 0.0}
BEAM = ALONE | {"lm_weight": 2.0}


def settings(family: str, model: dict, **fields) -> dict:
    return {
        "name": fields.pop("system", family),
        "family": family,
        "preset": "miniature",
        "data": "raw",
        "model": model,
        "bleu_tokeniser": "13a",
    } | fields


@pytest.fixture(scope="module")
def bundles(tiny, training_words, run_stage, tmp_path_factory):
    """A one-pass system, two language models, and bundles of all."""
    root = tmp_path_factory.mktemp("made")
    kind = families()["nat"]
    model = kind.model(dim=16, feed_forward=32, heads=2, encoder_layers=1, layers=1, max_positions=60)
    training = {
        "max_steps": 6,
        "batch_tokens": 150,
        "learning_rate": 0.01,
        "warmup_steps": 1,
        "validate_every": 3,
        "dev_sentences": 4,
    }
    nat = settings("nat", model.model_dump(mode="json"), objective={}, training=training, system="ctc")
    run_stage("train", training_words("nat", root / "nat", settings=nat))
    for name, order in (("lm", 3), ("other", 2)):
        counted = settings("ngram", {"order": order}, system=name)
        run_stage("train", training_words("ngram", root / name, settings=counted))
    words = ["--languages", "de", "en"]
    words += ["--subwords", str(tiny.folder), "--normalisation", json.dumps(tiny.normalisation)]

    def export(folder, model, *options):
        run_stage("export_bundle", [*words, "--model", str(model), "--output-folder", str(folder), *options])
        return folder

    weights = {name: root / name / "model.safetensors" for name in ("nat", "lm", "other")}
    return SimpleNamespace(
        weights=weights,
        export=export,
        lm=export(root / "bundle-lm", weights["lm"]),
        other=export(root / "bundle-other", weights["other"]),
        plain=export(root / "plain", weights["nat"]),
        carrying=export(root / "carrying", weights["nat"], "--roles", f"language_model={weights['lm']}"),
    )


def load(folder) -> Translator:
    return Translator.load(folder, device="cpu", threads=1, engine="eager")


def test_what_was_counted_is_what_counting_gives(bundles, tiny):
    model = load(bundles.lm).models["ngram"].scorer
    rows = [tiny.train.target(row).tolist() for row in range(len(tiny.train))]
    ends = [sum(map(len, rows[:i])) for i in range(len(rows) + 1)]
    estimated = estimate(np.concatenate(rows), np.array(ends), tiny.sizes["target"], 3)
    sentences = [tiny.dev.target(row).tolist() for row in range(len(tiny.dev))]
    assert [model.log_probability(s) for s in sentences] == pytest.approx(
        [estimated.log_probability(s) for s in sentences], rel=1e-5
    )
    figures = json.loads((bundles.weights["lm"].parent / "training.jsonl").read_text())
    assert figures["dev_perplexity"] == pytest.approx(estimated.perplexity(sentences), rel=1e-5)
    assert read_json(bundles.weights["lm"].parent / "config.json")["parameters"] > 0


def scores(translator, beam=BEAM, **fields) -> list[float]:
    return translator.search(LINES, translator.request(**beam, **fields, return_scores=True)).scores


def test_a_bundle_uses_the_language_model_that_it_carries(bundles):
    carrying, plain = load(bundles.carrying), load(bundles.plain)
    assert carrying.description.defaults == {"search": "ctc-greedy", "language_model": "lm"}
    # The bundle has the name of the system, not of the carried language model.
    assert carrying.description.system == "ctc"
    alone, with_model = scores(plain, ALONE), scores(plain, language_model=load(bundles.lm))
    assert scores(carrying) == with_model != alone
    assert carrying.translate(LINES, **BEAM) == plain.translate(LINES, language_model=load(bundles.lm), **BEAM)
    # Another language model replaces it.
    other_scores = scores(plain, language_model=load(bundles.other))
    assert scores(carrying, language_model=load(bundles.other)) == other_scores != with_model


def test_repetitions_that_alignments_show_are_kept_unless_asked_otherwise(bundles, tiny, monkeypatch):
    plain = load(bundles.plain)
    (tokens,) = tiny.subwords.encode_target(["der Hund ruht"])
    outputs = [[token for token in tokens for _ in range(2)]]
    monkeypatch.setattr(plain, "search_ids", lambda *_words, **_options: Hypotheses(outputs, [0.0]))
    with_repetitions, without = plain.text(outputs), plain.text(outputs, "subwords")
    assert plain.translate(["x"]) == plain.translate(["x"], **ALONE) == with_repetitions != without
    assert plain.translate(["x"], remove_repetitions="subwords") == without


def test_a_carried_language_model_can_be_left_out(bundles, tmp_path):
    carrying, plain = load(bundles.carrying), load(bundles.plain)
    assert scores(carrying, ALONE, language_model=None) == scores(plain, ALONE) != scores(carrying)
    text, out = tmp_path / "in", tmp_path / "out"
    text.write_text("der Hund ruht heute\n")
    words = ["--bundle", str(bundles.carrying), "--input", str(text), "--output", str(out), "--device", "cpu"]
    words += ["--search", "ctc-beam", "--beam", "3", "--engine", "eager"]
    cli.main(["translate", *words, "--language-model", "none"])
    assert out.read_text().splitlines() == plain.translate(["der Hund ruht heute"], search="ctc-beam", beam=3)


def test_the_name_of_the_carried_language_model_is_that_model(bundles, tmp_path):
    text = tmp_path / "in"
    text.write_text("der Hund ruht heute\n")
    words = ["--bundle", str(bundles.carrying), "--input", str(text), "--search", "ctc-beam", "--beam", "3"]
    words += ["--device", "cpu", "--engine", "eager", "--output-format", "jsonl"]
    written = {}
    for name, further in (("default", []), ("named", ["--language-model", "lm"])):
        cli.main(["translate", *words, *further, "--output", str(tmp_path / name)])
        written[name] = (tmp_path / name).read_text()
    assert written["named"] == written["default"]


@pytest.mark.parametrize("value", ["", "none-here"])
def test_an_option_whose_bundle_cannot_be_opened_is_named(value, bundles, tmp_path):
    (tmp_path / "in").write_text("der Hund\n")
    words = ["--bundle", str(bundles.plain), "--input", str(tmp_path / "in"), "--search", "ctc-beam", "--device", "cpu"]
    with pytest.raises(SystemExit, match=f"error: --language-model is '{value}'"):
        cli.main(["translate", *words, "--language-model", value])


def test_none_switches_off_what_a_bundle_has_as_default(bundles, run_stage):
    choice = {"experiment": "e", "rows": [], "search_defaults": {"ctc-beam": {"beam_threshold": 2.0}}}
    folder = bundles.carrying.parent / "narrow"
    words = ["--settings", json.dumps(choice | {"remove_repetitions": None}), "--bundle", str(bundles.carrying)]
    run_stage("finish_bundle", [*words, "--output-folder", str(folder)])
    narrow = load(folder)
    thresholds = [narrow.request("ctc-beam", beam_threshold=value).settings.beam_threshold for value in (None, "none")]
    assert narrow.request("ctc-beam").settings.beam_threshold == 2.0 and thresholds == [None, None]
    # A number that may not be None keeps its default.
    assert narrow.request("ctc-beam", beam=None).settings == narrow.request("ctc-beam").settings


TUNED = {"lm_weight": 1.5, "word_bonus": 0.5}


@pytest.fixture(scope="module")
def tuned(bundles, run_stage):
    """The finished bundle that carries a language model and has its weight as a default."""
    choice = {"experiment": "e", "rows": [], "search_defaults": {"ctc-beam": TUNED}, "remove_repetitions": None}
    folder = bundles.carrying.parent / "tuned"
    words = ["--settings", json.dumps(choice), "--bundle", str(bundles.carrying), "--output-folder", str(folder)]
    run_stage("finish_bundle", words)
    return folder


def test_a_bundle_searches_with_the_settings_that_it_says(bundles, tuned):
    plain, carrying = load(bundles.carrying), load(tuned)
    assert plain.description.search_defaults == {}
    assert carrying.description.search_defaults == {"ctc-beam": TUNED}
    assert carrying.request("ctc-beam").settings == plain.request("ctc-beam", **TUNED).settings
    assert carrying.request("ctc-greedy").settings == plain.request("ctc-greedy").settings
    # Given values replace defaults, other language models have the same weight, and without one there is none.
    assert carrying.request("ctc-beam", word_bonus=0.0).settings.word_bonus == 0.0
    assert carrying.request("ctc-beam", language_model=load(bundles.other)).settings.lm_weight == 1.5
    without = {"language_model": None}
    assert carrying.request("ctc-beam", **without).settings == plain.request("ctc-beam", **without).settings
    # The text of the command line means the same.
    named = {"language_model": "none"}
    assert carrying.request("ctc-beam", **named).settings == carrying.request("ctc-beam", **without).settings
    # Decodes give settings of all names.
    search_settings = plain.request("ctc-beam", beam=3).settings
    assert carrying.request(search_settings).settings == search_settings


def test_the_help_shows_what_a_bundle_searches_with(tuned, capsys):
    with pytest.raises(SystemExit):
        cli.main(["translate", "--bundle", str(tuned), "--search", "ctc-beam", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    fields = searches()["ctc-beam"].settings.model_fields
    for name, default in (("lm_weight", 1.5), ("word_bonus", 0.5), ("language_model", "lm")):
        assert f"{fields[name].description}; default {default}" in help_text


def test_a_weight_without_a_language_model_is_refused(bundles, tmp_path):
    (tmp_path / "in").write_text("der Hund\n")
    words = ["--input", str(tmp_path / "in"), "--search", "ctc-beam", "--lm-weight", "0.5", "--device", "cpu"]
    message = "error: lm_weight is 0.5: without language_model; allowed: 0.2"
    for bundle in (["--bundle", str(bundles.plain)], ["--bundle", str(bundles.carrying), "--language-model", "none"]):
        with pytest.raises(SystemExit, match=message):
            cli.main(["translate", *bundle, *words])
    with pytest.raises(InputError, match=r"^lm_weight is .*: without language_model"):
        load(bundles.plain).translate(LINES, **BEAM)


def test_the_command_says_that_a_language_model_translates_nothing(bundles, tmp_path):
    (tmp_path / "in").write_text("der Hund\n")
    with pytest.raises(SystemExit, match="error: lm is no system that translates"):
        cli.main(["translate", "--bundle", str(bundles.lm), "--input", str(tmp_path / "in"), "--device", "cpu"])


@pytest.mark.graphs
def test_onnx_runtime_computes_the_pass_and_the_language_model_stays_beside_it(bundles, monkeypatch, tmp_path):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="needs the extra fast")
    monkeypatch.setenv("CONTINUUM_CACHE", str(tmp_path))
    fast, carrying = Translator.load(bundles.carrying, device="cpu", threads=1, engine="fast"), load(bundles.carrying)
    hypotheses = fast.search(LINES, fast.request(**BEAM, return_scores=True))
    assert list((tmp_path / "graphs").iterdir())
    expected = carrying.search(LINES, carrying.request(**BEAM, return_scores=True))
    assert hypotheses.tokens == expected.tokens and hypotheses.scores == pytest.approx(expected.scores, abs=1e-4)
    assert hypotheses.candidates is not None


def test_an_engine_is_opened_for_a_systems_own_networks(bundles):
    """The search takes the carried language model, which is no network."""
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra fast")
    carrying = Translator.load(bundles.carrying, device="cpu", engine="fast")
    assert len(carrying.models) == 2 and list(carrying._selected.session.models) == ["nat"]


def test_a_one_pass_system_ranks_what_a_beam_finds(bundles, tiny, tiny_bundles, run_stage, tmp_path):
    """As a decode that chooses the weight on dev, in Python, and as a command: the same translations."""
    teacher, rescorer = load(tiny_bundles["transformer"]), load(bundles.plain)
    # Short enough to have alignments.
    fields = {"search": "beam", "beam": 4, "max_length_ratio": 0.01}
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    plain = teacher.translate(lines, **fields)
    by_weight = {w: teacher.translate(lines, **fields, rescorer=rescorer, rescorer_weight=w) for w in (None, 0.0, 9.0)}
    assert by_weight[0.0] == plain and by_weight[None] != plain
    common = ["--bundle", str(tiny_bundles["transformer"]), "--device", "cpu"]
    files = ["--systems", f"rescorer={bundles.plain}", "--source", str(tiny.corpus / "dev.de")]
    search_settings = fields | {"rescorer": "ctc"}
    choose = json.dumps(
        {
            "decode": search_settings | {"tune": {"rescorer_weight": [9.0]}},
            "remove_repetitions": "none",
            "corpus": {"source": "de", "target": "en"},
        }
    )
    chosen = tmp_path / "chosen.json"
    options = ["--reference", str(tiny.corpus / "dev.reference.en"), "--output", str(chosen)]
    run_stage("choose_settings", ["--settings", choose, *common, *files, *options])
    assert read_json(chosen)["chosen"] == {"rescorer_weight": 9.0}
    words = ["--settings", json.dumps(search_settings), *common, *files, "--chosen", str(chosen)]
    run_stage("decode", [*words, "--output", str(tmp_path / "dev.txt")])
    assert (tmp_path / "dev.txt").read_text().splitlines() == by_weight[9.0]
    options = ["--input", str(tiny.corpus / "dev.de"), "--output", str(tmp_path / "out"), "--engine", "eager"]
    words = ["--rescorer", str(bundles.plain), "--search", "beam", "--beam", "4", "--max-length-ratio", "0.01"]
    cli.main(["translate", *common, *options, *words])
    assert (tmp_path / "out").read_text().splitlines() == by_weight[None]


def test_ctranslate2_refuses_a_language_model():
    decodes = [{"system": "teacher", "search": "beam", "beam": 4, "engine": "ctranslate2", "language_model": "lm"}]
    with pytest.raises(ConfigError, match="it takes no language_model"):
        load_experiment("tatoeba", decodes=decodes)


def test_the_command_says_where_an_engine_does_not_compute(tiny_bundles, tmp_path, caplog, monkeypatch):
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra fast")
    monkeypatch.setenv("CONTINUUM_CACHE", str(tmp_path))
    (tmp_path / "in").write_text("der Hund\n")
    words = ["--bundle", str(tiny_bundles["score"]), "--input", str(tmp_path / "in"), "--device", "cpu", "--output"]
    eager = ["--search", "latent-search", "--steps", "1"]
    for engine in ("auto", "eager", "fast"):
        caplog.clear()
        cli.main(["translate", *words, str(tmp_path / engine), *eager, "--engine", engine])
        warnings = [record.getMessage() for record in caplog.records]
        assert len(warnings) == (engine == "fast") and all("latent-search" in warning for warning in warnings)
        assert (tmp_path / engine).read_text() == (tmp_path / "auto").read_text()
    fast = Translator.load(tiny_bundles["score"], device="cpu", engine="fast")
    assert fast.why_eager(fast.request("prior-mean").settings) is None


def test_what_is_no_language_model_is_refused(bundles):
    with pytest.raises(ConfigError) as refused:
        load(bundles.plain).translate(LINES, language_model=load(bundles.plain), **BEAM)
    fields = {"setting": "language_model", "value": "ctc", "problem": "no system that is a language model"}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(ConfigError) as refused:
        load(bundles.carrying).translate(LINES, language_model="unknown", **BEAM)
    assert (refused.value.setting, refused.value.value) == ("language_model", "unknown")


def test_an_arpa_file_of_the_users_serves(bundles, tiny, training_words, run_stage, refused, tmp_path):
    model = load(bundles.lm).models["ngram"].scorer
    write_arpa(model, tmp_path / "own.arpa", tiny.subwords.names()["target"])
    words = lambda order: training_words(  # noqa: E731
        "ngram", tmp_path / "own", settings=settings("ngram", {"order": order}), initial=tmp_path / "own.arpa"
    )
    run_stage("train", words(3))
    bundle = bundles.export(tmp_path / "bundle", tmp_path / "own/model.safetensors")
    imported, sentence = load(bundle).models["ngram"].scorer, tiny.dev.target(0).tolist()
    assert imported.log_probability(sentence) == pytest.approx(model.log_probability(sentence), rel=1e-5)
    assert refused("train", words(4)).fix == "set model.order to 3"


@pytest.mark.parametrize("name", ["model.arpa", "new/model.arpa.gz"])
@pytest.mark.parametrize("bundle", ["lm", "carrying"])
def test_the_command_writes_a_file_that_gives_the_same_model(
    bundles, tiny, training_words, run_stage, tmp_path, capsys, bundle, name
):
    cli.main(["export-arpa", "--bundle", str(getattr(bundles, bundle)), "--output", str(tmp_path / name)])
    # Padding has an id, and is no word of the file.
    assert f"{name}: a model of target subwords with {tiny.sizes['target'] - 1} 1-grams, " in capsys.readouterr().out
    model = load(bundles.lm).models["ngram"].scorer
    pieces = tiny.subwords.names()["target"]
    arpa = read_arpa(tmp_path / name, {piece: i for i, piece in enumerate(pieces)}, len(pieces))
    assert arpa.left_out == 0 and arpa.absent == ()
    for row in range(len(tiny.dev)):
        sentence = tiny.dev.target(row).tolist()
        assert arpa.model.log_probability(sentence) == pytest.approx(model.log_probability(sentence), abs=1e-6)
    # A system that starts from the file has the same weights, bit for bit.
    words = training_words("ngram", tmp_path / "own", settings=settings("ngram", {"order": 3}), initial=tmp_path / name)
    run_stage("train", words)
    imported, trained = (load_file(f) for f in (tmp_path / "own/model.safetensors", bundles.weights["lm"]))
    assert imported.keys() == trained.keys() and all(torch.equal(imported[key], trained[key]) for key in imported)


def test_the_command_writes_to_standard_output_as_to_a_file(bundles, tmp_path, capsys):
    path = tmp_path / "model.arpa"
    cli.main(["export-arpa", "--bundle", str(bundles.lm), "--output", str(path)])
    said = capsys.readouterr().out
    cli.main(["export-arpa", "--bundle", str(bundles.lm)])
    written = capsys.readouterr()
    assert written.out == path.read_text(encoding="utf-8")
    assert written.err.rpartition(": ")[2] == said.rpartition(": ")[2]
    sections = [line for line in written.out.splitlines() if line.startswith("ngram ")]
    assert sections[0].partition("=")[2] in written.err


def test_standard_output_is_utf8_whatever_the_locale_is(bundles, monkeypatch):
    """Subwords may begin with a character that Latin-1 lacks."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", written)
    cli.main(["export-arpa", "--bundle", str(bundles.lm)])
    text = written.buffer.getvalue().decode("utf-8")
    assert text.rstrip().endswith("\\end\\") and not text.isascii()


def test_the_command_says_where_there_is_no_language_model(bundles, tmp_path):
    words = ["export-arpa", "--output", str(tmp_path / "model.arpa"), "--bundle"]
    with pytest.raises(SystemExit, match=r"error: .*\bctc\b"):
        cli.main([*words, str(bundles.plain)])
    with pytest.raises(SystemExit, match=rf"error: {tmp_path} .*bundle\.json"):
        cli.main([*words, str(tmp_path)])


@irstlm.installed
def test_irstlm_reads_the_file_that_the_command_writes(bundles, tiny, tmp_path):
    cli.main(["export-arpa", "--bundle", str(bundles.lm), "--output", str(tmp_path / "model.arpa")])
    pieces = tiny.subwords.names()["target"]
    sentences = [tiny.dev.target(row).tolist() for row in range(len(tiny.dev))]
    expected = irstlm.perplexity(tmp_path / "model.arpa", [[pieces[i] for i in sentence] for sentence in sentences])
    own_perplexity = load(bundles.lm).models["ngram"].scorer.perplexity(sentences)
    assert own_perplexity == pytest.approx(expected, abs=0.006)


def test_a_file_that_lacks_subwords_is_warned_of(tiny, training_words, run_stage, caplog, tmp_path):
    pieces = tiny.subwords.names()["target"]
    text = f"\\data\\\nngram 1=2\n\n\\1-grams:\n-0.5\t{pieces[5]}\n-0.5\t</s>\n\n\\end\\\n"
    (tmp_path / "own.arpa").write_text(text, encoding="utf-8")
    order = settings("ngram", {"order": 1})
    run_stage("train", training_words("ngram", tmp_path / "own", settings=order, initial=tmp_path / "own.arpa"))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (
        f"has neither <unk> nor {len(pieces) - 5} of the {len(pieces)} target subwords, such as {pieces[4]};" in warning
    )
    assert "log10 p = -100" in warning and "left out" not in warning


def experiment(**systems):
    return load_experiment("tatoeba", systems=systems)


def test_a_language_model_has_no_training_and_all_others_have():
    with pytest.raises(ConfigError) as refused:
        experiment(lm={"training": {"max_steps": 5}})
    fields = {"setting": "systems.lm.training", "mentions": ("family ngram",)}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(ConfigError, match=r"^systems.lm.init_from"):
        experiment(lm={"init_from": "teacher"})
    with pytest.raises(ConfigError, match=r"^systems.more.training: missing"):
        experiment(more={"family": "transformer", "preset": "tiny"})


def test_bundles_carry_what_the_configuration_says(tmp_path):
    plan = Plan(load_experiment("tatoeba"))
    assert plan.system("ctc-raw").carries == {"language_model": "lm-raw"} and plan.system("teacher").carries == {}
    assert "training" not in json.loads(plan.settings_training("lm")) and "carries" not in plan.settings_training("ctc")
    # A decode with another language model changes no bundle.
    decodes = [
        {"system": "ctc", "search": "ctc-beam", "beam": 7, "language_model": "other"},
        {"system": "ctc", "search": "ctc-greedy"},
    ]
    ngram = {"family": "ngram", "preset": "3-gram"}
    unused = dict.fromkeys(("lvm", "score", "energy"))
    content = {"experiment": "smoke", "systems": {"other": ngram, **unused}, "decodes": decodes, "analyses": {}}
    content["analyses"] = dict.fromkeys(("marginal", "tokens", "lengths", "samples", "latent_space"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "written.smk").write_text(WRITING.format(snakefile=str(PROJECT / "Snakefile")))
    words = ("bundles", "--dry-run", "--configfile", "mine.yaml")
    completed = snakemake(*words, snakefile=tmp_path / "written.smk", folder=tmp_path)
    assert completed.returncode == 0, completed.stderr + completed.stdout
    documents = map(read_json, (tmp_path / "work/jobs/export_bundle").iterdir())
    (of_ctc,) = (document for document in documents if "systems/ctc/" in document["output_folder"])
    assert of_ctc["roles"] == {"language_model": "results/smoke/systems/lm/seed-1/model.safetensors"}


def test_what_is_carried_is_trained_for_every_seed():
    one_pass = [{"system": "ctc-raw", "search": "ctc-greedy"}]
    plan = Plan(load_experiment("tatoeba", seeds=[1, 2], decodes=one_pass))
    assert {("lm-raw", 1), ("lm-raw", 2)} <= set(plan.trained) and ("lm", 2) not in plan.trained


@pytest.mark.parametrize(
    ("system", "carries", "fields"),
    [
        (
            "ctc",
            {"language_model": "teacher"},
            {"setting": "systems.ctc.carries.language_model", "value": "teacher", "allowed": ("lm", "lm-raw")},
        ),
        ("ctc", {"language_modl": "lm"}, {"setting": "systems.ctc.carries.language_modl", "nearest": "language_model"}),
        (
            "teacher",
            {"rescorer": "lm"},
            {"setting": "systems.teacher.carries.rescorer", "allowed": ("drafter", "language_model")},
        ),
        (
            "lvm",
            {"language_model": "lm"},
            {"setting": "systems.lvm.carries.language_model", "hint": "remove it"},
        ),
    ],
)
def test_what_cannot_be_carried_is_refused(system, carries, fields):
    with pytest.raises(ConfigError) as caught:
        experiment(**{system: {"carries": carries}})
    assert fields_of(caught.value, fields) == fields
