"""Choosing settings on dev, and decoding with what was chosen."""

from __future__ import annotations

import json
import re

import pytest
import sacrebleu

from workflow_src.evaluation.quality.choosing import read_choice
from workflow_src.serving.translator import Translator

CORPUS = {"source": "de", "target": "en"}
CHARACTERS = CORPUS | {"tokeniser": "char"}


@pytest.fixture(scope="module")
def score(tiny_bundles):
    return Translator.load(tiny_bundles["score"], device="cpu", threads=1)


@pytest.fixture
def chosen_by(tiny, tiny_bundles, run_stage, tmp_path):
    """Chooses settings for the score network; returns what was written. `references` are files."""

    def run(decode, references=None, **settings):
        content = {"decode": decode, "remove_repetitions": "none", "corpus": CORPUS} | settings
        words = ["--settings", json.dumps(content), "--device", "cpu", "--bundle", str(tiny_bundles["score"])]
        words += ["--source", str(tiny.corpus / "dev.de"), "--output", str(tmp_path / "chosen.json"), "--reference"]
        run_stage("choose_settings", [*words, *map(str, references or [tiny.corpus / "dev.reference.en"])])
        return json.loads((tmp_path / "chosen.json").read_text())

    return run


BASE = {"search": "score", "steps": 2, "step_size": 1.0}


@pytest.mark.parametrize("removal", ["subwords", "words", "none"])
def test_the_best_on_dev_is_chosen_and_a_decode_uses_it(
    removal, score, chosen_by, tiny_bundles, tiny, run_stage, tmp_path
):
    # Over characters: the miniature's words are none of the references'.
    def bleu(texts):
        return sacrebleu.corpus_bleu(texts, [references], tokenize="char").score

    tune = {"step_size": [0.0001, 1.0, 40.0]}
    chosen, text = tmp_path / "chosen.json", tmp_path / "dev.txt"
    record = chosen_by(BASE | {"tune": tune}, remove_repetitions=removal, corpus=CHARACTERS)
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    references = (tiny.corpus / "dev.reference.en").read_text().splitlines()
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
    assert read_choice(chosen).chosen == {"step_size": best}
    # Nothing but a step size above 0 is allowed, which both ends leave room for.
    edges = {0.0001: [["step_size", "0.0001", "smallest"]], 40.0: [["step_size", "40", "largest"]]}
    assert [re.findall(r"step_size|[\d.]+|smallest|largest", line) for line in record["at_edge"]] == edges.get(best, [])
    words = ["--settings", json.dumps(BASE), "--bundle", str(tiny_bundles["score"]), "--chosen", str(chosen)]
    words += ["--device", "cpu", "--source", str(tiny.corpus / "dev.de"), "--output", str(text)]
    run_stage("decode", words)
    assert text.read_text().splitlines() == by_hand[best][1]


def test_numbers_of_things_are_chosen_as_whole_numbers(chosen_by):
    """Configurations hand values over as floats; lengths and samples index."""
    base = {"search": "latent-search", "steps": 0, "step_size": 1.0, "samples": 1, "refinement": "delta"}
    record = chosen_by(base | {"tune": {"lengths": [1.0, 2.0]}}, remove_repetitions="subwords")
    assert [type(point["settings"]["lengths"]) for point in record["curve"]] == [int, int]
    assert type(record["chosen"]["lengths"]) is int


def test_all_references_of_dev_decide(score, chosen_by, tiny, tmp_path):
    sizes = [0.0001, 40.0]
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    every = [
        score.translate(lines, **BASE | {"step_size": s}, normalised=True, remove_repetitions="none") for s in sizes
    ]
    files = [tmp_path / f"reference-{number}" for number in range(len(every))]
    for path, texts in zip(files, every, strict=True):
        path.write_text("".join(f"{line} more\n" for line in texts))
    content = chosen_by(BASE | {"tune": {"step_size": sizes}}, files, corpus=CHARACTERS)
    references = [[f"{line} more" for line in texts] for texts in every]
    expected = [sacrebleu.corpus_bleu(texts, references, tokenize="char").score for texts in every]
    assert len(set(expected)) == 2
    assert [point["bleu"] for point in content["curve"]] == pytest.approx(expected)
    assert set(content["provenance"]["inputs"]) >= {"reference", "reference 2"}


@pytest.mark.parametrize("name", ["chrf", "ter"])
def test_another_metric_may_choose_and_bleu_stands_beside_it(name, score, chosen_by, tiny, tmp_path):
    sizes = [0.0001, 1.0, 40.0]
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    # The miniature's words are none of the references': these are its outputs with the last size.
    references = score.translate(lines, **BASE | {"step_size": sizes[-1]}, normalised=True, remove_repetitions="none")
    references = [f"{text} more" for text in references]
    (tmp_path / "reference").write_text("".join(f"{line}\n" for line in references))
    decode = BASE | {"tune": {"step_size": sizes}, "tune_by": name}
    settings = {"corpus": CHARACTERS, "metrics": {"bleu": {}, name: {}}}
    content = chosen_by(decode, [tmp_path / "reference"], **settings)
    oracle = {"chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}[name]
    figures = {}
    for point, size in zip(content["curve"], sizes, strict=True):
        texts = score.translate(lines, **BASE | {"step_size": size}, normalised=True, remove_repetitions="none")
        figures[size] = oracle.corpus_score(texts, [references]).score
        assert point[name] == pytest.approx(figures[size])
        assert point["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [references], tokenize="char").score)
    assert len(set(figures.values())) > 1
    best = (min if name == "ter" else max)(figures, key=figures.__getitem__)
    assert content["chosen"] == {"step_size": best} and content["tune_by"] == name
