"""A package from outside is planned, trained, exported, decoded and translated with, by declarations alone."""

from __future__ import annotations

import json
import sys

import pytest

from workflow_src import registry
from workflow_src.cli.estimate import estimate, jobs
from workflow_src.config import Plan, load_experiment
from workflow_src.config.resources import Requests
from workflow_src.records.atomic import ArtifactError, read_json
from workflow_src.serving import command
from workflow_src.serving.translator import Translator
from workflow_src.stages import export_bundle, train

DECLARATIONS = """
from pathlib import Path
from typing import Annotated

from pydantic import Field

from workflow_src.spec import Family, Frozen, Option, Plugin, Search, SearchSettings


class Model(Frozen):
    dim: int = Field(gt=0)
    max_positions: int = 60


class Objective(Frozen):
    sharpness: float = Field(1.0, gt=0)


class Settings(SearchSettings):
    rank: Annotated[int, Option(required=True, part="-{}", always=True)] = Field(1, ge=1, description="of a word")
    stretch: Annotated[float, Option(tune=True, part="-stretch{:g}")] = Field(1.0, gt=0, description="of lengths")


def weights(model, vocabulary):
    return {"output": model.dim * vocabulary}


FAMILY = Family(
    name="bag", title="Bag of words", model=Model, objective=Objective,
    presets=Path(__file__).with_name("presets.yaml"),
    build="bagged.code:build", loss="bagged.code:Loss", validation="bagged.code:validate", searches=("pick",),
    weights=weights, traits=frozenset({"bagging"}),
)
SEARCH = Search(
    name="pick", title="pick", settings=Settings, run="bagged.code:run", series="rank",
    cost=lambda settings, weights, length: 2.0 * length * settings.rank * weights["model"]["output"],
)
PLUGIN = Plugin("bagged", "0.3", families=(FAMILY,), searches=(SEARCH,))
"""
PRESETS = "tiny: {dim: 8}\nlarger: {dim: 16}\n"
CODE = '''
import torch
from torch import nn

from workflow_src.types import EOS, PAD, Hypotheses, LossTerms, Validation


class Bag(nn.Module):
    """Words at positions, from the mean of the source's embeddings."""

    def __init__(self, config, source_size, target_size):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(source_size, config.dim)
        self.positions = nn.Embedding(config.max_positions, config.dim)
        self.output = nn.Linear(config.dim, target_size)

    def forward(self, source, length):
        mask = (source != PAD)[..., None]
        mean = (self.words(source) * mask).sum(1) / mask.sum(1)
        return self.output(mean[:, None] + self.positions.weight[:length])


def build(config, source_size, target_size, joint):
    return Bag(config, source_size, target_size)


class Loss:
    def __init__(self, config):
        self.config = config

    def __call__(self, model, batch, context):
        logits = self.config.sharpness * model(batch.source, batch.target.size(1))
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), batch.target, reduction="none")
        count = int(batch.target_mask.sum())
        return LossTerms((losses * batch.target_mask).sum() / count, count, {})


def validate(dev, objective, base):
    @torch.no_grad()
    def figures(model):
        def right(batch):
            words = model(batch.source, batch.target.size(1)).argmax(-1)
            return int(((words == batch.target) & batch.target_mask).sum()), int(batch.target_mask.sum())

        found = dev.over_batches(right)
        return {"dev_words": sum(hits for hits, _ in found) / sum(count for _, count in found)}

    return Validation(figures, "dev_words")


def run(models, source, settings, scored=True, trace=False):
    lengths = (((source != PAD).sum(1) - 1) * settings.stretch).long().clamp(min=1).tolist()
    logits = models["model"](source, max(lengths))
    logits[..., : EOS + 1] = float("-inf")
    words = logits.topk(settings.rank, -1).indices[..., -1].tolist()
    return Hypotheses([row[:count] for row, count in zip(words, lengths)], [0.0] * len(lengths))
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package in a folder of its own, and used."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "bagged").mkdir()
    for name, text in (("__init__.py", DECLARATIONS), ("code.py", CODE), ("presets.yaml", PRESETS)):
        (folder / "bagged" / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.delenv(registry.VARIABLE, raising=False)
        patch.delenv(registry.PLACES, raising=False)
        registry.use(["bagged"])
        yield folder
        registry.use([])
    for name in ("bagged", "bagged.code"):
        sys.modules.pop(name, None)


SYSTEM = {"family": "bag", "preset": "tiny", "data": "distilled-by-teacher", "training": {"max_steps": 20}}
DECODES = [
    {"system": "bag", "search": "pick", "rank": [1, 3], "stretch": [1.0, 1.5], "shards": 2},
    {"system": "bag", "search": "pick", "rank": 1, "tune": {"stretch": [1.0, 1.2]}},
]


def planned():
    old = [{"system": "teacher", "search": "beam", "beam": 4}, {"system": "lvm", "search": "delta", "steps": 1}]
    return Plan(load_experiment("smoke", plugins=["bagged"], systems={"bag": SYSTEM}, decodes=[*old, *DECODES]))


def test_it_is_planned_beside_the_families_in_the_tree(package):
    plan = planned()
    names = [decode.name for decode in plan.loaded.decodes if decode.system == "bag"]
    assert names == ["pick-1", "pick-1-stretch1.5", "pick-3", "pick-3-stretch1.5", "pick-1-tuned"]
    (tuned,) = [decode for decode in plan.loaded.decodes if decode.tune]
    assert json.loads(plan.settings_decode(tuned)) == {"search": "pick", "rank": 1, "stretch": 1.0}
    assert plan.systems_of("train_bag") == ["bag"] and "train_bag" in plan.training_rules
    rows = {(r["system"], r["name"]): r["baseline"] for r in json.loads(plan.settings_significance())["rows"]}
    assert rows["bag", "pick-3"] == ["teacher", "beam-4"]
    assert jobs(plan)["train_bag"] == 1
    work = {row["work"]: row for row in estimate(plan)["work"]}
    assert work["train bag"]["parameters"] > 0 and work["train bag"]["operations"] > 0
    requests = Requests(plan, gpu=False)
    for rule, search in (("train_bag", None), ("decode", "pick-3"), ("choose_settings", "pick-1-tuned")):
        wildcards = type("Wildcards", (), {"system": "bag", "search": search})()
        assert all(value > 0 for value in requests.need(rule, wildcards))


@pytest.fixture(scope="module")
def bundle(package, tiny, training_words, tmp_path_factory):
    """A system that was trained and exported."""
    folder = tmp_path_factory.mktemp("bag")
    settings = {"system": "bag", "family": "bag", "preset": "tiny", "data": "raw", "model": {"dim": 8},
                "objective": {}, "training": {"max_steps": 30, "batch_tokens": 300, "validate_every": 15}}  # fmt: skip
    words = training_words("bag", folder, settings=settings)
    train.run(train.arguments("train").parse_args(words))
    words = ["--settings", '{"source": "de", "target": "en"}', "--model", str(folder / "model.safetensors")]
    words += ["--subwords", str(tiny.folder), "--normalisation", json.dumps(tiny.normalisation)]
    export_bundle.run(export_bundle.arguments().parse_args([*words, "--output-folder", str(folder / "bundle")]))
    return folder / "bundle"


def test_it_is_trained_and_validated_by_its_own_figure(bundle):
    history = [json.loads(line) for line in (bundle.parent / "training.jsonl").read_text().splitlines()]
    figures = [entry["dev_words"] for entry in history if "dev_words" in entry]
    # Twice while it trains, and once of the averaged weights.
    assert len(figures) == 3 and all(0 < figure <= 1 for figure in figures)
    description = read_json(bundle / "bundle.json")
    (loaded,) = registry.plugins()
    assert description["plugins"] == description["provenance"]["plugins"] == [loaded.record()]
    assert loaded.record()["version"] == "0.3" and description["defaults"] == {"search": "pick"}


def test_it_translates_in_python_by_the_command_and_by_the_stages(bundle, tiny, run_stage, tmp_path, capsys):
    translator = Translator.load(bundle, device="cpu", threads=1)
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    wanted = translator.translate(lines, "pick", rank=2, stretch=1.5)
    assert wanted != translator.translate(lines, "pick", rank=1, stretch=1.5)
    with pytest.raises(ValueError, match="^search pick takes no steps; it takes rank, stretch."):
        translator.translate(lines, steps=1)
    words = ["--bundle", str(bundle), "--device", "cpu", "--input", str(tiny.corpus / "dev.de")]
    out = tmp_path / "out.txt"
    command.main([*words, "--plugins", "bagged", "--rank", "2", "--stretch", "1.5", "--output", str(out)])
    assert out.read_text().splitlines() == wanted
    capsys.readouterr()
    with pytest.raises(SystemExit):
        command.main(["--bundle", str(bundle), "--search", "pick", "--help"])
    told = capsys.readouterr().out
    assert "options of search pick" in told and "--rank RANK" in told and "of lengths; default 1.0" in told
    assert "--steps" not in told
    settings = {"search": "pick", "rank": 2, "stretch": 1.5}
    words = ["--bundle", str(bundle), "--device", "cpu", "--source", str(tiny.corpus / "dev.de")]
    decoded = tmp_path / "dev.txt"
    run_stage("decode", ["--settings", json.dumps(settings), *words, "--output", str(decoded)])
    assert decoded.read_text().count("\n") == len(lines)
    choice = {"settings": settings, "tune": {"stretch": [0.5, 1.0]}, "remove_repetitions": "none"}
    chosen = tmp_path / "chosen.json"
    words += ["--reference", str(tiny.corpus / "dev.reference.en"), "--output", str(chosen)]
    run_stage("choose_settings", ["--settings", json.dumps(choice), *words])
    assert read_json(chosen)["chosen"]["stretch"] in (0.5, 1.0)


def test_a_bundle_whose_plug_in_is_missing_says_so(bundle):
    registry.use([])
    try:
        with pytest.raises(ArtifactError, match='needs plug-in "bagged" 0.3, which is not here: install it, or name'):
            Translator.load(bundle, device="cpu")
    finally:
        registry.use(["bagged"])
