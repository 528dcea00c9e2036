"""A package from outside goes through the whole workflow by real Snakemake: a family, a search, an engine, an
analysis, a metric, a filter.

The package is written to the folder that Snakemake starts in; no file of the tree names what it declares.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest
import wordbag
import yaml
from conftest import PROJECT, copy_of_run, log_contains, snakemake, snakemake_started, wait_for
from stage_server import python_module

from workflow_src.evaluation.report import results
from workflow_src.records.atomic import read_json

pytestmark = pytest.mark.timeout(1500)
EVERY = {"validate_every": 250, "save_every": 250}
# The members of the package, beside a teacher and a latent-variable model of `smoke` and on the same data.
CONFIGURATION = {
    "experiment": "outside",
    "extends": "smoke",
    "description": "A package from outside.",
    "plugins": ["bagged"],
    "systems": {
        **dict.fromkeys(("score", "energy", "ctc", "lm")),
        "bag": {
            **{
                "family": "wordbag",
                "preset": "larger",
                "objective": {"sharpness": 1.5},
                "data": "distilled-by-teacher",
            },
            "training": {"batch_tokens": 1000, "warmup_steps": 20, "dev_sentences": 5, "max_steps": 2000} | EVERY,
        },
    },
    "decodes": [
        {"system": "teacher", "search": "beam", "beam": 2},
        {"system": "lvm", "search": "delta", "steps": 1},
        {"system": "bag", "search": "unrepeat", "passes": [0, 2], "shards": 2},
        {"system": "bag", "search": "unrepeat", "passes": 2, "engine": "ledger"},
        {
            "system": "bag",
            "search": "unrepeat",
            "passes": 1,
            "tune": {"stretch": [0.5, 1.0]},
            "tune_by": "exactmatch",
            "name": "tuned",
        },
    ],
    # Of miniatures no whole sentence is right.
    "metrics": {"chrf": {}, "exactmatch": {"words": 1}, "letters": {}},
    "speed": {"sentences": 3, "warmup": 1, "repeats": 2, "batch": 3},
    "analyses": {
        **{name: {"enabled": False} for name in ("marginal", "tokens", "lengths", "samples", "latent_space")},
        "outputs_by_length": {"width": 3},
    },
    "report": {"examples": 2},
}
READY = ("raw", "corpus", "subwords", "encoded", "distilled", "systems/teacher", "systems/lvm")
LOG = "logs/smoke/train_wordbag/bag/seed-1.log"
# The folder that experiments on these data share, and the one of this experiment.
SHARED, RESULTS = "results/smoke", "results/outside"
BAG = f"{SHARED}/systems/bag/seed-1"
WORDS = ("--cores", "2", "--configfile", "outside.yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory, smoke_run) -> Path:
    """The folder of a whole run, in which the training was stopped once."""
    folder = tmp_path_factory.mktemp("outside")
    copy_of_run(smoke_run, [f"{SHARED}/{name}" for name in READY], folder)
    wordbag.write(folder)
    (folder / "outside.yaml").write_text(yaml.safe_dump(CONFIGURATION, sort_keys=False))
    running = snakemake_started(*WORDS, folder=folder, forked=True)
    try:
        wait_for(lambda: log_contains(folder / LOG, "step 250  validation"), 400, running)
        jobs = psutil.Process(running.pid).children(recursive=True)
        next(job for job in reversed(jobs) if "workflow_src.stages.train" in job.cmdline()).terminate()
        assert running.wait(120) == 1
    finally:
        running.kill()
    assert log_contains(folder / LOG, "SIGTERM")
    # All but the report.
    targets = [f"{RESULTS}/{name}.json" for name in ("significance", "speed", "analysis/traces")]
    process = snakemake("quality", "bundles", *targets, *WORDS, folder=folder, seconds=900, forked=True)
    logs = "\n".join(f"{path}: {path.read_text()[-600:]}" for path in sorted(folder.glob("logs/**/*.log")))
    assert process.returncode == 0, f"{process.stderr[-3000:]}\n{logs[-6000:]}"
    return folder


@pytest.fixture(scope="module")
def report(run) -> Path:
    """The folder of the report."""
    process = snakemake(*WORDS, folder=run, forked=True)
    assert process.returncode == 0, process.stderr[-3000:]
    return run / RESULTS / "report"


def continuum(*words: str, folder: Path, **options) -> str:
    """Output of the command `continuum`, started in `folder`."""
    command = python_module("workflow_src.cli", *words)
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "COLUMNS": "200"}
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, **options
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_it_is_trained_where_it_was_stopped_and_validated_by_its_own_figure(run):
    step = int(re.search(r"resumed\D+(\d+)", (run / LOG).read_text())[1])
    assert 250 <= step < 2000
    history = [json.loads(line) for line in (run / BAG / "training.jsonl").read_text().splitlines()]
    figures = {entry["step"]: entry["dev_words"] for entry in history if "dev_words" in entry}
    assert set(range(250, 2001, 250)) <= set(figures) and all(0 < figure <= 1 for figure in figures.values())
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    config = read_json(run / BAG / "config.json")
    assert (config["preset"], config["model"]["dim"], config["objective"]) == ("larger", 16, {"sharpness": 1.5})
    assert config["data"] == "distilled-by-teacher"
    (plugin,) = config["provenance"]["plugins"]
    assert (plugin["name"], plugin["version"]) == ("bagged", "0.3")


def tuned(run: Path) -> str:
    """The folder of the decode `tuned`."""
    (folder,) = (run / SHARED / "translations/bag/seed-1").glob("tuned-*")
    return folder.name


def pairs_of(run):
    """Entries of significance.json by the name of the row, why it is compared, metric and variant."""
    pairs = read_json(run / RESULTS / "significance.json")["pairs"]
    return {(pair["name"], pair["why"], pair["metric"], pair["variant"]): pair for pair in pairs}


def test_it_is_decoded_in_shards_with_what_dev_chose_scored_and_compared(run):
    names = ["unrepeat-0", "unrepeat-2", "unrepeat-2-ledger-float32", tuned(run)]
    folder = run / SHARED / "translations/bag/seed-1"
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for name in names:
        assert (folder / name / "test.txt").read_text().count("\n") == 40
        assert 0 <= read_json(run / RESULTS / f"quality/bag/seed-1/{name}/test.json")["kept"]["bleu"] <= 100
    for name in names[:2]:
        assert len(list((folder / name / "test.shards").glob("*-of-2.jsonl"))) == 2
    chosen = read_json(run / SHARED / f"chosen/bag/seed-1/{tuned(run)}.json")
    assert [point["settings"]["stretch"] for point in chosen["curve"]] == [0.5, 1.0]
    assert chosen["tune_by"] == "exactmatch" and all(0 <= point["bleu"] <= 100 for point in chosen["curve"])
    best = max(chosen["curve"], key=lambda point: point["exactmatch"])["settings"]
    assert chosen["chosen"] == best
    # Passes change something, and the engine nothing.
    records = {
        name: [json.loads(line)["subwords"] for line in (folder / name / "test.jsonl").read_text().splitlines()]
        for name in names
    }
    assert records["unrepeat-0"] != records["unrepeat-2"] == records["unrepeat-2-ledger-float32"]
    # Its engine reads a folder that a rule of its own wrote.
    exported = read_json(run / BAG / "ledger/bundle.json")
    assert exported["engine"] == "ledger" and exported["provenance"]["ledger"] == "1.0"
    assert log_contains(run / "logs/smoke/export_ledger/bag/seed-1.log", "for Ledger 1.0")
    compared = pairs_of(run)
    tested = [compared["unrepeat-2", "baseline", "bleu", variant] for variant in ("none", "words", "subwords")]
    assert all(pair["other"] == ["teacher", "beam-2"] and 0 < pair["p_value"] <= 1 for pair in tested)


def test_it_is_timed_and_shown_pass_by_pass(run):
    (measured,) = read_json(run / RESULTS / "speed.json")["protocols"]
    timed = {row["name"]: row for row in measured["rows"] if row["system"] == "bag"}
    assert set(timed) == {"unrepeat-0", "unrepeat-2", "unrepeat-2-ledger-float32", "tuned"}
    assert all(row["latency_ms"] > 0 and row["sentences_per_second"] > 0 for row in timed.values())
    examples = read_json(run / RESULTS / "analysis/traces.json")["examples"]
    assert examples and all(len(example["searches"]["without repetitions"]) == 3 for example in examples)


def test_tables_and_figures_show_it_by_what_it_declares(report):
    """Title of the group, labels of its rows, its points, and the curve over its series."""
    rows = results.read_results(report).rows
    own_rows = set(rows.loc[(rows["system"] == "bag") & (rows["search"] == "unrepeat"), "decode"])
    assert own_rows == {"unrepeat-0", "unrepeat-2", "unrepeat-2-ledger-float32", "tuned"}
    text = (report / "results.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("| **")]
    title = next(line for line in titles if "Bag of words “bag”" in line)
    assert any("Latent-variable model “lvm”" in line for line in titles)
    rows = text.split(title)[1].split("| **")[0]
    for label in ("without repetitions, passes 0", "without repetitions, passes 2"):
        assert label in rows
    figures = {path.stem: path.read_text() for path in (report / "figures").glob("*.svg")}
    for name in ("quality_speed", "refinement"):
        # Letters are outlines there.
        assert wordbag.COLOUR in figures[name]
    pictures = "".join(re.findall(r"<svg.*?</svg>", (report / "index.html").read_text(), re.DOTALL))
    # A figure of its validation has a panel.
    assert "without repetitions" in pictures and ">Words on dev<" in pictures


def test_its_analysis_is_measured_and_shown(run, report):
    content = read_json(run / RESULTS / "analysis/outputs-by-length.json")
    assert content["analysis"] == "outputs_by_length" and content["split"] == "test" and content["width"] == 3
    bars_of: dict[tuple[str, str], list[int]] = {}
    for row in content["rows"]:
        bars_of.setdefault((row["system"], row["name"]), []).append(row["sentences"])
    assert bars_of.keys() >= {("teacher", "beam-2"), ("bag", "tuned")}
    for (system, decode), counts in bars_of.items():
        name = tuned(run) if decode == "tuned" else decode
        path = run / SHARED / f"translations/{system}/seed-1/{name}/test.jsonl"
        lengths = [len(json.loads(line)["subwords"]) for line in path.read_text().splitlines()]
        bars = [sum(3 * bar <= length < 3 * bar + 3 for length in lengths) for bar in range(max(lengths) // 3 + 1)]
        assert counts == bars and sum(bars) == 40
    (plugin,) = content["provenance"]["plugins"]
    assert plugin["name"] == "bagged" and "details bag tuned 1" in content["provenance"]["inputs"]
    assert (report / "figures/outputs_by_length.svg").is_file()
    page, text = (report / "index.html").read_text(), (report / "results.md").read_text()
    section = page[page.index("<h3>Lengths of what rows put out</h3>") :]
    assert "by the length of their translation, in subwords." in section and 'class="still"><svg' in section
    assert "The first bar has lengths below 3." in section
    shown: dict[str, list[tuple[int, int]]] = {}
    for line in text[text.index("### Lengths of what rows put out") :].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[1].startswith("bag, ") and cells[2].isdigit():
            shown.setdefault(cells[1], []).append((int(cells[2]), int(cells[3])))
    assert list(enumerate(bars_of["bag", "tuned"])) in shown.values()


def test_its_metric_scores_distinguishes_rows_and_is_shown(run, report):
    references = [line.split()[:1] for line in (run / SHARED / "corpus/test.reference.en").read_text().splitlines()]
    shares = {}
    for name in ("teacher/seed-1/beam-2", "bag/seed-1/unrepeat-2"):
        lines = (run / SHARED / f"translations/{name}/test.txt").read_text().splitlines()
        shares[name] = sum(line.split()[:1] == first for line, first in zip(lines, references, strict=True)) / 40
        entries = read_json(run / RESULTS / f"quality/{name}/test.json")["kept"]
        low, high = entries["exactmatch_ci"]
        assert entries["exactmatch"] == pytest.approx(shares[name]) and low <= entries["exactmatch"] <= high
        assert {"bleu", "chrf"} <= entries.keys() and "validity" not in entries
    compared = pairs_of(run)
    tested = compared["unrepeat-2", "baseline", "exactmatch", "none"]
    gain = shares["bag/seed-1/unrepeat-2"] - shares["teacher/seed-1/beam-2"]
    assert tested["difference"] == pytest.approx(gain) and 0 < tested["p_value"] <= 1
    deciding = {metric for name, why, metric, _ in compared if (name, why) == ("unrepeat-2", "autoregressive")}
    assert deciding == {"bleu", "exactmatch"}
    measured = results.read_results(report)
    assert [metric.name for metric in measured.metrics] == ["bleu", "chrf", "exactmatch", "letters"]
    figures = results.means(measured.shown("test"))
    exact = figures["teacher", "beam-2"]["exactmatch"].value
    assert exact == pytest.approx(shares["teacher/seed-1/beam-2"])
    assert figures["bag", "unrepeat-2"]["exactmatch"].p is not None
    text = (report / "results.md").read_text()
    heads = next(line for line in text.splitlines() if line.startswith("|") and "chrF" in line)
    assert [cell.strip() for cell in heads.split("|")[2:7]] == ["BLEU", "p", "chrF", "exact, %", "p, exact, %"]
    line = next(line for line in text.splitlines() if line.startswith("| beam 2 "))
    assert line.split("|")[5].split()[0] == f"{100 * exact:.1f}"
    assert "exact matches: of the first words." in text
    # The choice on dev shows both metrics; a comparison needs no plug-in.
    assert "dev exact matches" in text
    output = continuum("compare", "outside", "--output", "both.html", folder=run)
    assert "both.html" in output and "exactmatch" in (run / "both.md").read_text()


def test_a_program_computes_its_other_metric(run, report):
    """In a process of its own, which knows nothing of the project."""
    references = (run / SHARED / "corpus/test.reference.en").read_text().splitlines()
    means = {}
    for name in ("teacher/seed-1/beam-2", "bag/seed-1/unrepeat-2"):
        lines = (run / SHARED / f"translations/{name}/test.txt").read_text().splitlines()
        pairs = [(set(line), set(reference)) for line, reference in zip(lines, references, strict=True)]
        means[name] = sum(len(ours & theirs) / len(ours | theirs) for ours, theirs in pairs) / 40
        entries = read_json(run / RESULTS / f"quality/{name}/test.json")["kept"]
        low, high = entries["letters_ci"]
        assert entries["letters"] == pytest.approx(means[name]) and low < entries["letters"] < high
        assert (run / RESULTS / f"computed/letters/{name}/test.json").is_file()
    compared = pairs_of(run)
    tested = compared["unrepeat-2", "baseline", "letters", "none"]
    gain = means["bag/seed-1/unrepeat-2"] - means["teacher/seed-1/beam-2"]
    assert tested["difference"] == pytest.approx(gain) and 0 < tested["p_value"] <= 1
    figures = results.means(results.read_results(report).shown("test"))
    assert figures["teacher", "beam-2"]["letters"].value == pytest.approx(means["teacher/seed-1/beam-2"])
    assert figures["bag", "unrepeat-2"]["letters"].p is not None
    assert "shared letters" in (report / "results.md").read_text()
    # Later jobs read the figures that earlier ones computed.
    cached = (run / "work/computed/letters").glob("*/*.jsonl")
    keys = {json.loads(line)[0] for path in cached for line in path.read_text().splitlines() if line}
    assert keys == {
        key for path in (run / RESULTS / "computed").rglob("test.json") for key in read_json(path)["figures"]
    }


@pytest.mark.runs
def test_its_filter_cleans_and_is_previewed(tmp_path):
    wordbag.write(tmp_path)
    dataset = {"generator": {"train": 300, "dev": 20, "test": 20}}
    recipe = {"name": "cleaned", "dataset": dataset, "clean": {"openings": {"words": ["Der", "Die"]}}}
    configuration = {"experiment": "cleaned", "extends": "smoke", "plugins": ["bagged"], "recipe": recipe}
    (tmp_path / "cleaned.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False))
    output = continuum("clean", "cleaned.yaml", "--preview", "300", folder=tmp_path)
    process = snakemake("normalised", "--cores", "1", "--configfile", "cleaned.yaml", folder=tmp_path)
    assert process.returncode == 0, process.stderr[-3000:]

    def pairs(folder):
        sides = ((tmp_path / f"results/cleaned/{folder}/train.{code}").read_text() for code in ("de", "en"))
        return list(zip(*map(str.splitlines, sides), strict=True))

    raw, clean = pairs("raw"), pairs("clean")
    assert clean == [
        (source, target.removesuffix("?")) for source, target in raw if source.split()[0] not in ("Der", "Die")
    ]
    (step,) = read_json(tmp_path / "results/cleaned/corpus/corpus.json")["cleaning"]
    questions = sum(target.endswith("?") for _, target in raw)
    assert (step["dropped"], step["repaired"]) == ({"words in de": 300 - len(clean)}, questions) and len(clean) < 280
    assert re.search(rf"openings +│ +300 │ +{300 - len(clean)} │ +{questions} │ words in de", output)


def test_estimate_counts_it_and_verify_vouches_for_it(run):
    output = continuum("estimate", "outside.yaml", "--no-calibration", folder=run)
    jobs = " ".join(output.split())
    assert re.search(r"\btrain_wordbag 1\b", jobs) and re.search(r"\bmeasure_outputs_by_length 1\b", jobs)
    # Its parameters are counted.
    assert re.search(r"^train +bag +1 +[0-9]", output, re.MULTILINE)
    assert "match" in continuum("verify", SHARED, RESULTS, folder=run)
    (run / BAG / "training.jsonl").write_text((run / BAG / "training.jsonl").read_text() + "\n")
    with pytest.raises(AssertionError, match=r"training.jsonl"):
        continuum("verify", SHARED, RESULTS, folder=run)


def test_its_bundle_translates_with_the_options_of_its_search(run):
    words = ("translate", "--bundle", f"{BAG}/bundle", "--plugins", "bagged", "--device", "cpu")
    output = " ".join(continuum(*words, "--search", "unrepeat", "--help", folder=run).split())
    assert "options of search unrepeat" in output and "--stretch STRETCH of lengths; default 1.0" in output
    lines = (run / SHARED / "corpus/test.de").read_text()
    translations = {
        options: continuum(*words, *options, folder=run, input=lines).splitlines()
        for options in ((), ("--passes", "2"), ("--passes", "2", "--stretch", "0.5"))
    }
    assert all(len(text) == 40 for text in translations.values())
    assert len({tuple(text) for text in translations.values()}) == 3


def test_no_file_of_the_tree_names_it():
    folders = ("workflow_src", "rules", "config", "docs", "envs", ".ci")
    files = [path for folder in folders for path in (PROJECT / folder).rglob("*") if path.is_file()]
    others = ("Snakefile", "Makefile", "README.md", "CHANGELOG.md", "pyproject.toml")
    files += [PROJECT / name for name in others]
    texts = [path.read_bytes() for path in files if "__pycache__" not in path.parts]
    assert len(texts) > 200
    for name in (b"wordbag", b"bagged", b"unrepeat", b"outputs_by_length", b"exactmatch"):
        assert not any(name in text for text in texts)
