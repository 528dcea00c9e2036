"""Analyses measured on miniature bundles: contents of their files, and refusals."""

import hashlib
import json
from types import SimpleNamespace

import analysed
import miniatures
import pytest
import reports
import torch
from refusals import fields_of
from stage_words import start_stage
from titles import DELTA_1, SCORE_1, row_label

from workflow_src.config.metrics import default_measured
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.evaluation.analyses.marginal import MarginalSettings
from workflow_src.evaluation.analyses.marginal.measure import marginals
from workflow_src.evaluation.analyses.tokens.measure import compare
from workflow_src.evaluation.quality import metrics
from workflow_src.evaluation.report import analyses
from workflow_src.registry import conventions
from workflow_src.serving.translator import Translator
from workflow_src.spec import Corpus, Texts
from workflow_src.stages import measure_analysis
from workflow_src.types import EOS

DELTA = {"system": "lvm", "search": "delta", "model": "lvm"}
SCORE = {"system": "score", "search": "score", "step_size": 0.5, "model": "lvm"}
PRIOR = {"system": "lvm", "search": "prior-mean", "model": "lvm"}
SCORED = {"remove_repetitions": "none", "bleu_tokeniser": "13a"}
MAP = {"positions": 30, "steps": 1, "resolution": 5, "arrows": 3}
SETTINGS = {
    "marginal": {"sentences": 4, "samples": 12, "steps": [2, 1, 0], "seed": 1, "searches": [DELTA, SCORE]},
    "tokens": {"sentences": 6, "steps": [1, 3], "searches": [DELTA, SCORE]},
    "lengths": {**SCORED, "sentences": 6, "candidates": 3, "steps": 1, "searches": [PRIOR, DELTA, SCORE]},
    "samples": {"sentences": 6, "examples": 2, "steps": 1, "seed": 1, "searches": [SCORE]},
    "convergence": {**SCORED, "sentences": 5, "samples": 3, "steps": 3, "seed": 1, "searches": [DELTA, SCORE]},
    "latent_space": {**MAP, "sentences": 4, "sentence": None, "searches": [SCORE]},
    "latent_paths": {"sentences": 6, "steps": [2, 1], "searches": [DELTA, SCORE]},
    "components": {"sentences": 6, "share": 0.9, "searches": [{"system": "lvm"}]},
}


def number_of(texts) -> float:
    """A number for texts, in place of their BLEU: other texts have another one."""
    return float(int.from_bytes(hashlib.sha256("\n".join(texts).encode()).digest()[:6], "big"))


@pytest.fixture
def run(tiny, tiny_bundles, tmp_path):
    """Measures an analysis on the dev set of the miniature corpus and returns the content of its file."""

    def start(name, settings=None, bundles=("lvm", "score"), more=(), tiny_bundles=tiny_bundles, tiny=tiny, **changed):
        words = ["--analysis", name, "--settings", json.dumps((settings or SETTINGS[name]) | changed)]
        words += ["--bundles", *(f"{name}={tiny_bundles[name]}" for name in bundles)]
        for side, name in (("source", "dev.de"), ("target", "dev.en"), ("reference", "dev.reference.en")):
            words += [f"--{side}", str(tiny.corpus / name)]
        output = tmp_path / f"{name}.json"
        words += ["--output", str(output), "--device", "cpu", *more]
        start_stage(measure_analysis, words)
        analysis = json.loads(output.read_text(encoding="utf-8"))
        # Reports read what was written.
        analysed.read(analysis)
        return analysis

    return start


def curves_of(analysis):
    """Rows of each search by its system and name, in the order of the file."""
    curves = {}
    for row in analysis["rows"]:
        curves.setdefault((row["system"], row["search"]), []).append(row)
    return curves


def of_search(row):
    """What a row says beside its search."""
    return {key: value for key, value in row.items() if key not in SCORE}


def test_marginals_of_every_procedure(run, tiny_bundles, tiny):
    analysis = run("marginal")
    assert analysis["analysis"] == "marginal" and analysis["split"] == "dev" and analysis["sentences"] == 4
    curves = curves_of(analysis)
    assert list(curves) == [("lvm", "delta"), ("score", "score")]
    for points in curves.values():
        assert [point["steps"] for point in points] == [0, 1, 2]
        assert of_search(points[0]) == of_search(analysis["rows"][0]) and points[0]["gain"] == 0
        assert all(point["log_probability"] < 0 < point["effective_samples"] for point in points)
    in_chunks = run("marginal", more=["--limits", "chunk=5"])
    for a, b in zip(analysis["rows"], in_chunks["rows"], strict=True):
        assert of_search(a) == pytest.approx(of_search(b), rel=1e-4, abs=1e-5)
    # The same without the other searches and steps.
    single = run("marginal", searches=[SCORE], steps=[2])
    assert single["rows"][1] == curves["score", "score"][2]
    # Each sentence with its own output.
    moved = run("marginal", searches=[{**SCORE, "step_size": 40.0}], steps=[1])["rows"][1]
    translator = Translator.load(tiny_bundles["score"], device="cpu", threads=1)
    lines = (tiny.corpus / "dev.de").read_text().splitlines()[:4]
    settings = translator.request("score", steps=1, step_size=40.0).settings
    outputs = translator.search(lines, translator.request(settings, normalised=True)).tokens
    sources, draws = translator.subwords.encode_source(lines), MarginalSettings(samples=12, seed=1)
    estimates = [
        marginals(translator.models["lvm"], [*ids, EOS], [output], draws, number, translator.runtime.device)[0].value
        for number, (ids, output) in enumerate(zip(sources, outputs, strict=True))
    ]
    assert moved["log_probability"] == pytest.approx(sum(estimates) / 4, rel=1e-4) and len(set(map(tuple, outputs))) > 1


def test_tokens_of_every_procedure(run, tiny_bundles, tiny):
    moving = {**SCORE, "step_size": 40.0}
    analysis = run("tokens", searches=[DELTA, moving])
    points = {(row["search"], row["steps"]): row for row in analysis["rows"]}
    assert points.keys() == {(search, steps) for search in ("delta", "score") for steps in (0, 1, 3)}
    lines = (tiny.corpus / "dev.de").read_text().splitlines()[:6]
    moved = 0
    for search, size in (("delta", {}), ("score", {"step_size": 40.0})):
        translator = Translator.load(tiny_bundles[{"delta": "lvm"}.get(search, search)], device="cpu", threads=1)
        start = translator.search(lines, translator.request("prior-mean", normalised=True)).tokens
        for steps in (0, 1, 3):
            settings = translator.request(search, steps=steps, **size).settings
            end = translator.search(lines, translator.request(settings, normalised=True)).tokens
            assert points[search, steps].items() >= compare(start, end, steps).items()
            moved += points[search, steps]["edit_distance"]
    assert moved > 0


def test_convergence_of_every_procedure(run, tiny_bundles, tiny, monkeypatch):
    # The number of a text replaces its BLEU, which is 0 for all texts of the miniature.
    monkeypatch.setattr(
        "workflow_src.evaluation.analyses.convergence.measure.corpus_bleu", lambda *texts: number_of(texts[0])
    )
    analysis = run("convergence")
    assert analysis["analysis"] == "convergence" and analysis["sentences"] == 5 and analysis["samples"] == 3
    lines = (tiny.corpus / "dev.de").read_text().splitlines()[:5]
    curves = curves_of(analysis)
    for ((system, search), points), size in zip(curves.items(), ({}, {"step_size": 0.5}), strict=True):
        translator = Translator.load(tiny_bundles[system], device="cpu", threads=1)
        outputs = []
        for point in points:
            settings = translator.request(search, steps=point["steps"], **size).settings
            outputs.append(translator.search(lines, translator.request(settings, normalised=True)).tokens)
            assert point["bleu"] == number_of(translator.text(outputs[-1])) and point["bound"] < 0
        assert [point["steps"] for point in points] == [0, 1, 2, 3] and points[0]["stopped"] is None
        for step in (1, 2, 3):
            still = [all(outputs[t][n] == outputs[step - 1][n] for t in range(step, 4)) for n in range(5)]
            first = [step == 1 or outputs[step - 1][n] != outputs[step - 2][n] for n in range(5)]
            assert points[step]["stopped"] == sum(a and b for a, b in zip(still, first, strict=True)) / 5
    first, second = (of_search(points[0]) for points in curves.values())
    assert first == second and first["gain"] == 0
    # The same without the other measurements.
    single = run("convergence", searches=[SCORE])
    assert single["rows"] == curves["score", "score"]


def test_figures_that_are_no_numbers_are_not_written(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("workflow_src.evaluation.analyses.convergence.measure.corpus_bleu", lambda *_: float("nan"))
    with pytest.raises(SystemExit):
        run("convergence")
    message = capsys.readouterr().err
    assert "analysis convergence " in message and "(rows[0].bleu is nan; " in message
    assert "train the systems that it follows again, or switch analyses.convergence off." in message
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("removal", ["subwords", "words", "none"])
def test_lengths_of_every_model(removal, run, tiny_bundles, tiny, monkeypatch):
    """The miniature's words are none of the references': numbers of texts stand for their BLEU, which is 0 for all, and
    the last candidate for the best."""
    measure = "workflow_src.evaluation.analyses.lengths.measure.corpus_bleu"
    monkeypatch.setattr(measure, lambda *texts: number_of(texts[0]))
    monkeypatch.setattr(metrics, "best_by_sentence", lambda candidates, *_: candidates[-1])
    analysis = run("lengths", remove_repetitions=removal)
    assert analysis["remove_repetitions"] == removal
    lines, targets = ((tiny.corpus / name).read_text().splitlines()[:6] for name in ("dev.de", "dev.en"))
    translator = Translator.load(tiny_bundles["lvm"], device="cpu", threads=1)
    model = translator.models["lvm"]
    sources = [torch.tensor([[*ids, EOS]]) for ids in translator.subwords.encode_source(lines)]
    true_lengths = [len(ids) for ids in translator.subwords.encode_target(targets)]
    ranked = [model.length.likely(model.encode(source), 3)[0].tolist() for source in sources]
    (measured,) = analysis["models"]
    assert measured["system"] == "lvm"
    for name, count in (("exact", 1), ("within_top", 3)):
        within = [length in best[:count] for best, length in zip(ranked, true_lengths, strict=True)]
        assert measured[name] == pytest.approx(sum(within) / 6)
    assert measured["bias"] == pytest.approx(sum(best[0] - n for best, n in zip(ranked, true_lengths, strict=True)) / 6)
    assert [row["label"] for row in analysis["rows"]] == [row_label("prior-mean"), DELTA_1, SCORE_1]

    def texts(lengths):
        """Translations from the prior mean at these lengths, each sentence by itself."""
        pairs = zip(sources, map(torch.tensor, lengths), strict=True)
        outputs = [miniatures.translate(model, source, "prior-mean", lengths=length[None]) for source, length in pairs]
        return translator.text([output.tokens[0] for output in outputs], removal)

    candidates = [texts([best[n] for best in ranked]) for n in range(3)]
    plain = translator.search(lines, translator.request("prior-mean", normalised=True)).tokens
    expected = {
        "predicted": translator.text(plain, removal),
        "reference": texts(true_lengths),
        "oracle": candidates[-1],
    }
    assert {name: analysis["rows"][0][name] for name in expected} == {
        name: number_of(outputs) for name, outputs in expected.items()
    }
    assert len(set(map(tuple, expected.values()))) == 3
    assert removal != "subwords" or expected["predicted"] != translator.text(plain, "none")


def test_samples_are_those_that_change_most(run):
    analysis = run("samples")
    assert len(analysis["examples"]) == 2 and analysis["search"]["steps"] == 1
    everything = run("samples", examples=6)["examples"]
    assert everything[:2] == analysis["examples"]
    assert sorted(example["index"] for example in everything) == list(range(6))
    # Another seed draws other latents.
    by_line = lambda examples: {example["index"]: example["sampled"] for example in examples}  # noqa: E731
    assert by_line(run("samples", examples=6, seed=2)["examples"]) != by_line(everything)


def test_a_latent_space_of_another_width_is_refused(run):
    with pytest.raises(SystemExit) as left:
        run("latent_space")
    fields = {"setting": "model.latent_dim", "value": 4, "allowed": ("2",)}
    assert fields_of(left.value.__context__, fields) == fields
    with pytest.raises(SystemExit) as left:
        run("latent_space", sentence=99)
    fields = {"setting": "analyses.latent_space.sentence", "value": 99}
    assert fields_of(left.value.__context__, fields) == fields


@pytest.fixture(scope="module")
def bundle_of(training_words, export_words, run_stage, tmp_path_factory):
    """Trains a system and exports it: its weights and its bundle."""

    def make(family, base=None, **settings):
        folder = tmp_path_factory.mktemp(family)
        run_stage("train", training_words(family, folder, base=base, **settings))
        run_stage("export_bundle", export_words(folder / "model.safetensors", base, folder / "bundle"))
        return folder / "model.safetensors", folder / "bundle"

    return make


@pytest.fixture(scope="module")
def narrow_bundle(bundle_of):
    """A score network and its base with latents of width 2, one of them an end symbol's."""
    settings = {"model": {"latent_dim": 2}, "max_steps": 2}
    base, _ = bundle_of("lvm", **settings)
    return bundle_of("score", base, **settings)[1]


def test_a_map_has_a_panel_for_the_end_symbol(run, narrow_bundle, tiny):
    analysis = run("latent_space", bundles=["score"], tiny_bundles={"score": narrow_bundle})
    reference = (tiny.corpus / "dev.en").read_text().splitlines()[analysis["sentence"]]
    assert analysis["end_symbol"] == 2 and analysis["pieces"]["2"] == "</s>"
    assert len(analysis["panels"]) == len(tiny.subwords.encode_target([reference])[0]) + 1
    for name, tokens in analysis["outputs"].items():
        assert len(tokens) == len(analysis["panels"])
        (text,) = tiny.subwords.decode_target([[token for token in tokens if token != 2]])
        assert analysis["texts"][name] == " ".join(text.split())
    assert analysed.pictures_of(analysis) == ["latent_space"]


@pytest.fixture(scope="module")
def one_pass_bundle(bundle_of):
    """A model whose latents are those of source positions."""
    return bundle_of("nat", model={"latent": "vae", "latent_dim": 5, "posterior_layers": 1}, max_steps=2)[1]


def test_components_of_latents_of_either_side(run, tiny_bundles, one_pass_bundle, tiny):
    folders = {**tiny_bundles, "one-pass": one_pass_bundle}
    systems = [{"system": "one-pass"}, {"system": "lvm"}]
    analysis = run("components", bundles=["lvm", "one-pass"], tiny_bundles=folders, searches=systems)
    assert analysis["analysis"] == "components" and (analysis["sentences"], analysis["share"]) == (6, 0.9)
    assert [(row["system"], row["width"]) for row in analysis["rows"]] == [("one-pass", 5), ("lvm", 4)]
    lines = [(tiny.corpus / name).read_text().splitlines()[:6] for name in ("dev.de", "dev.en")]
    sources = [len(ids) + 1 for ids in tiny.subwords.encode_source(lines[0])]
    targets = [len(ids) + 1 for ids in tiny.subwords.encode_target(lines[1])]
    # One for each source subword, and one for each target subword; end symbols have latents too.
    assert [row["latents"] for row in analysis["rows"]] == [sum(sources), sum(targets)]
    single = run("components", bundles=["lvm"])
    assert single["rows"] == analysis["rows"][1:]


def test_latents_are_followed_to_where_searches_put_them(run, tiny_bundles, one_pass_bundle, tiny):
    folders = {**tiny_bundles, "one-pass": one_pass_bundle}
    one_pass = {"system": "one-pass", "search": "delta", "model": "one-pass"}
    entries = [DELTA, SCORE, one_pass]
    analysis = run("latent_paths", bundles=folders, tiny_bundles=folders, searches=entries)
    assert (analysis["analysis"], analysis["sentences"], analysis["split"]) == ("latent_paths", 6, "dev")
    curves = curves_of(analysis)
    assert list(curves) == [("lvm", "delta"), ("score", "score"), ("one-pass", "delta")]
    for points in curves.values():
        assert [point["steps"] for point in points] == [0, 1, 2]
        first, second, _ = points
        assert first["from_start"] == 0 and first["step"] is first["cosine"] is first["changed"] is None
        assert second["from_start"] == second["step"] > 0
    assert curves["lvm", "delta"][1]["cosine"] == pytest.approx(1.0)
    # Latents of source positions are those of the search itself.
    translator = Translator.load(one_pass_bundle, device="cpu", threads=1)
    lines = (tiny.corpus / "dev.de").read_text().splitlines()[:6]
    traces = translator.search(lines, translator.request("delta", steps=2, trace=True, normalised=True)).traces
    for step, point in enumerate(curves["one-pass", "delta"][1:], 1):
        changed = [one != other for one, other in zip(traces[step - 1], traces[step], strict=True)]
        assert point["changed"] == pytest.approx(sum(changed) / 6)
    # The same without the other searches.
    single = run("latent_paths", searches=[SCORE])
    assert single["rows"] == curves["score", "score"]
    assert analysed.pictures_of(analysis) == ["latent_paths"]


def test_latents_of_two_translations_are_compared(run, one_pass_bundle, details, tiny, tmp_path, capsys):
    """Of sentences whose translations differ and share two words; the second translation is written here."""
    lines = [(tiny.corpus / name).read_text().splitlines() for name in ("dev.de", "dev.en")]
    sources, targets = tiny.subwords.encode_source(lines[0]), tiny.subwords.encode_target(lines[1])
    # The first stays as it is, the last shares no two words, the others are turned round.
    texts = [lines[1][0], *(" ".join(reversed(line.split())) for line in lines[1][1:7]), "dog"]
    written = tiny.subwords.encode_target(texts)
    rows = [{"subwords": tiny.subwords.pieces_target(ids)} for ids in written]
    records = [json.loads(line) for line in details["transformer"].read_text().splitlines()]
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps(old | new) + "\n" for old, new in zip(records, rows, strict=True)))
    row = {"system": "teacher", "name": "greedy", "details": str(path)}
    settings = {"sentences": 8, "positions": 16, "searches": [{"system": "one-pass", "aligned": True}], "rows": [row]}
    bundles = {"one-pass": one_pass_bundle}
    analysis = run("reordering", settings, bundles=["one-pass"], tiny_bundles=bundles)
    assert (analysis["analysis"], analysis["sentences"], analysis["split"]) == ("reordering", 8, "dev")
    assert analysis["translations"] == {"system": "teacher", "name": "greedy"}
    turned = [i for i in range(1, 7) if texts[i] != lines[1][i]]
    assert analysis["compared"] == len(turned) > 2
    # One pair by itself: means at the source's positions, and the nearest ones.
    example = analysis["example"]
    number, (panel,) = example["sentence"], example["panels"]
    assert number in turned and example["order"] == 1 and example["texts"] == [lines[1][number], texts[number]]
    assert len(example["pieces"]) == len(sources[number]) + 1 == len(panel["assigned"]) <= 16
    translator = Translator.load(one_pass_bundle, device="cpu", threads=1)
    with torch.no_grad():
        memory = translator.network.encode(torch.tensor([[*sources[number], EOS]]))
        one, other = (
            translator.network.posterior(memory, torch.tensor([side[number]]), memory.mask)[0][0]
            for side in (targets, written)
        )
    pieces = [tiny.subwords.pieces_target(side[number]) for side in (targets, written)]
    assert example["target_pieces"] == pieces
    for side, names in zip(panel["alignments"], pieces, strict=True):
        assert side["slots"] == 2 * len(example["pieces"])
        assert side["places"] is None or len(side["places"]) == len(names)
    assert torch.tensor(panel["distances"]) == pytest.approx(torch.cdist(one, other), abs=1e-4)
    (group,) = analysis["rows"]
    assert (group["order"], group["sentences"]) == ("another", len(turned))
    assert analysed.pictures_of(analysis) == ["reordering"]
    # Without alignments the rest is the same.
    plain = run(
        "reordering", settings | {"searches": [{"system": "one-pass"}]}, bundles=["one-pass"], tiny_bundles=bundles
    )["example"]["panels"]
    assert plain == [{key: panel[key] for key in ("system", "distances", "assigned")}]
    # Where no source is short enough, the shortest is drawn.
    shortest = run("reordering", settings | {"positions": 2}, bundles=["one-pass"], tiny_bundles=bundles)
    assert len(shortest["example"]["pieces"]) == min(len(sources[i]) for i in turned) + 1
    # The first translation is the reference: nothing to compare, and no reason to stop a run.
    single_sentence = run("reordering", settings | {"sentences": 1}, bundles=["one-pass"], tiny_bundles=bundles)
    assert "differs from its reference and shares two words with it: nothing is compared" in capsys.readouterr().err
    assert single_sentence["compared"] == 0 and single_sentence["example"] is None
    _, paragraph = analyses.blocks(analysed.read(single_sentence), reports.manifest())
    assert "None of the first 1 sentences of dev has a translation of teacher" in paragraph.parts[0]
    assert analysed.pictures_of(single_sentence) == []


def test_a_length_leaves_room_for_the_end_symbol(run, tiny, tmp_path):
    """A reference of all positions is measured at one less."""
    text = " ".join(["dog"] * 80)
    assert len(tiny.subwords.encode_target([text])[0]) > 60
    for name, line in (("dev.de", "Hund"), ("dev.en", text), ("dev.reference.en", text)):
        (tmp_path / name).write_text(f"{line}\n")
    analysis = run("lengths", tiny=SimpleNamespace(corpus=tmp_path))
    assert analysis["sentences"] == 1 and analysis["models"][0]["exact"] in (0.0, 1.0)


def test_a_missing_bundle_is_reported_in_a_sentence(run):
    with pytest.raises(SystemExit) as left:
        run("marginal", bundles=("energy",))
    fields = {"setting": "bundles", "mentions": ('system "lvm"',)}
    assert fields_of(left.value.__context__, fields) == fields


@pytest.fixture
def details(tiny_bundles, tiny, run_stage, tmp_path):
    paths = {}
    for family, settings in (("transformer", {"search": "greedy"}), ("lvm", {"search": "prior-mean"})):
        words = ["--settings", json.dumps(settings), "--bundle", str(tiny_bundles[family]), "--device", "cpu"]
        words += ["--source", str(tiny.corpus / "dev.de"), "--output", str(tmp_path / family / "dev.txt")]
        run_stage("decode", words)
        paths[family] = tmp_path / family / "dev.jsonl"
    return paths


def test_energies_of_rows_are_those_of_the_subwords_that_they_put_out(run, details, tiny, tiny_bundles):
    translator = Translator.load(tiny_bundles["transformer"], device="cpu", threads=1, engine="eager")
    subwords, model = translator.subwords, translator.models["transformer"]
    ids = {piece: number for number, piece in enumerate(subwords.names()["target"])}
    lines = [json.loads(line) for line in details["lvm"].read_text().splitlines()]
    written = [[ids[piece] for piece in line["subwords"]] for line in lines]
    words = subwords.encode_target([collapse_repetitions(text) for text in subwords.decode_target(written)])
    by_removal = {"none": written, "subwords": subwords.without_repetitions(written), "words": words}
    assert by_removal["none"] != by_removal["subwords"], "a test of outputs with repetitions"
    row = {"system": "lvm", "seed": 1, "details": str(details["lvm"])}
    settings = {
        "scorer": "transformer",
        "rows": [row | {"name": name, "repetitions_removed": name} for name in by_removal],
    }
    analysis = run("energies", settings, bundles=("transformer",))
    assert analysis["analysis"] == "energies" and analysis["split"] == "dev"
    assert {row["scorer"] for row in analysis["rows"]} == {"transformer"}
    sources = subwords.encode_source((tiny.corpus / "dev.de").read_text().splitlines())
    texts = by_removal | {"reference": subwords.encode_target((tiny.corpus / "dev.en").read_text().splitlines())}
    by_row = {row.get("name", "reference"): row for row in analysis["rows"]}
    assert analysis["rows"][0]["label"] == "references"
    with torch.no_grad():
        for name, outputs in texts.items():
            values = [
                -float(model.log_probabilities(torch.tensor([[*source, EOS]]), torch.tensor([output])).sum())
                for source, output in zip(sources, outputs, strict=True)
            ]
            assert by_row[name]["energy_per_sentence"] == pytest.approx(sum(values) / 8, rel=1e-5)
            tokens = sum(len(output) + 1 for output in outputs)
            assert by_row[name]["energy_per_token"] == pytest.approx(sum(values) / tokens, rel=1e-5)
    in_batches = run("energies", settings, bundles=("transformer",), more=["--limits", "batch=3"])
    for row, batched_row in zip(analysis["rows"], in_batches["rows"], strict=True):
        assert row["energy_per_sentence"] == pytest.approx(batched_row["energy_per_sentence"], rel=1e-5)


def test_details_that_do_not_fit_are_reported_in_a_sentence(run, details, tmp_path):
    lines = details["transformer"].read_text().splitlines(keepends=True)
    row = {"system": "teacher", "name": "greedy", "seed": 1, "repetitions_removed": "none"}
    foreign = json.dumps(json.loads(lines[0]) | {"subwords": ["?!?"]}) + "\n"
    for content, mentions in (
        ("".join(lines[:-1]), ("has 7 lines", "has 8")),
        ("".join([foreign, *lines[1:]]), ("has '?!?'",)),
    ):
        (tmp_path / "cut.jsonl").write_text(content)
        with pytest.raises(SystemExit) as left:
            rows = [row | {"details": str(tmp_path / "cut.jsonl")}]
            run("energies", {"scorer": "transformer", "rows": rows}, bundles=("transformer",))
        fields = {"path": str(tmp_path / "cut.jsonl"), "mentions": mentions}
        assert fields_of(left.value.__context__, fields) == fields


@pytest.fixture(scope="module")
def more_bundles(tiny_bundles, bundle_of):
    """Beside the usual ones, a model that translates at given lengths in one pass, and a second scorer."""
    return tiny_bundles | {family: bundle_of(family, max_steps=8)[1] for family in ("cmlm", "seq2seq")}


@pytest.mark.parametrize("removal", ["none", "subwords"])
def test_outputs_at_the_references_lengths_are_those_of_each_sentence_alone(
    removal, run, more_bundles, tiny, tmp_path, monkeypatch
):
    scored, count = [], metrics.bleu_by_convention
    monkeypatch.setattr(metrics, "bleu_by_convention", lambda *arguments: scored.append(arguments) or count(*arguments))
    lines, targets = ((tiny.corpus / name).read_text().splitlines() for name in ("dev.de", "dev.en"))
    # Sources and references may be empty, and a reference longer than the model's positions.
    lines, targets = [*lines, "", lines[0], lines[1]], [*targets, "dog", "", " ".join(["dog bird"] * 40)]
    translators = {
        name: Translator.load(more_bundles[name], device="cpu", threads=1, engine="eager")
        for name in ("cmlm", "transformer", "seq2seq", "lvm")
    }
    cmlm, subwords = translators["cmlm"].network, translators["cmlm"].subwords
    sources, goals = subwords.encode_source(lines), subwords.encode_target(targets)
    outputs, alone = [], miniatures.search("mask-predict", cmlm, iterations=2, length_beam=1)
    for source, goal in zip(sources, goals, strict=True):
        length = torch.tensor([min(max(1, len(goal)), cmlm.length.longest)])
        words = alone.translate(torch.tensor([[*source, EOS]]), length).tokens[0]
        outputs.append(words if source else [])
    texts = translators["cmlm"].text(outputs, removal)
    # Half of the references are the outputs, so that there is BLEU to compare.
    references = [text if i % 2 else target for i, (text, target) in enumerate(zip(texts, targets, strict=True))]
    references = [text or "nothing" for text in references]
    for name, column in (("dev.de", lines), ("dev.en", targets), ("dev.reference.en", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in column))
    entry = {"repetitions_removed": removal}
    searches = [
        entry | {"system": "cmlm", "name": "one", "settings": {"search": "mask-predict", "iterations": 2}},
        entry | {"system": "lvm", "name": "two", "settings": {"search": "delta", "steps": 1}},
    ]
    settings = {"scorer": ["transformer", "seq2seq"], "rows": [], "searches": searches, "bleu_tokeniser": "13a"}
    options = {"tiny_bundles": more_bundles, "bundles": tuple(translators), "tiny": SimpleNamespace(corpus=tmp_path)}
    analysis = run("energies", settings, **options)
    at_lengths = analysis["at_reference_lengths"]
    one, other, two, _ = at_lengths
    assert (one["system"], one["name"], two["name"], analysis["remove_repetitions"]) == ("cmlm", "one", "two", removal)
    scores = metrics.scores(default_measured(), Texts(texts, references, (), Corpus("de", "en")))
    for metric in conventions().values():
        assert one[metric.name] == other[metric.name] == pytest.approx(scores[metric.name])
    assert scored[0] == (texts, references, "en", "13a") and (removal != "none" or one["bleu"] > 5)
    # Lengths leave room for an end symbol, and empty sources have no energy.
    if removal == "subwords":
        outputs = subwords.without_repetitions(outputs)
    for energies in (one, other):
        model, values, tokens = translators[energies["scorer"]].network, [], 0
        longest = model.config.max_positions - 1
        with torch.no_grad():
            for source, output, goal in zip(sources, outputs, goals, strict=True):
                # Means are over the sentences of which all outputs, and the references, can be scored.
                if source and max(len(output), len(goal)) <= longest:
                    sides = torch.tensor([[*source, EOS]]), torch.tensor([output], dtype=torch.int64)
                    values.append(-float(model.log_probabilities(*sides).sum()))
                    tokens += len(output) + 1
        unscored = sum(not source or len(output) > longest for source, output in zip(sources, outputs, strict=True))
        assert energies["sentences"] == len(values) and energies["unscored"] == unscored >= 1
        assert energies["energy_per_sentence"] == pytest.approx(sum(values) / len(values), rel=1e-5)
        assert energies["energy_per_token"] == pytest.approx(sum(values) / tokens, rel=1e-5)
