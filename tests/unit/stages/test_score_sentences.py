"""The stage that starts the program of a metric, its cache, and what reads its figures; with a stand-in for COMET."""

import importlib.metadata
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import fake_comet
import numpy as np
import psutil
import pytest
import yaml

from workflow_src.errors import ArtifactError, ConfigError, DeclarationError, InputError
from workflow_src.evaluation.quality import computed
from workflow_src.evaluation.quality.computed import FigureCache, read_computed
from workflow_src.evaluation.quality.significance import bootstrap_interval, randomisation_test
from workflow_src.records.atomic import read_json, sha256
from workflow_src.runtime import gpus
from workflow_src.spec import sentence_key
from workflow_src.stages import compare_rows, score_quality, score_sentences

PROJECT = Path(__file__).resolve().parents[3]
SOURCES = ["der Hund", "die alte Katze", "das Haus"]
REFERENCES = ["the dog", "the old cat", "the house"]
KEPT = ["the the dog", "the cat", "a house"]
JOINED = ["the dog", "the cat", "a house"]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return fake_comet.write(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def stage(tmp_path, python):
    """A function that runs the stage and returns what it wrote."""
    model = fake_comet.checkpoint(tmp_path / "model")

    def run(kept=KEPT, joined=JOINED, settings=None, name="row", device="cpu", **more):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        details = [json.dumps({"without_repeated_subwords": line}) for line in joined]
        texts = {"hypotheses": kept, "details": details, "source": SOURCES, "reference": REFERENCES}
        for part, lines in texts.items():
            (folder / part).write_text("".join(f"{line}\n" for line in lines))
        options = {"metric": "comet", "pythons": {"comet": str(python)}, "cache": tmp_path / "cache", "device": device}
        options |= {"settings": settings or {"checkpoint": str(model)}, "scoring_batch": 2}
        options |= {"output": folder / "test.json"} | {part: folder / part for part in texts}
        inputs = score_sentences.Inputs(**options | more)
        score_sentences.run(inputs)
        return read_json(inputs.output)

    run.model = model
    return run


def scored(stage) -> int:
    """Sentences that the model was called with."""
    return sum(call.get("predict", 0) for call in fake_comet.calls(stage.model))


def test_every_sentence_of_every_variant_is_scored_once(stage):
    content = stage()
    lines = {*zip(SOURCES, KEPT, REFERENCES, strict=True), *zip(SOURCES, JOINED, REFERENCES, strict=True)}
    assert len(lines) == 4 == scored(stage)
    assert content["figures"] == {sentence_key(*line): pytest.approx(fake_comet.figure(*line)) for line in lines}
    assert len({*content["figures"].values()}) > 2
    (load,), predicted = fake_comet.calls(stage.model)[:1], fake_comet.calls(stage.model)[1:]
    assert load == {"load": {"local_files_only": True}}
    assert predicted == [{"predict": 4, "batch_size": 2, "gpus": 0, "devices": None}]
    digest = sha256(stage.model)
    assert content["signature"] == f"model:model|sha256:{digest[:12]}|unbabel-comet:2.2.7"
    record = content["provenance"]
    assert record["inputs"]["checkpoint"] == {"path": str(stage.model), "sha256": digest}
    assert {"hypotheses", "details", "source", "reference", "checkpoint", "hparams"} == set(record["inputs"])
    assert record["program"]["versions"] | {"unbabel-comet": "2.2.7", "torch": "9.9"} == record["program"]["versions"]


def test_what_is_known_is_not_scored_again(stage):
    first = stage()
    before = fake_comet.calls(stage.model)
    assert stage()["figures"] == first["figures"] and fake_comet.calls(stage.model) == before, "not even loaded"
    # Another row has one sentence more.
    lines = ["the dog", "the cat", "the house"]
    second = stage(lines, lines, name="other")
    assert len(set(second["figures"]) - set(first["figures"])) == 1 and scored(stage) == 5
    # Another model, or other settings of it, has other figures.
    (stage.model.parents[1] / "hparams.yaml").write_text("class_identifier: other\n")
    stage()
    assert scored(stage) == 9


def test_half_a_line_of_a_killed_job_is_scored_again(stage):
    first = stage()
    (path,) = (stage.model.parents[2] / "cache").glob("*/*.jsonl")
    path.write_bytes(path.read_bytes()[:-12])
    assert stage()["figures"] == first["figures"] and scored(stage) == 5
    assert stage()["figures"] == first["figures"] and scored(stage) == 5


def test_what_a_job_scored_before_it_was_killed_is_kept(stage, monkeypatch, python, caplog):
    monkeypatch.setattr(score_sentences, "BATCHES", 1)
    stage.model.write_text("crash")
    with caplog.at_level("DEBUG", logger="continuum"), pytest.raises(InputError) as caught:
        stage()
    assert caught.value.subject == "metrics.comet:" and "9" in caught.value.problem
    assert "Segmentation fault" in caught.value.problem and "first\nSegmentation" in caplog.text
    assert not (stage.model.parents[2] / "row/test.json").exists() and scored(stage) == 2
    stage()
    assert scored(stage) == 4


def program(folder: Path, commands: str) -> Path:
    """A "Python" that runs these commands of a shell in place of any program."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(0o755)
    return path


def test_a_program_that_does_not_end_is_ended(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(computed, "ENDING", 0.2)
    began = time.monotonic()
    lingering = program(tmp_path, "echo $$ > pid; echo why >&2; exec >&-; exec sleep 100")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        stage(pythons={"comet": str(lingering)})
    assert caught.value.subject == "metrics.comet:" and "why" in caught.value.problem
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    with pytest.raises(DeclarationError):
        stage(pythons={"comet": str(program(tmp_path, "echo '[]'; exec sleep 100"))})
    # By itself each of them ends after 100 seconds.
    assert time.monotonic() - began < 90


def test_the_cache_reads_what_was_asked_for_and_no_more(tmp_path):
    for name, figures in (("one", {"a": 0.5, "b": 1}), ("two", {"c": -2.0})):
        FigureCache(tmp_path, name).add(figures)
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write('["d", NaN]\n["e", "high"]\n["f", true]\n{"g": 1}\nnothing\n["h"')
    assert FigureCache(tmp_path, "one").read({"a", "c", *"defgh"}) == {"a": 0.5, "c": -2.0}
    assert FigureCache(tmp_path / "none", "one").read({"a"}) == {}


@pytest.mark.parametrize(
    ("device", "leased", "gpus_used"),
    [
        ("cpu", None, {"gpus": 0, "devices": None}),
        ("auto", None, {"gpus": 0, "devices": None}),
        ("auto", "GPU-7", {"gpus": 1, "devices": [0]}),
        ("cuda", "GPU-7", {"gpus": 1, "devices": [0]}),
        ("cuda:1", None, {"gpus": 1, "devices": [1]}),
    ],
)
def test_it_computes_on_the_gpu_that_the_job_took(stage, monkeypatch, device, leased, gpus_used):
    monkeypatch.setenv("FAKE_CUDA", "1")
    monkeypatch.delenv(gpus.LEASED, raising=False)
    if leased:
        monkeypatch.setenv(gpus.LEASED, leased)
    stage(device=device)
    assert fake_comet.calls(stage.model)[1] == {"predict": 4, "batch_size": 2, **gpus_used}


def test_a_model_by_name_is_downloaded_when_it_is_asked_for(stage, monkeypatch):
    with pytest.raises(InputError) as caught:
        stage(settings={"download": "Unbabel/some"})
    assert "Unbabel/some" in caught.value.problem and caught.value.fix
    monkeypatch.setenv("FAKE_HUB", str(stage.model.parents[1]))
    content = stage(settings={"download": "Unbabel/some"})
    assert content["signature"].startswith(f"model:Unbabel/some|sha256:{sha256(stage.model)[:12]}|")
    assert fake_comet.calls(stage.model)[0] == {"load": {"local_files_only": False}}
    # The same weights by a path are the same model.
    stage()
    assert scored(stage) == 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [("damaged", "RuntimeError: invalid header"), ("no encoder", "couldn't connect"), ("memory", "2 sentences")],
)
def test_models_that_cannot_be_used_are_refused_in_a_sentence(stage, text, problem):
    stage.model.write_text(text)
    with pytest.raises(InputError) as caught:
        stage()
    assert caught.value.subject == "metrics.comet:" and problem in caught.value.problem and caught.value.fix
    assert "\n" not in str(caught.value)
    assert not (stage.model.parents[2] / "row/test.json").exists()


def test_pythons_and_files_that_are_missing_are_named(stage, tmp_path):
    with pytest.raises(InputError) as caught:
        stage(pythons={"comet": sys.executable})
    assert sys.executable in caught.value.problem and "runtime.pythons.comet" in caught.value.fix
    with pytest.raises(ConfigError) as refused:
        stage(pythons={"comet": str(tmp_path / "none")})
    assert (refused.value.setting, refused.value.value) == ("runtime.pythons.comet", str(tmp_path / "none"))
    (stage.model.parents[1] / "hparams.yaml").unlink()
    with pytest.raises(ArtifactError) as file_error:
        stage()
    assert file_error.value.path == str(stage.model.parents[1] / "hparams.yaml") and "metrics.comet" in str(
        file_error.value
    )
    with pytest.raises(ConfigError) as metric_error:
        stage(metric="chrf")
    assert metric_error.value.setting == "metric" and metric_error.value.allowed == ("comet",)


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (["[1]"], "answers [1]"),
        (["hello"], "answers 'hello'"),
        ([r"\377"], "answers"),
        (['{"model": {}}'], "describes its model"),
        (['{"model": {}, "signature": "x"}', '{"figures": [1]}'], "to 4 sentences"),
        (['{"model": {}, "signature": "x"}', '{"figures": [1, 2, true, 4]}'], "True"),
        (['{"model": {}, "signature": "x"}', '{"figures": [1, 2, NaN, 4]}'], "nan"),
    ],
)
def test_programs_that_answer_otherwise_are_refused(stage, tmp_path, answers, problem):
    commands = "\n".join(f"read line; printf '{answer}\\n'" for answer in answers)
    with pytest.raises(DeclarationError) as caught:
        stage(pythons={"comet": str(program(tmp_path, f"{commands}\nread line"))})
    assert problem in caught.value.problem


def test_files_by_different_models_are_not_mixed(stage, tmp_path):
    stage()
    stage.model.write_text("other weights")
    stage(name="other")
    with pytest.raises(ArtifactError) as caught:
        read_computed([tmp_path / "row/test.json", tmp_path / "other/test.json"])
    assert caught.value.path == str(tmp_path / "other/test.json")
    (tmp_path / "wrong.json").write_text('{"format": 0, "metric": "comet", "figures": {}, "signature": ""}')
    with pytest.raises(ArtifactError) as caught:
        read_computed([tmp_path / "wrong.json"])
    assert caught.value.path == str(tmp_path / "wrong.json") and "format 0" in caught.value.problem
    (tmp_path / "wrong.json").write_text('{"format": 1}')
    with pytest.raises(ArtifactError):
        read_computed([tmp_path / "wrong.json"])


def shares(texts: list[str]) -> np.ndarray:
    """Figures of translations, times 100."""
    lines = zip(SOURCES, texts, REFERENCES, strict=True)
    return 100 * np.array([fake_comet.figure(*line) for line in lines])


def scoring(stage) -> dict:
    settings = {"checkpoint": str(stage.model)}
    return {"corpus": {"source": "de", "target": "en"}, "metrics": {"bleu": {}, "comet": settings}}


def test_quality_has_the_figure_its_interval_and_its_signature(stage, tmp_path):
    row = tmp_path / "row"
    content = stage()
    texts = {"hypotheses": row / "hypotheses", "details": row / "details", "source": row / "source"}
    inputs = score_quality.Inputs(
        settings=scoring(stage), reference=(row / "reference",), output=row / "quality.json", **texts
    )
    score_quality.run(inputs.model_copy(update={"computed": (row / "test.json",)}))
    quality = read_json(row / "quality.json")
    shortened = [re.sub(r"\b(\w+) \1\b", r"\1", line) for line in KEPT]
    for variant, lines in (
        ("kept", KEPT),
        ("without_repeated_words", shortened),
        ("without_repeated_subwords", JOINED),
    ):
        figures = shares(lines)
        assert quality[variant]["comet"] == pytest.approx(figures.mean())
        interval = bootstrap_interval(figures[:, None], lambda sums: sums[..., 0] / 3)
        assert quality[variant]["comet_ci"] == pytest.approx(interval)
        assert quality[variant]["comet_signature"] == content["signature"]
    assert quality["provenance"]["inputs"]["computed 1"]["record"] == str(row / "test.json")
    # As on dev, where nothing is computed.
    score_quality.run(inputs)
    kept = read_json(row / "quality.json")["kept"]
    assert kept["comet"] is None and kept["comet_ci"] is None and kept["bleu"] >= 0
    # Figures of other translations.
    (row / "hypotheses").write_text("a dog\na cat\na cow\n")
    with pytest.raises(InputError) as caught:
        score_quality.run(inputs.model_copy(update={"computed": (row / "test.json",)}))
    assert caught.value.subject == "comet"


def test_rows_are_compared_by_the_figures_of_their_sentences(stage, tmp_path):
    texts = {"first": ["the dog", "the old cat", "a house"], "second": ["a dog", "a cat", "a cow"]}
    for name, lines in texts.items():
        stage(lines, lines, name=name)
    rows = [
        {"system": "s", "name": name, "seed": 1, "baseline": baseline, "autoregressive": False}
        | {"repetitions_removed": "none", "translations": f"{tmp_path}/{name}/hypotheses"}
        | {"details": f"{tmp_path}/{name}/details"}
        for name, baseline in (("first", None), ("second", ["s", "first"]))
    ]
    inputs = compare_rows.Inputs(
        settings=scoring(stage) | {"rows": rows},
        source=tmp_path / "first/source",
        reference=(tmp_path / "first/reference",),
        computed=tuple(tmp_path / name / "test.json" for name in texts),
        output=tmp_path / "significance.json",
    )
    compare_rows.run(inputs)
    pairs = read_json(inputs.output)["pairs"]
    (pair,) = (pair for pair in pairs if (pair["metric"], pair["variant"]) == ("comet", "none"))
    first, second = (shares(lines)[:, None] for lines in texts.values())
    (difference,), (p,) = randomisation_test(first, second[None], lambda sums: sums[..., 0] / 3)
    assert difference == pytest.approx((second - first).mean())
    assert (pair["difference"], pair["p_value"]) == pytest.approx((difference, p))


def test_the_stage_imports_what_its_environment_has():
    """Under Conda it runs beside the program, without most packages of this project."""
    pins = yaml.safe_load((PROJECT / "envs/comet.yaml").read_text())["dependencies"][-1]["pip"]
    pending, allowed = {re.split("[=<>]", pin)[0].lower().replace("_", "-") for pin in pins}, set()
    while pending:
        name = pending.pop()
        allowed.add(name)
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        plain = [line for line in requirements if "extra ==" not in line]
        pending |= {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in plain} - allowed
    code = (
        "import contextlib, sys\nfrom workflow_src.stages import score_sentences as stage\n"
        "from workflow_src.jobs import start\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr): "
        "start(stage.run, stage.Inputs, words=['--help'])\n"
        "print(*{name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    distributions = importlib.metadata.packages_distributions()
    imported = {
        distributions[name][0].lower().replace("_", "-") for name in process.stdout.split() if name in distributions
    } - {"continuum"}
    assert "pydantic" in imported and not imported - allowed
    assert not {"torch", "numpy"} & imported
