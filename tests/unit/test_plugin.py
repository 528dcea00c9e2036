"""A package from outside is planned, trained, exported, decoded and translated with, by declarations alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import reports
import wordbag
from counted_jobs import jobs
from outside import working_in
from refusals import refuses
from stage_server import python_module
from titles import DELTA

from workflow_src import cli, registry
from workflow_src.cli.operations import Operations
from workflow_src.config import Plan, load_experiment
from workflow_src.config.costs import Sizes
from workflow_src.config.load import load
from workflow_src.config.plan import shown_plan
from workflow_src.config.resources import Requests
from workflow_src.config.rules import rule_table
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.variants import VARIANTS, Quality
from workflow_src.evaluation.report import figures, results, tables
from workflow_src.records.atomic import read_json, write_json
from workflow_src.serving.translator import Translator

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package in a folder of its own, and used."""
    folder = tmp_path_factory.mktemp("outside")
    wordbag.write(folder)
    with working_in(folder):
        registry.use(["bagged"])
        yield folder


SYSTEM = {"family": "wordbag", "preset": "miniature", "data": "distilled-by-teacher", "training": {"max_steps": 20}}
DECODES = [
    {"system": "bag", "search": "unrepeat", "passes": [0, 2], "stretch": [1.0, 1.5], "shards": 2},
    {"system": "bag", "search": "unrepeat", "passes": 1, "tune": {"stretch": [1.0, 1.2]}},
]


def planned():
    old = [{"system": "teacher", "search": "beam", "beam": 4}, {"system": "lvm", "search": "delta", "steps": 1}]
    return Plan(load_experiment("smoke", plugins=["bagged"], systems={"bag": SYSTEM}, decodes=[*old, *DECODES]))


def test_it_is_planned_beside_the_families_in_the_tree(package):
    plan = planned()
    names = [decode.name for decode in plan.loaded.decodes if decode.system == "bag"]
    assert names == [
        *("unrepeat-0", "unrepeat-0-stretch1.5", "unrepeat-2", "unrepeat-2-stretch1.5"),
        "unrepeat-1-tuned",
    ]
    (tuned,) = [decode for decode in plan.loaded.decodes if decode.tune]
    expected = {"search": "unrepeat", "passes": 1, "stretch": 1.0, "engine": "eager", "compute_type": None}
    assert json.loads(plan.settings_decode(tuned)) == expected
    assert plan.systems_of("train_wordbag") == ["bag"]
    rows = {(r["system"], r["name"]): r["baseline"] for r in json.loads(plan.settings_significance("test"))["rows"]}
    assert rows["bag", "unrepeat-2"] == ["teacher", "beam-4"]
    assert jobs(plan)["train_wordbag"] == 1
    bag = plan.system("bag")
    table, sizes = rule_table(plan), Sizes(600, 12.0)
    tuned = next(plan.folder(decode) for decode in plan.loaded.decodes if decode.tune)
    operations = Operations(plan, sizes)
    # Embeddings and the projection onto the vocabulary, of width 8.
    assert operations.parameters(bag) > 2 * 8 * plan.recipe.subwords.size
    for rule, search in (("train_wordbag", None), ("decode", "unrepeat-2"), ("choose_settings", tuned)):
        assert operations.of(table[rule].work(plan, {"system": "bag", "search": search}, sizes)) > 0
    requests = Requests(plan, gpu=False)
    for rule, search in (("train_wordbag", None), ("decode", "unrepeat-2"), ("choose_settings", tuned)):
        wildcards = type("Wildcards", (), {"system": "bag", "search": search})()
        assert all(value > 0 for value in requests.need(rule, wildcards))


def test_its_analysis_has_a_section_of_the_configuration(package):
    analysis = planned().analyses["outputs_by_length"]
    assert (analysis.rule, analysis.split, analysis.systems) == ("measure_outputs_by_length", "test", ())
    assert analysis.path == "results/smoke/analysis/outputs-by-length.json" and analysis.enabled
    settings = json.loads(analysis.settings)
    assert settings["width"] == 5 and list(analysis.reads) == [row["details"] for row in settings["rows"]]
    assert jobs(planned())["measure_outputs_by_length"] == 1

    def configured(**section):
        return load_experiment("smoke", plugins=["bagged"], analyses={"outputs_by_length": section})

    assert json.loads(Plan(configured(width=3)).analyses["outputs_by_length"].settings)["width"] == 3
    with refuses(setting="analyses.outputs_by_length.widht", nearest="width"):
        configured(widht=3)
    with pytest.raises(ConfigError, match=r"^analyses.outputs_by_length.width is 0; "):
        configured(width=0)
    try:
        with pytest.raises(ConfigError, match=r"^analyses.outputs_by_length: no analysis"):
            load_experiment("smoke", analyses={"outputs_by_length": {}})
    finally:
        registry.use(["bagged"])


def test_its_generator_makes_a_corpus(package, run_stage, tmp_path):
    dataset = {"name": "counted", "kind": "generated", "languages": ["hr", "sl"], "generator": {"name": "numerals"}}

    def configured(source, target, **generator):
        definition = dataset | {"generator": {"name": "numerals", **generator}}
        recipe = {"name": "counted", "dataset": definition, "source": source, "target": target}
        experiment = {"experiment": "counted", "extends": "smoke", "plugins": ["bagged"], "recipe": recipe}
        return Plan(load(experiment))

    for source, target in (("sl", "hr"), ("hr", "sl")):
        settings = configured(source, target, train=3, first=7).settings_download()
        summary = tmp_path / source / "raw.json"
        run_stage("download", ["--settings", settings, "--languages", source, target, "--summary", str(summary)])
        sides = {code: (summary.parent / f"train.{code}").read_text().split("\n") for code in (source, target)}
        assert sides["sl"][:3] == ["7 ena", "8 ena", "9 ena"] and sides["hr"][:3] == ["7 jedan", "8 jedan", "9 jedan"]
        assert json.loads(summary.read_text())["pairs"] == {"train": 3, "dev": 10, "test": 10}
    # A generator that leaves out a split.
    with refuses(setting="generator", value="numerals", mentions=("test", "train, dev")):
        settings = configured("sl", "hr", test=0).settings_download()
        run_stage(
            "download", ["--settings", settings, "--languages", "sl", "hr", "--summary", str(tmp_path / "raw.json")]
        )
    # It knows no valid translations.
    assert not configured("sl", "hr").loaded.corpus.generated
    with refuses(setting="recipe.dataset.generator.fist", nearest="first"):
        configured("sl", "hr", fist=7)
    with refuses(setting="recipe.dataset.generator.name", value="numeral", nearest="numerals"):
        configured("sl", "hr", name="numeral")
    with refuses(setting="recipe.dataset.languages"):
        dataset["languages"] = ["sl", "en"]
        configured("sl", "en")


def test_its_filter_is_a_setting_of_the_recipe(package):
    def configured(**section):
        return Plan(load_experiment("smoke", plugins=["bagged"], recipe={"clean": {"openings": section}}))

    plan = configured(words=["Die"])
    assert json.loads(plan.settings_clean())["clean"] == [["openings", {"words": ["Die"]}]]
    assert jobs(plan)["clean"] == 1 and "clean" not in jobs(planned())
    assert plan.to_normalise("train", "de") == "results/smoke/clean/train.de"
    with pytest.raises(ConfigError, match=r"recipe.clean.openings.word: .*; allowed: words"):
        configured(word=["Die"])
    try:
        with pytest.raises(ConfigError, match=r"^recipe.clean.openings: .*; allowed: addresses, "):
            load_experiment("smoke", recipe={"clean": {"openings": {}}})
    finally:
        registry.use(["bagged"])


@pytest.fixture(scope="module")
def bundle(package, tiny, training_words, run_stage, tmp_path_factory):
    """A system that was trained and exported."""
    folder = tmp_path_factory.mktemp("bag")
    training = {"max_steps": 60, "batch_tokens": 300, "validate_every": 30, "save_every": 1000}
    training |= {"warmup_steps": 5, "learning_rate": 0.02}
    settings = {"name": "bag", "family": "wordbag", "preset": "miniature", "data": "raw", "model": {"dim": 8}}
    settings |= {"bleu_tokeniser": "13a", "objective": {}, "training": training}
    words = training_words("wordbag", folder, settings=settings)
    run_stage("train", words)
    words = ["--languages", "de", "en", "--model", str(folder / "model.safetensors")]
    words += ["--subwords", str(tiny.folder), "--normalisation", json.dumps(tiny.normalisation)]
    run_stage("export_bundle", [*words, "--output-folder", str(folder / "bundle")])
    return folder / "bundle"


def test_it_is_trained_and_validated_by_its_own_figure(bundle):
    history = [json.loads(line) for line in (bundle.parent / "training.jsonl").read_text().splitlines()]
    figures = [entry["dev_words"] for entry in history if "dev_words" in entry]
    # Twice while it trains, and once of the averaged weights.
    assert len(figures) == 3 and all(0 < figure <= 1 for figure in figures)
    description = read_json(bundle / "bundle.json")
    (loaded,) = registry.plugins()
    assert description["plugins"] == description["provenance"]["plugins"] == [loaded.record()]
    assert loaded.record()["version"] == "0.3" and description["defaults"] == {"search": "unrepeat"}


def test_it_translates_in_python_and_by_the_command(bundle, tiny, tmp_path, capsys):
    translator = Translator.load(bundle, device="cpu", threads=1)
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    expected = translator.translate(lines, "unrepeat", passes=2, stretch=1.5)
    assert expected != translator.translate(lines, "unrepeat", passes=0, stretch=1.5)
    with pytest.raises(ConfigError) as refused:
        translator.translate(lines, steps=1)
    assert refused.value.setting == "steps" and list(refused.value.allowed) == ["passes", "stretch"]
    words = ["--bundle", str(bundle), "--device", "cpu", "--input", str(tiny.corpus / "dev.de")]
    out = tmp_path / "out.txt"
    cli.main(["translate", *words, "--plugins", "bagged", "--passes", "2", "--stretch", "1.5", "--output", str(out)])
    assert out.read_text().splitlines() == expected
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["translate", "--bundle", str(bundle), "--search", "unrepeat", "--help"])
    output = capsys.readouterr().out
    assert (
        "options of search unrepeat" in output and "--passes PASSES" in output and "of lengths; default 1.0" in output
    )
    assert "--steps" not in output
    # In a process that does not know the plug-in: the option is its search's.
    command_line = python_module("workflow_src.cli", "translate", "--bundle", str(bundle), "--passes", "2")
    environment = {
        name: value for name, value in os.environ.items() if name not in (registry.VARIABLE, registry.PLACES)
    }
    unknown = subprocess.run(command_line, env=environment, capture_output=True, text=True, input="", cwd=PROJECT)
    assert unknown.returncode == 1 and "Traceback" not in unknown.stderr
    assert unknown.stderr.startswith(f"error: {bundle} needs the plug-in bagged 0.3")
    assert unknown.stderr.endswith("(bagged) with --plugins.\n")


def test_a_bundle_whose_plug_in_is_missing_says_so(bundle):
    registry.use([])
    try:
        with pytest.raises(ArtifactError, match=r"needs the plug-in bagged 0.3"):
            Translator.load(bundle, device="cpu")
    finally:
        registry.use(["bagged"])


@pytest.mark.parametrize("changes", [{}, {"version": "0.2"}, {"digest": "0123456789ab" + "c" * 52}])
def test_a_bundle_warns_of_another_version_of_its_plug_in(bundle, tmp_path, caplog, changes):
    folder = shutil.copytree(bundle, tmp_path / "bundle")
    description = read_json(folder / "bundle.json")
    (made_with,) = description["plugins"]
    made_with |= changes
    write_json(folder / "bundle.json", description)
    Translator.load(folder, device="cpu", threads=1)
    (used,) = registry.plugins()
    messages = [record.getMessage() for record in caplog.records if str(folder) in record.getMessage()]
    assert len(messages) == len(changes)
    for words in (*(value[:12] for value in changes.values()), "0.3", used.digest[:12]):
        assert all(words in message for message in messages)


def scored(bleu):
    """A quality file."""
    variant = {"bleu": bleu, "bleu_ci": [bleu - 1, bleu + 1], "chrf": 50.0, "validity": None}
    variant |= {
        "bleu_tokenised": bleu,
        "bleu_intl_lowercase": bleu,
        "bleu_signature": "tok:13a",
        "chrf_signature": "nc:6",
    }
    return {**{name: variant for name in VARIANTS.values()}, "sentences": 9, "mean_steps": 1.0}


def test_its_series_is_a_curve_and_its_legend_its_title(package):
    manifest = Manifest.of(shown_plan(json.loads(planned().settings_report())), lambda path: {"stretch": 1.2})
    qualities = {row.quality: Quality(**scored(20.0 + number)) for number, row in enumerate(manifest.rows)}
    speed = reports.speed(*(reports.timed(*decode.key, 2.0) for decode in manifest.decodes))
    groups = tables.groups(results.build(manifest, qualities, speed=speed), "test", manifest, "none")
    assert [group.head.name for group in groups] == ["teacher", "lvm", "bag"]
    curves = [[line.name for line in curve.lines] for curve in figures.curves_of(groups) if curve.group == "bag"]
    assert curves == [
        ["unrepeat-0", "unrepeat-2"],
        ["unrepeat-0-stretch1.5", "unrepeat-2-stretch1.5"],
        ["unrepeat-1-tuned"],
    ]
    series = {one.name: one for one in figures.series_of(figures.curves_of(groups)).values()}
    assert list(series) == ["autoregressive", DELTA, "without repetitions"]
    own = series["without repetitions"]
    assert (own.colour, own.marker) == ("#a0522d", "h")
