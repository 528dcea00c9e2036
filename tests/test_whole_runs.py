"""Whole runs with the real stages: what `smoke` and its siblings leave behind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import planted
import pytest
import reports
import sacrebleu
import smoke_check
from configurations import read_configuration
from conftest import PROJECT, copy_of_run, scheduled, snakemake
from counted_jobs import jobs

from workflow_src.config import Plan, load_experiment
from workflow_src.config.files import experiment_file
from workflow_src.data.toy import grammar
from workflow_src.evaluation.report import leaderboard
from workflow_src.evaluation.report.results import read_results
from workflow_src.records.verify import verify

SMOKE = str(PROJECT / "config/experiments/smoke.yaml")


@pytest.mark.slow
def test_a_whole_run_leaves_results_that_make_sense(smoke_run):
    assert smoke_check.problems("smoke", smoke_run) == []


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_other_families_go_on_from_its_teacher(smoke_run, tmp_path):
    folders = ("raw", "corpus", "subwords", "encoded", "distilled", "systems/teacher")
    copy_of_run(smoke_run, [f"results/smoke/{name}" for name in folders], tmp_path)
    words = ("--cores", "2", "--configfile", str(experiment_file("smoke-families")))
    plan = Plan(load_experiment("smoke-families"))
    # The rule train_teacher trains its LSTM and its student.
    jobs_left = scheduled(*words, folder=tmp_path)
    assert jobs_left["train_teacher"] == 2 and not {"distill", "encode"} & jobs_left.keys()
    process = snakemake(*words, folder=tmp_path, seconds=900, forked=True)
    assert process.returncode == 0, process.stderr[-3000:]
    assert smoke_check.problems_of(plan, tmp_path) == []


@pytest.mark.slow
def test_no_job_took_more_than_it_would_ask_a_cluster_for(smoke_run):
    plan = Plan(load_experiment("smoke"))
    assert smoke_check.excessive(plan, smoke_run) == []
    assert len(list(smoke_run.glob("benchmarks/**/*.tsv"))) == sum(jobs(plan).values())


@pytest.mark.slow
def test_a_finished_run_has_nothing_left_to_do(smoke_run):
    assert scheduled("--configfile", SMOKE, folder=smoke_run) == {}


@pytest.mark.slow
def test_snakemakes_own_report_shows_page_table_and_figures_with_captions(smoke_run, tmp_path):
    page = tmp_path / "report.html"
    process = snakemake("--configfile", SMOKE, "--report", str(page), folder=smoke_run)
    assert process.returncode == 0, process.stderr
    text = page.read_text()
    for words in ("trains and measures systems", "which needs no network", "one line a figure"):
        assert words in text, words
    figures = {path.stem for path in (smoke_run / "results/smoke/report/figures").glob("*.svg")}
    # Every other figure has a caption of its own.
    of_analyses = set(re.findall(r"What the analysis (\w+) shows", text))
    assert of_analyses == figures & Plan(load_experiment("smoke")).analyses.keys()
    shutil.rmtree(tmp_path)


def test_a_whole_run_on_a_text_with_faults_cleans_it_and_measures_every_test_set(smoke_run, tmp_path):
    (tmp_path / "converted").mkdir()
    for name in ("model.bin", "config.json", "shared_vocabulary.json"):
        shutil.copy(smoke_run / "results/smoke/systems/teacher/seed-1/ctranslate2" / name, tmp_path / "converted")
    shutil.copy(smoke_run / "results/smoke/subwords/joint.model", tmp_path / "converted/both.spm")
    generated = grammar.generate({"train": 1000, "dev": 40, "test": 60, "seed": 1})
    # Every fourth pair has a placeholder.
    generated = {split: with_placeholders(lines) for split, lines in generated.items()}
    pairs, faults = planted.plant(generated["train"], [*planted.FAULTS], 0.3, seed=1)
    (tmp_path / "planted").mkdir()
    # The last sentence of the second set is one of train, and its other references are empty but for that one.
    second_set = [*generated["test"][40:], generated["train"][0]]
    generated |= {"train": pairs, "test": generated["test"][:40], "more": second_set}
    for split, lines in generated.items():
        for code, side in zip(("de", "en"), zip(*lines, strict=True), strict=True):
            (tmp_path / f"planted/{split}.{code}").write_text("".join(f"{line}\n" for line in side))
    second_references = ["" if number % 2 else f"{target} too" for number, (_, target) in enumerate(second_set)]
    (tmp_path / "planted/other.en").write_text("".join(f"{line}\n" for line in second_references))
    drawn_more = grammar.generate({"train": 200, "dev": 1, "test": 1, "seed": 2})["train"]
    news = [german for german, _ in with_placeholders(drawn_more)]
    held_out = [german for german, _ in generated["test"][:5]]
    news = [*news, *news[:20], *held_out, "", "1 2 3"]
    (tmp_path / "planted/news.de").write_text("".join(f"{line}\n" for line in news))
    configuration = str(PROJECT / "tests/experiments/smoke-clean.yaml")
    process = snakemake("--cores", "2", "--configfile", configuration, folder=tmp_path, seconds=900, forked=True)
    assert process.returncode == 0, process.stderr[-3000:]
    results = tmp_path / "results/smoke-clean"
    corpus = json.loads((results / "corpus/corpus.json").read_text())
    left_out = sum(sum(step["dropped"].values()) for step in corpus["cleaning"])
    assert left_out == corpus["dropped"]["train"]["cleaning"] and corpus["read"]["train"] == 1000
    faulty = sum(fault not in (None, "garbled", "invisible") for fault in faults)
    # The toy grammar itself writes some pairs twice.
    assert 0.95 * faulty <= left_out <= 1.2 * faulty
    page = (results / "report/index.html").read_text()
    rows = re.findall(r"<tr><td>([^<]+)</td><td>[^<]*</td><td class=\"num\">([\d,]+)</td><td class=\"num\">(\d+)", page)
    dropped = {title: int(count) for title, _, count in rows}
    for step in corpus["cleaning"]:
        assert dropped.get(step["title"], 0) == sum(step["dropped"].values())
        assert not step["examples"] or f"<summary>{step['title']}: examples</summary>" in page
    monolingual = json.loads((results / "corpus/monolingual.json").read_text())
    lines, dropped = (monolingual[name]["monolingual"] for name in ("pairs", "dropped"))
    assert dropped | {"repeated": 20, "held_out": 5, "cleaning": 2} == dropped
    assert monolingual["read"] == {"monolingual": len(news)} and len(news) == lines + sum(dropped.values())
    trained = json.loads((results / "systems/ctc/seed-1/config.json").read_text())["texts"]
    pairs = {text: json.loads((results / f"encoded/{text}/train.json").read_text())["pairs"] for text in trained}
    assert {text: counts["pairs"] for text, counts in trained.items()} == pairs
    encoded = json.loads((results / "encoded/raw/train.json").read_text())
    assert pairs["likely-by-teacher"] == round(0.8 * encoded["pairs"])
    assert pairs["monolingual-by-teacher"] <= lines and "distilled-by-outside" in pairs
    (augmented,) = (json.loads(path.read_text())["augmented"] for path in results.glob("encoded/raw+*/train.json"))
    assert augmented["upper"] + augmented["title"] > 0.1 * encoded["pairs"]
    shown = re.sub(r"(<[^>]+>\s*)+", "|", page)
    likely = trained["likely-by-teacher"]
    for words in (
        "Likelihood under teacher and back",
        "raw (reversed)",
        "|monolingual, lines of German|",
        f"|likely-by-teacher|{likely['pairs']:,}|{likely['pairs_an_epoch']:g}|",
    ):
        assert words in shown
    assert smoke_check.problems_of(Plan(read_configuration(configuration)), tmp_path) == []
    # Ten of the sources of test have a placeholder each, and their outcomes are in the scores and on the page.
    for quality in results.glob("quality/*/*/*/plain.json"):
        outcomes = json.loads(quality.read_text())["placeholders"]
        counts = "|".join(str(outcomes.get(name, 0)) for name in ("spans", "missing", "surplus", "dropped"))
        assert outcomes["spans"] == 10 and f"|{counts}|" in shown
    spans = encoded["placeholders"]
    assert 100 < spans["pairs"] == spans["spans"] and f"pairs {spans['pairs']}, spans" in shown
    assert corpus["placeholders"]["plain"] == {"pairs": 10, "spans": 10, "without_partner": 0}
    _check_test_sets(results, corpus, page, generated["more"], second_references)
    assert verify(results) and scheduled("--configfile", configuration, folder=tmp_path) == {}


def _check_test_sets(
    results: Path, corpus: dict, page: str, second_set: list[tuple[str, str]], second_references: list[str]
) -> None:
    """The second set has figures of each row of the first, in results and in the leaderboard, and its own ones."""
    measured = read_results(results)
    assert measured.record.splits == ("plain", "twofold") and corpus["references"] == {"twofold": 2}
    plain, further = (reports.flat(measured, split) for split in measured.record.splits)
    key = lambda row: (row.system, row.decode, row.variant)  # noqa: E731
    assert list(map(key, plain)) == list(map(key, further))
    assert all(row.latency_ms is None and row.energy_per_sentence is not None for row in further[:1])
    compared = json.loads((results / "significance-twofold.json").read_text())
    assert compared["sentences"] == len(second_set) and any(
        pair["why"] == "autoregressive" for pair in compared["pairs"]
    )
    references = [target for _, target in second_set]
    for row in further:
        folder = results / f"translations/{row.system}/seed-1/{row.decode}"
        if row.variant == "none":
            outputs = (folder / "twofold.txt").read_text().splitlines()
            lines = [references, [line or None for line in second_references]]
            assert row.bleu == pytest.approx(sacrebleu.corpus_bleu(outputs, lines).score)
            assert row.chrf == pytest.approx(sacrebleu.corpus_chrf(outputs, lines).score)
    signatures = measured.record.signatures
    assert "nrefs:var" in signatures["twofold"]["BLEU"] and "nrefs:1" in signatures["plain"]["BLEU"]
    assert corpus["found_in_train"]["twofold"]["pair"] == 1 and corpus["pairs"]["twofold"] == len(second_set)
    assert "<h3>On twofold</h3>" in page and "Each source has 2, which count together" in page
    board = leaderboard.read(results)
    assert {row["test_set"].partition(":")[0] for row in board} == {"plain", "twofold"} and len(board) == 6
    assert len({row["test_set"] for row in board}) == 2


def with_placeholders(lines):
    return [tuple(f"%1 {side}" for side in pair) if number % 4 == 0 else pair for number, pair in enumerate(lines)]
