"""Choosing settings on dev, and decoding with what was chosen."""

from __future__ import annotations

import json
import re

import pytest
import sacrebleu
from refusals import fields_of

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_chosen
from workflow_src.serving.translator import Translator

CORPUS = {"source": "de", "target": "en"}
CHARACTERS = CORPUS | {"tokeniser": "char"}


@pytest.fixture(scope="module")
def score(tiny_bundles):
    return Translator.load(tiny_bundles["score"], device="cpu", threads=1)


@pytest.mark.parametrize("removal", ["subwords", "words", "none"])
def test_the_best_on_dev_is_chosen_and_a_decode_uses_it(removal, score, tiny_bundles, tiny, run_stage, tmp_path):
    # Over characters: the miniature's words are none of the references'.
    def bleu(texts):
        return sacrebleu.corpus_bleu(texts, [references], tokenize="char").score

    base = {"search": "score", "steps": 2, "step_size": 1.0}
    tune = {"step_size": [0.0001, 1.0, 40.0]}
    chosen, text = tmp_path / "chosen.json", tmp_path / "dev.txt"
    settings = {"decode": base | {"tune": tune}, "remove_repetitions": removal, "corpus": CHARACTERS}
    words = ["--settings", json.dumps(settings), "--device", "cpu"]
    words += ["--bundle", str(tiny_bundles["score"]), "--source", str(tiny.corpus / "dev.de")]
    words += ["--reference", str(tiny.corpus / "dev.reference.en"), "--output", str(chosen)]
    run_stage("choose_settings", words)
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    references = (tiny.corpus / "dev.reference.en").read_text().splitlines()
    record = json.loads(chosen.read_text())
    by_hand = {}
    for size in tune["step_size"]:
        search_settings = {"search": "score", "steps": 2, "step_size": size, "normalised": True}
        kept, removed = (
            score.translate(lines, **search_settings, remove_repetitions=removed_units)
            for removed_units in ("none", removal)
        )
        assert removal != "subwords" or bleu(kept) != pytest.approx(bleu(removed))
        by_hand[size] = (bleu(removed), kept)
    assert [point["bleu"] for point in record["curve"]] == pytest.approx([bleu for bleu, _ in by_hand.values()])
    best = max(by_hand, key=lambda size: by_hand[size][0])
    assert read_chosen(chosen) == {"step_size": best}
    # Nothing but a step size above 0 is allowed, which both ends leave room for.
    edges = {0.0001: [["step_size", "0.0001", "smallest"]], 40.0: [["step_size", "40", "largest"]]}
    assert [re.findall(r"step_size|[\d.]+|smallest|largest", line) for line in record["at_edge"]] == edges.get(best, [])
    words = ["--settings", json.dumps(base), "--bundle", str(tiny_bundles["score"]), "--chosen", str(chosen)]
    words += ["--device", "cpu", "--source", str(tiny.corpus / "dev.de"), "--output", str(text)]
    run_stage("decode", words)
    assert text.read_text().splitlines() == by_hand[best][1]


def test_a_file_that_chose_nothing_is_refused(tmp_path):
    path = tmp_path / "chosen.json"
    path.write_text("{}")
    with pytest.raises(ArtifactError, match=f"^{path} has no chosen"):
        read_chosen(path)


def test_numbers_of_things_are_chosen_as_whole_numbers(tiny_bundles, tiny, run_stage, tmp_path):
    """Configurations hand values over as floats; lengths and samples index."""
    base = {"search": "latent-search", "steps": 0, "step_size": 1.0, "samples": 1, "refinement": "delta"}
    settings = {
        "decode": base | {"tune": {"lengths": [1.0, 2.0]}},
        "remove_repetitions": "subwords",
        "corpus": CORPUS,
    }
    words = ["--settings", json.dumps(settings), "--device", "cpu", "--bundle", str(tiny_bundles["score"])]
    words += ["--source", str(tiny.corpus / "dev.de"), "--reference", str(tiny.corpus / "dev.reference.en")]
    run_stage("choose_settings", [*words, "--output", str(tmp_path / "chosen.json")])
    record = json.loads((tmp_path / "chosen.json").read_text())
    assert [type(point["settings"]["lengths"]) for point in record["curve"]] == [int, int]
    assert type(record["chosen"]["lengths"]) is int


@pytest.mark.parametrize(
    ("tune", "fields"),
    [
        ({"step_size": [1.0, "large"]}, {"setting": "settings.decode.tune.step_size", "value": "large"}),
        ({"steps": [1, 2.5]}, {"setting": "settings.decode.tune.steps", "value": 2.5}),
        ({"step_sise": [1.0]}, {"setting": "settings.decode.tune.step_sise", "nearest": "step_size"}),
    ],
)
def test_a_wrong_value_to_try_is_refused_in_one_sentence(tune, fields, tiny_bundles, tiny, refused, tmp_path):
    base = {"search": "score", "steps": 2, "step_size": 1.0}
    settings = {
        "decode": base | {"tune": tune},
        "remove_repetitions": "none",
        "corpus": CORPUS,
    }
    words = ["--settings", json.dumps(settings), "--device", "cpu", "--bundle", str(tiny_bundles["score"])]
    words += ["--source", str(tiny.corpus / "dev.de"), "--reference", str(tiny.corpus / "dev.reference.en")]
    error = refused("choose_settings", [*words, "--output", str(tmp_path / "chosen.json")])
    assert fields_of(error, fields) == fields and not (tmp_path / "chosen.json").exists()


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"tune_by": "chrff"}, {"setting": "settings.decode.tune_by", "value": "chrff", "nearest": "chrf"}),
        # Not measured.
        ({"tune_by": "ter"}, {"setting": "settings.decode.tune_by", "allowed": ("bleu", "chrf")}),
        # It has a program, which runs after the decode.
        ({"tune_by": "comet"}, {"setting": "settings.decode.tune_by", "allowed": ("bleu", "chrf")}),
        # It reads the generated corpus alone.
        ({"tune_by": "validity"}, {"setting": "settings.decode.tune_by", "allowed": ("bleu", "chrf")}),
        ({"tune": {"beam": []}}, {"setting": "settings.decode.tune.beam", "value": []}),
        ({"search": ["beam"]}, {"setting": "settings.decode.search", "value": ["beam"]}),
        ({"search": {"beam": 1}}, {"setting": "settings.decode.search", "value": {"beam": 1}}),
        ({"values": {"beam": 3}}, {"setting": "settings.decode.values"}),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_before_anything_is_read(changes, fields, refused, tmp_path):
    decode = {"search": "beam", "tune": {"beam": [1, 2]}} | changes
    metrics = {"bleu": {}, "chrf": {}, "comet": {"checkpoint": "model.ckpt"}, "validity": {}}
    settings = {"decode": decode, "remove_repetitions": "none", "corpus": CORPUS, "metrics": metrics}
    words = ["--settings", json.dumps(settings), "--device", "cpu"]
    for name in ("bundle", "source", "reference", "output"):
        words += [f"--{name}", str(tmp_path / name)]
    assert fields_of(refused("choose_settings", words), fields) == fields
    assert not list(tmp_path.iterdir())


def test_all_references_of_dev_decide(score, tiny_bundles, tiny, run_stage, tmp_path):
    base, sizes = {"search": "score", "steps": 2, "step_size": 1.0}, [0.0001, 1.0]
    settings = {
        "decode": base | {"tune": {"step_size": sizes}},
        "remove_repetitions": "none",
        "corpus": CORPUS,
    }
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    every = [
        score.translate(lines, **base | {"step_size": s}, normalised=True, remove_repetitions="none") for s in sizes
    ]
    words = ["--settings", json.dumps(settings), "--device", "cpu", "--bundle", str(tiny_bundles["score"])]
    words += ["--source", str(tiny.corpus / "dev.de"), "--reference"]
    for number, texts in enumerate(every):
        (tmp_path / f"reference-{number}").write_text("".join(f"{line} more\n" for line in texts))
        words.append(str(tmp_path / f"reference-{number}"))
    run_stage("choose_settings", [*words, "--output", str(tmp_path / "chosen.json")])
    content = json.loads((tmp_path / "chosen.json").read_text())
    references = [[f"{line} more" for line in texts] for texts in every]
    expected = [sacrebleu.corpus_bleu(texts, references).score for texts in every]
    assert [point["bleu"] for point in content["curve"]] == pytest.approx(expected)
    assert set(content["provenance"]["inputs"]) >= {"reference", "reference 2"}


@pytest.mark.parametrize("name", ["chrf", "ter"])
def test_another_metric_may_choose_and_bleu_stands_beside_it(name, score, tiny_bundles, tiny, run_stage, tmp_path):
    base, sizes = {"search": "score", "steps": 2, "step_size": 1.0}, [0.0001, 1.0, 40.0]
    settings = {"decode": base | {"tune": {"step_size": sizes}}, "remove_repetitions": "none", "corpus": CHARACTERS}
    settings["decode"]["tune_by"] = name
    settings |= {"metrics": {"bleu": {}, name: {}}}
    words = ["--settings", json.dumps(settings), "--device", "cpu", "--bundle", str(tiny_bundles["score"])]
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    # The miniature's words are none of the references': these are its outputs with the last size.
    references = score.translate(lines, **base | {"step_size": sizes[-1]}, normalised=True, remove_repetitions="none")
    references = [f"{text} more" for text in references]
    (tmp_path / "reference").write_text("".join(f"{line}\n" for line in references))
    words += ["--source", str(tiny.corpus / "dev.de"), "--reference", str(tmp_path / "reference")]
    run_stage("choose_settings", [*words, "--output", str(tmp_path / "chosen.json")])
    content = json.loads((tmp_path / "chosen.json").read_text())
    oracle = {"chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}[name]
    figures = {}
    for point, size in zip(content["curve"], sizes, strict=True):
        texts = score.translate(lines, **base | {"step_size": size}, normalised=True, remove_repetitions="none")
        figures[size] = oracle.corpus_score(texts, [references]).score
        assert point[name] == pytest.approx(figures[size])
        assert point["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [references], tokenize="char").score)
    assert len(set(figures.values())) > 1
    best = (min if name == "ter" else max)(figures, key=figures.__getitem__)
    assert content["chosen"] == {"step_size": best} and content["tune_by"] == name
