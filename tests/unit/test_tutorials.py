"""The packages of the tutorials in docs/, as a reader would write them: planned, trained, exported and decoded."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import reports
import torch
import tutorials
from configurations import read_configuration
from conftest import PROJECT, dry_run
from counted_jobs import jobs
from miniatures import context, pairs
from outside import working_in
from stage_server import pytest_command

from workflow_src import cli, registry
from workflow_src.cli.operations import Operations
from workflow_src.config import Plan, costs, load_experiment
from workflow_src.config.costs import Sizes
from workflow_src.config.rules import Work
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.document import Document, Section
from workflow_src.evaluation.quality import metrics
from workflow_src.evaluation.report import analyses
from workflow_src.evaluation.report.markdown import markdown
from workflow_src.families.build import build, build_objective, build_validation
from workflow_src.records.atomic import read_json
from workflow_src.serving.translator import Translator
from workflow_src.spec import Texts


@pytest.fixture(scope="module")
def packages():
    """The packages of the tutorials so far."""
    return []


@pytest.fixture(scope="module")
def use_package(packages, tmp_path_factory):
    """Writes the package of a tutorial into a folder, which becomes the working directory, and uses it."""
    # One folder, so that the tests of several tutorials may run in any order.
    folder = tmp_path_factory.mktemp("tutorials")

    def start(tutorial: str, package: str) -> Path:
        assert f"{package}/__init__.py" in tutorials.write(tutorial, folder)
        packages.append(package)
        registry.use(packages)
        return folder

    with working_in(folder):
        yield start


@pytest.fixture(autouse=True)
def all_packages(use_package, packages):
    """Reading a configuration leaves only its own plug-ins in use; each test may need those of another tutorial."""
    registry.use(packages)


@pytest.fixture(scope="module")
def parallel(use_package, training_words, export_words, run_stage, tmp_path_factory):
    """The plan of the family's experiment, and the folder of a miniature that was trained and exported."""
    use_package("first-family.md", "parallel_mt")
    plan = Plan(read_configuration("parallel.yaml"))
    system = plan.loaded.systems["parallel"]
    training = {"max_steps": 60, "batch_tokens": 300, "learning_rate": 0.005, "warmup_steps": 5, "validate_every": 20}
    settings = {"name": "parallel", "family": "position-wise", "preset": "miniature", "data": "raw"}
    settings |= {part: getattr(system, part).model_dump(mode="json") for part in ("model", "objective")}
    settings |= {"training": training, "bleu_tokeniser": "13a"}
    folder = tmp_path_factory.mktemp("trained")
    run_stage("train", training_words("parallel", folder, settings=settings))
    run_stage("export_bundle", export_words(folder / "model.safetensors", None, folder / "bundle"))
    return plan, folder


def test_the_family_is_planned(parallel):
    plan, _ = parallel
    names = [decode.name for decode in plan.loaded.decodes if decode.system == "parallel"]
    assert names == ["all-at-once", "all-at-once-longer0.1", "chosen"]
    assert jobs(plan)["train_position_wise"] == 1 and jobs(plan)["choose_settings"] == 1
    operations = Operations(plan, Sizes(600, 12.0))
    decode = next(decode for decode in plan.loaded.decodes if decode.system == "parallel")
    trained, decoded = Work("parallel", 12.0, training=True), Work("parallel", 12.0, searches=(decode.values,))
    assert operations.of(trained) > operations.of(decoded) > 0
    process = dry_run("--configfile", "parallel.yaml", "--quiet", "rules", folder=Path.cwd())
    assert process.returncode == 0 and re.search(
        r"^train_position_wise +1$", process.stdout + process.stderr, re.MULTILINE
    )


def test_the_family_learns_and_says_so(parallel):
    _, folder = parallel
    history = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    losses = [entry["dev_loss"] for entry in history if "dev_loss" in entry]
    # The last one is of averaged weights, which the first ones hold back.
    assert len(losses) == 4 and losses[2] < 0.9 * losses[0] and losses[3] < losses[0]
    assert all(0 <= entry["dev_length_accuracy"] <= 1 for entry in history if "dev_loss" in entry)


def test_the_family_translates_as_the_tutorial_says(parallel, tiny, run_stage, tmp_path, capsys):
    bundle = parallel[1] / "bundle"
    translator = Translator.load(bundle, device="cpu", threads=1)
    sources = tmp_path / "dev.de"
    # Lines of different lengths, so that a batch has padding.
    lines = [line for pair in tiny.pairs[:4] for line in (pair[0], f"{pair[0]} {pair[0]}")]
    sources.write_text("".join(f"{line}\n" for line in lines))
    references = tmp_path / "dev.en"
    references.write_text("".join(f"{line}\n" for line in lines))
    plain, longer = (translator.translate(lines, lengthening=value, batch=8) for value in (0.0, 0.5))
    assert plain != longer and plain == translator.translate(lines, batch=1)
    out = tmp_path / "out.txt"
    words = ["--bundle", str(bundle), "--plugins", "parallel_mt", "--device", "cpu", "--lengthening", "0.5"]
    cli.main(["translate", *words, "--input", str(sources), "--output", str(out)])
    assert out.read_text().splitlines() == longer
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["translate", "--bundle", str(bundle), "--help"])
    assert "--lengthening" in capsys.readouterr().out
    choice = {"decode": {"search": "all-at-once", "tune": {"lengthening": [0.0, 0.5]}}}
    choice |= {"remove_repetitions": "none", "corpus": {"source": "de", "target": "en"}}
    words = ["--settings", json.dumps(choice), "--bundle", str(bundle), "--device", "cpu"]
    words += ["--source", str(sources), "--reference", str(references)]
    run_stage("choose_settings", [*words, "--output", str(tmp_path / "chosen.json")])
    assert read_json(tmp_path / "chosen.json")["chosen"]["lengthening"] in (0.0, 0.5)


@pytest.mark.gpu
def test_the_family_is_measured_on_a_gpu_as_on_the_cpu(parallel):
    config = parallel[0].loaded.systems["parallel"].model
    model = build("position-wise", config, {"source": 13, "target": 11, "joint": False}).eval()
    objective, validation = build_objective("position-wise", {}), build_validation("position-wise", {}, None, {})
    computed = []
    for device in map(torch.device, ("cpu", "cuda")):
        batch = pairs([4, 1, 6], [3, 5, 1]).to(device)
        with torch.no_grad():
            loss = objective(model.to(device), batch, context()).loss
            means = validation.measure(model, batch, torch.zeros(3, dtype=torch.int64, device=device)).means
        computed.append({"loss": float(loss)} | {name: float(total) / count for name, (total, count) in means.items()})
    assert computed[1] == pytest.approx(computed[0], rel=1e-5)


def test_the_family_keeps_the_contract_of_every_family(parallel, tmp_path):
    environment = os.environ | {"CONTINUUM_PLUGINS": "parallel_mt", "CONTINUUM_PLUGIN_PATH": str(Path.cwd())}
    command = pytest_command(tmp_path, "-q", "--family", "position-wise", "tests/test_families.py")
    process = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=400)
    assert process.returncode == 0, process.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", process.stdout)[1]) >= 10


@pytest.fixture(scope="module")
def momentum(use_package, training_words, export_words, run_stage, tmp_path_factory):
    """The plan of the search's experiment, and the bundle of a latent-variable model exported with the plug-in."""
    use_package("first-search.md", "momentum")
    plan = Plan(read_configuration("momentum.yaml"))
    folder = tmp_path_factory.mktemp("latent")
    run_stage("train", training_words("lvm", folder, max_steps=6))
    run_stage("export_bundle", export_words(folder / "model.safetensors", None, folder / "bundle"))
    return plan, folder / "bundle"


def test_the_search_is_planned(momentum):
    plan, _ = momentum
    names = [decode.name for decode in plan.loaded.decodes if decode.search == "momentum"]
    assert names == ["momentum-1", "momentum-2", "momentum-4", "chosen"]
    # The plan has no analysis of another tutorial.
    registry.use(["momentum"])
    costs.check(plan)
    assert jobs(plan)["choose_settings"] == 1
    rows = {(row["system"], row["name"]) for row in json.loads(plan.settings_significance("test"))["rows"]}
    assert {("lvm", name) for name in names} <= rows
    process = dry_run("--configfile", "momentum.yaml", "--quiet", "rules", folder=Path.cwd())
    assert process.returncode == 0, process.stderr


def test_the_search_is_delta_where_it_has_no_momentum(momentum, tiny):
    translator = Translator.load(momentum[1], device="cpu", threads=1)
    lines = [line for pair in tiny.pairs[:6] for line in (pair[0], f"{pair[0]} {pair[0]}")]
    for steps in (0, 1, 3):
        without = translator.request("momentum", steps=steps, momentum=0.0)
        assert translator.trace(lines, without) == translator.trace(lines, translator.request("delta", steps=steps))
    options = {"search": "momentum", "steps": 4, "return_scores": True}
    together, alone = (
        translator.search(lines, translator.request(**options, momentum=0.9, batch=size)) for size in (12, 1)
    )
    assert together.tokens == alone.tokens and together.steps == [4] * 12
    without = translator.request(**options, momentum=0.0)
    # The first step has none to keep; later ones do.
    assert translator.search(lines, without).scores != pytest.approx(together.scores, rel=1e-6)


def test_bundles_that_experiments_share_have_no_plug_in_of_one_of_them(
    momentum, tiny, tiny_bundles, run_stage, tmp_path
):
    """A bundle that another experiment exported serves the search, and one exported here needs no plug-in elsewhere."""
    lines = [source for source, _ in tiny.pairs[:3]]
    exported_without = Translator.load(tiny_bundles["lvm"], device="cpu", threads=1)
    assert exported_without.trace(lines, exported_without.request("momentum", steps=1, momentum=0.5))
    finished = {}
    for search in ("delta", "momentum"):
        (tmp_path / "dev.json").write_text(json.dumps({"kept": {"bleu": 1.0}}))
        row = {"decode": {"name": search, "search": search, "steps": 1}, "removal": "none"}
        settings = {"experiment": "e", "rows": [row | {"quality": str(tmp_path / "dev.json")}]}
        settings |= {"search_defaults": {}, "remove_repetitions": None}
        words = ["--settings", json.dumps(settings), "--bundle", str(momentum[1])]
        finished[search] = tmp_path / search
        run_stage("finish_bundle", [*words, "--output-folder", str(finished[search])])
    with_plugin = Translator.load(finished["momentum"], device="cpu", threads=1)
    assert with_plugin.request().settings == with_plugin.request("momentum", steps=1).settings
    registry.use([])
    for bundle in (momentum[1], finished["delta"]):
        assert Translator.load(bundle, device="cpu", threads=1).translate(lines)
    with pytest.raises(ArtifactError, match="needs the plug-in momentum"):
        Translator.load(finished["momentum"], device="cpu", threads=1)


@pytest.fixture(scope="module")
def copied(use_package):
    """The plan of the analysis's experiment."""
    use_package("first-analysis.md", "copied_words")
    return Plan(read_configuration("copied.yaml"))


def test_the_analysis_is_planned(copied):
    planned = copied.analyses["copied_words"]
    assert (planned.rule, planned.split, planned.systems) == ("measure_copied_words", "test", ())
    assert len(planned.reads) == len([row for row in copied.rows if row[2] == "test"]) > 5
    assert json.loads(planned.settings)["shortest"] == 3 and jobs(copied)["measure_copied_words"] == 1
    process = dry_run("--configfile", "copied.yaml", "--quiet", "rules", folder=Path.cwd())
    assert process.returncode == 0 and re.search(
        r"^measure_copied_words +1$", process.stdout + process.stderr, re.MULTILINE
    )


def test_the_analysis_counts_and_is_shown(copied, tiny, run_stage, tmp_path):
    sources = (tiny.corpus / "dev.de").read_text().splitlines()
    # The first translation is its source, the others have none of its words.
    texts = [sources[0], *("quite different" for _ in sources[1:])]
    details = tmp_path / "dev.jsonl"
    details.write_text("".join(json.dumps({"without_repeated_subwords": text}) + "\n" for text in texts))
    row = {"system": "lvm", "name": "delta-1", "seed": 1, "details": str(details)}
    words = ["--analysis", "copied_words", "--settings", json.dumps({"shortest": 3, "searches": [], "rows": [row]})]
    for side, name in (("source", "dev.de"), ("target", "dev.en"), ("reference", "dev.reference.en")):
        words += [f"--{side}", str(tiny.corpus / name)]
    run_stage("measure_analysis", [*words, "--device", "cpu", "--output", str(tmp_path / "copied-words.json")])
    contents = analyses.read([tmp_path / "copied-words.json"])
    _, counted = contents["copied_words"].rows
    long = [word for word in sources[0].lower().split() if len(word) >= 3]
    share = len(set(long)) / (len(long) + 2 * len(sources[1:]))
    assert (counted.words, counted.copied) == (len(long) + 2 * len(sources[1:]), pytest.approx(share))
    manifest = reports.manifest()
    document = Document("report", [Section("Analyses", analyses.blocks(contents, manifest))])
    text = markdown(document)
    assert "### Copied words" in text and f"{100 * share:.1f} |" in text
    assert "| lvm, delta, L = 1 " in text and "Of 3 characters or more." in text
    assert registry.figures_of_rows()["copied"].column == "copied words, %"


def test_the_metric_of_the_architecture_page_scores_translations(use_package):
    use_package("architecture.md", "exact")
    loaded = load_experiment("smoke", plugins=["exact"], metrics=["chrf", "exact_match"])
    texts = Texts(["a b", "c", "d e", "f"], ["a b", "c", "d", "x"], [""] * 4, loaded.corpus)
    entries = metrics.scores(loaded.metrics, texts)
    assert entries["exact_match"] == 0.5 and {"bleu", "chrf"} <= entries.keys()
    low, high = entries["exact_match_ci"]
    assert 0 <= low < 0.5 < high <= 1
