"""p-values of an experiment's rows, from its translations."""

from __future__ import annotations

import json
import math
import random

import pytest

from workflow_src.config.metrics import Measured
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.metrics import sentence_counts
from workflow_src.evaluation.quality.significance import TRIALS, randomisation_test
from workflow_src.registry import main_metric, metrics
from workflow_src.spec import Corpus, Texts

SCORING = {"corpus": {"source": "de", "target": "en"}}
WORDS = "the a red green house tree old man walks sees under over big small".split()


@pytest.fixture
def rows(tmp_path):
    source = random.Random(1)
    references = [" ".join(source.choices(WORDS, k=9)) for _ in range(40)]

    def row(system, name, share, baseline, autoregressive=False, seed=1, delta=None):
        spoiled = [
            " ".join(source.choice(WORDS) if source.random() < share else word for word in line.split())
            for line in references
        ]
        # Repetitions, so that the variants differ.
        joined = [f"{line.split()[-1][:2]} {line}" for line in spoiled]
        spoiled = [f"{line.split()[0]} {line}" for line in spoiled]
        path = tmp_path / f"{system}-{name}-{seed}.txt"
        path.write_text("".join(f"{line}\n" for line in spoiled))
        details = path.with_suffix(".jsonl")
        details.write_text("".join(json.dumps({"without_repeated_subwords": line}) + "\n" for line in joined))
        entry = {"system": system, "name": name, "seed": seed, "baseline": baseline, "autoregressive": autoregressive}
        entry["repetitions_removed"] = "none" if autoregressive else "subwords"
        entry["controls"] = {"delta": delta} if delta else {}
        return entry | {"translations": str(path), "details": str(details)}

    (tmp_path / "reference.txt").write_text("".join(f"{line}\n" for line in references))
    entries = [
        row("teacher", "beam-4", 0.1, None, True),
        row("lvm", "prior-mean", 0.4, ["teacher", "beam-4"]),
        row("lvm", "delta-1", 0.38, ["lvm", "prior-mean"]),
        row("score", "score-1", 0.35, ["lvm", "prior-mean"], delta=["lvm", "delta-1"]),
        row("score", "score-1", 0.35, ["lvm", "prior-mean"], seed=2, delta=["lvm", "delta-1"]),
        row("teacher", "greedy", 0.2, ["teacher", "beam-4"], True),
    ]
    return entries, references


def words_of(tmp_path, listed, further=(), **settings):
    """Words of a comparison of rows, with the further references beside the one of `rows`."""
    words = ["--settings", json.dumps(SCORING | {"rows": listed} | settings)]
    words += ["--source", str(tmp_path / "reference.txt"), "--reference", str(tmp_path / "reference.txt"), *further]
    return [*words, "--output", str(tmp_path / "significance.json")]


@pytest.fixture
def compare(run_stage, tmp_path):

    def run(listed, further=(), **settings):
        run_stage("compare_rows", words_of(tmp_path, listed, further, **settings))
        return json.loads((tmp_path / "significance.json").read_text())

    return run


def entries(content, why, metric="bleu") -> dict:
    """Differences and p-values of pairs by row and variant."""
    chosen = [pair for pair in content["pairs"] if pair["why"] == why and pair["metric"] == metric]
    return {(pair["system"], pair["name"], pair["seed"], pair["variant"]): pair for pair in chosen}


def one_pair(baseline, other, references, metric=None, further=()):
    """Difference in a metric, by default BLEU, and p-value of one pair."""
    metric = metric or main_metric()
    (counts, combine), (baseline_counts, _) = (
        sentence_counts(Measured(metric, metric.settings()), Texts(lines, references, (), Corpus("de", "en"), further))
        for lines in (baseline, other)
    )
    differences, values = randomisation_test(counts, baseline_counts[None], combine)
    return differences[0], values[0]


def test_differences_are_those_against_all_references(rows, compare, tmp_path):
    listed, references = rows
    further = [" ".join(line.split()[::-1]) for line in references]
    (tmp_path / "second.txt").write_text("".join(f"{line}\n" for line in further))
    content = compare(listed[:2], [str(tmp_path / "second.txt")])
    row = entries(content, "baseline")["lvm", "prior-mean", 1, "none"]
    outputs = [open(entry["translations"]).read().splitlines() for entry in listed[:2]]
    difference, p_value = one_pair(*outputs, references, further=(further,))
    assert row["difference"] == pytest.approx(difference) and row["p_value"] == pytest.approx(p_value)
    assert difference != pytest.approx(one_pair(*outputs, references)[0], abs=1e-6)
    assert {"reference", "reference 2"} <= set(content["provenance"]["inputs"])


def test_rows_are_compared_with_their_baseline_of_the_same_seed(rows, compare):
    listed, references = rows
    content = compare(listed)
    compared, network = entries(content, "baseline"), entries(content, "control")
    assert content["test"]["trials"] == TRIALS
    # Seed 2 has no prior mean to be compared with, and no delta.
    expected = {("lvm", "prior-mean"), ("lvm", "delta-1"), ("score", "score-1"), ("teacher", "greedy")}
    assert {key[:3] for key in compared} == {(*row, 1) for row in expected}
    # Repetitions of autoregressive rows are kept: they are compared once.
    assert [key[3] for key in compared if key[0] == "teacher"] == ["none"]
    assert {key[:3] for key in network} == {("score", "score-1", 1)}
    text = {row["name"]: open(row["translations"]).read().splitlines() for row in listed[:4]}
    records = {row["name"]: open(row["details"]).read().splitlines() for row in listed[:4]}
    joined = {
        name: [json.loads(line)["without_repeated_subwords"] for line in lines] for name, lines in records.items()
    }
    short = {name: [collapse_repetitions(line) for line in lines] for name, lines in text.items()}
    prior, refined = ("lvm", "prior-mean", 1), ("score", "score-1", 1)
    for variant, lines in {"none": text, "words": short, "subwords": joined}.items():
        pairs = (
            # Outputs of autoregressive rows keep their repetitions in all variants.
            (compared[*prior, variant], ["teacher", "beam-4"], text["beam-4"], lines["prior-mean"]),
            (compared[*refined, variant], ["lvm", "prior-mean"], lines["prior-mean"], lines["score-1"]),
            (network[*refined, variant], ["lvm", "delta-1"], lines["delta-1"], lines["score-1"]),
        )
        for entry, named, baseline, other in pairs:
            expected = one_pair(baseline, other, references)
            assert entry["other"] == named and (entry["difference"], entry["p_value"]) == pytest.approx(expected)
    assert compared[*prior, "none"]["p_value"] < 0.05


def test_an_experiment_without_test_rows_has_an_empty_comparison(compare, tmp_path):
    (tmp_path / "reference.txt").write_text("a\n")
    assert compare([])["pairs"] == []


def test_every_row_is_compared_with_the_autoregressive_rows_of_its_seed(rows, compare):
    """Repetitions removed as in the main table: the difference in BLEU is that of `rows`."""
    listed, _references = rows
    content = compare(listed[:-1])
    assert content["sentences"] == 40
    rivals = entries(content, "autoregressive")
    # Seed 2 has no autoregressive row, and a row is not compared with itself.
    assert {key[:3] for key in rivals} == {(row["system"], row["name"], 1) for row in listed[1:4]}
    rival = rivals["lvm", "prior-mean", 1, "subwords"]
    assert rival["other"] == ["teacher", "beam-4"] and "p_value" not in rival
    prior = entries(content, "baseline")["lvm", "prior-mean", 1, "subwords"]
    assert rival["difference"] == pytest.approx(prior["difference"]) and rival["difference"] < 0 < rival["error"]


def test_the_error_of_a_difference_in_validity_is_that_of_two_paired_shares(rows, compare, monkeypatch):
    """Of 40 outputs, 12 are valid in one row only and 3 in the other only: (15 − 9² / 40) / 39 is the variance."""
    listed, _ = rows
    beam, _prior = ([*map(str.strip, open(row["translations"]))] for row in listed[:2])
    joined = [json.loads(line)["without_repeated_subwords"] for line in open(listed[1]["details"])]
    valid = {*beam[:12], *joined[12:15]}
    assert not valid & {*beam[12:], *joined[:12], *joined[15:]}
    monkeypatch.setattr(
        "workflow_src.data.toy.grammar.ToyGrammar.is_valid", lambda self, german, english: english in valid
    )
    content = compare(listed[:2], corpus=SCORING["corpus"] | {"generated": True})
    rivals = entries(content, "autoregressive", "validity")
    rival = rivals["lvm", "prior-mean", 1, "subwords"]
    assert rival["difference"] == pytest.approx((3 - 12) / 40)
    assert rival["error"] == pytest.approx(math.sqrt((15 - 9**2 / 40) / 39 / 40))


def test_further_metrics_are_compared_with_the_baseline_too(rows, compare):
    listed, references = rows
    content = compare(listed, metrics={"bleu": {}, "chrf": {}, "ter": {}})
    beam, prior = (open(row["translations"]).read().splitlines() for row in listed[:2])
    # chrF has no p-values beside it; controls are compared in BLEU, which alone decides which rows are as good.
    by_why = {(pair["why"], pair["metric"]) for pair in content["pairs"]}
    assert by_why == {("baseline", "bleu"), ("baseline", "ter"), ("control", "bleu"), ("autoregressive", "bleu")}
    tested = entries(content, "baseline", "ter")["lvm", "prior-mean", 1, "none"]
    expected = one_pair(beam, prior, references, metrics()["ter"])
    assert (tested["difference"], tested["p_value"]) == pytest.approx(expected) and tested["difference"] > 0


@pytest.mark.parametrize(("number", "name"), [(0, "translations"), (1, "translations"), (1, "details")])
@pytest.mark.parametrize("lines", [1, 41])
def test_a_row_of_another_number_of_lines_than_the_source_is_refused(rows, refused, tmp_path, number, name, lines):
    """One line would be compared with every reference, and give a difference of 0 and a p-value of 1."""
    listed, _ = rows
    path = listed[number][name]
    content = open(path).read().splitlines(keepends=True)
    with open(path, "w") as file:
        file.writelines([*content, *content][:lines])
    error = refused("compare_rows", words_of(tmp_path, listed[:2]))
    assert isinstance(error, ArtifactError) and path in str(error)
    assert not (tmp_path / "significance.json").exists()
