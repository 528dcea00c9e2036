"""A family that adds symbols to the vocabulary and works with a system in a role of its own, beside no base."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import wordbag
import yaml
from conftest import WRITING, snakemake
from outside import working_in
from refusals import refuses
from stage_server import pytest_command

from workflow_src import registry
from workflow_src.cli.operations import Operations
from workflow_src.config import Plan, load_experiment
from workflow_src.config.costs import Sizes
from workflow_src.config.rules import Work
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ConfigError
from workflow_src.families.build import build
from workflow_src.nn.weights import weights_of as weights_of_model
from workflow_src.records.atomic import load_tensors, read_json, save_tensors, write_json
from workflow_src.serving.translator import Translator

PROJECT = Path(__file__).resolve().parents[2]
DECLARATIONS = """
import dataclasses

from bagged import FAMILY, SEARCH, Settings
from workflow_src.spec import AUTOREGRESSIVE, MODEL, Plugin, Role


class MarkedSettings(Settings):
    pass


family = dataclasses.replace(
    FAMILY, name="marked", build="marked.code:build", loss="marked.code:loss", validation="marked.code:validate",
    searches=("mark",), symbols=("mask", "blank"), needs={"critic": Role(AUTOREGRESSIVE, agree=("max_positions",))},
)
search = dataclasses.replace(
    SEARCH, name="mark", settings=MarkedSettings, module="marked.code:Marked",
    needs={MODEL: Role("bagging"), "critic": Role(AUTOREGRESSIVE)},
)
# It looks at what the critic thinks of padding.
careless = dataclasses.replace(family, name="careless", loss="marked.code:careless_loss")
# It has a parameter that nothing trains, which the package's own part of the contract says.
idle = dataclasses.replace(family, name="idle", build="marked.code:build_idle")
# Only its training works with the critic, and it starts from a trained system with the same network.
led = dataclasses.replace(
    family, name="led", searches=("unrepeat",), continues=lambda _objective: "missing",
    needs={"critic": Role(AUTOREGRESSIVE, agree=("max_positions", "subwords"), training=True)},
)
PLUGIN = Plugin("marked", "1", families=(family, careless, idle, led), searches=(search,))
"""
CODE = '''
import dataclasses

import torch

from bagged import code as plain
from workflow_src.data.batching import pad
from workflow_src.types import Hypotheses, LossTerms, Measured


def build(config, source_size, target_size, joint):
    return plain.Bag(config, source_size, target_size)


def build_idle(config, source_size, target_size, joint):
    network = build(config, source_size, target_size, joint)
    network.idle = torch.nn.Parameter(torch.ones(2))
    return network


def loss(model, batch, context, config):
    terms, critic = plain.loss(model, batch, context, config), context.roles["critic"]
    frozen = not critic.training and not any(p.requires_grad for p in critic.parameters())
    scores = critic.log_probabilities(batch.source, batch.target)
    figures = {"critic": scores.sum() / terms.count, "frozen": float(frozen)}
    # The logit of a symbol is trained like any other.
    lift = torch.nn.functional.softplus(-model(batch.source, 1)[..., model.symbols["mask"]]).mean()
    return LossTerms(terms.loss + lift, terms.count, figures)


def careless_loss(model, batch, context, config):
    terms = plain.loss(model, batch, context, config)
    scores = context.roles["critic"].log_probabilities(batch.source, batch.target)
    return LossTerms(terms.loss - scores.mean(), terms.count, {})


def validate(config, base, critic):
    declared = plain.validate(config, base)
    size = float(sum(p.numel() for p in critic.parameters()))

    def measure(model, batch, keys):
        means = declared.measure(model, batch, keys).means
        return Measured({**means, "dev_critic_size": (size * len(batch.indices), len(batch.indices))})

    return dataclasses.replace(declared, measure=measure)


class Marked(plain.Unrepeat):
    """A mask before every word and a blank at the end; what the critic thinks of the words."""

    def __init__(self, networks, settings, scored=True):
        super().__init__(networks, settings, scored)
        self.critic = networks["critic"]

    def hypotheses(self, source, outputs):
        symbols = self.model.symbols
        words = [
            [word for word in row if word not in symbols.ids] or [3]
            for row in super().hypotheses(source, outputs).tokens
        ]
        target = pad(words, eos=False).to(source.device)
        sums = self.critic.log_probabilities(source, target).sum(1)
        scores = (sums / torch.tensor([len(row) for row in words], device=sums.device)).tolist()
        marked = [[one for word in row for one in (symbols["mask"], word)] + [symbols["blank"]] for row in words]
        return Hypotheses(marked, scores)
'''
CONTRACT = """
NO_GRADIENT = {"idle": {"idle"}}
OTHERS = {"idle, wider": ({"dim": 24}, {}, {"idle"})}
"""


PLUGINS = ["bagged", "marked"]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    wordbag.write(folder)
    (folder / "marked").mkdir()
    (folder / "marked/__init__.py").write_text(DECLARATIONS)
    (folder / "marked/code.py").write_text(CODE)
    (folder / "marked/contract.py").write_text(CONTRACT)
    with working_in(folder):
        yield folder


@pytest.fixture(autouse=True)
def used(package):
    """Other tests use other plug-ins, or none."""
    registry.use(PLUGINS)


SYSTEM = {"family": "marked", "preset": "miniature", "roles": {"critic": "teacher"}, "training": {"max_steps": 20}}
DECODES = [{"system": "marked", "search": "mark", "passes": 0}]


def planned(**changes):
    systems = {"marked": {"model": {"max_positions": 256}} | SYSTEM | changes}
    return Plan(load_experiment("smoke", plugins=PLUGINS, systems=systems, decodes=DECODES))


def teacher_positions() -> int:
    return load_experiment("smoke", plugins=PLUGINS).systems["teacher"].model.max_positions


def test_a_role_is_part_of_the_plan_and_symbols_of_the_costs(package):
    plan = planned(model={"max_positions": teacher_positions()})
    system = plan.system("marked")
    assert system.filled == {"critic": "teacher"} and ("teacher", 1) in plan.trained
    # The weights in a role are an input of training; its settings are as without.
    assert "critic" not in plan.settings_training("marked")
    operations = Operations(plan, Sizes(600, 12.0))
    # Embeddings of words, with both symbols, and of positions; the output and its bias.
    words, positions = plan.recipe.subwords.size + 2, teacher_positions()
    assert operations.parameters(system) == 8 * (words + positions) + 9 * words
    # The critic scores the 12 words that the network's product gives, and so it does in training.
    (decode,) = plan.loaded.decodes
    own, scoring = 2 * 8 * 12 * words, operations.of(Work("teacher", 12.0))
    assert operations.of(Work("marked", 12.0, searches=(decode.values,))) == pytest.approx(own + scoring)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"roles": {}}, {"setting": "systems.marked.roles.critic", "problem": "missing"}),
        ({"roles": {"critik": "teacher"}}, {"setting": "systems.marked.roles.critik", "nearest": "critic"}),
        ({"roles": {"critic": "nobody"}}, {"setting": "systems.marked.roles.critic", "nearest": None}),
        ({"roles": {"critic": "lvm"}}, {"setting": "systems.marked.roles.critic", "value": "lvm"}),
        (
            {"roles": {"critic": "teacher", "base": "lvm"}},
            {"setting": "systems.marked.roles.base", "problem": "a setting of its own"},
        ),
        ({"model": {"max_positions": 11}}, {"setting": "systems.marked.model.max_positions", "allowed": ("512",)}),
        ({"roles": {"critic": "marked"}}, {"setting": "systems.marked.roles.critic"}),
    ],
)
def test_a_role_that_is_not_filled_as_declared_is_reported_in_a_sentence(package, changes, fields):
    with refuses(**fields):
        planned(**({"model": {"max_positions": teacher_positions()}} | changes))


def led(**changes):
    """A plan with a system that continues another one and needs a critic for its training alone."""
    model = {"max_positions": teacher_positions()}
    systems = {"marked": SYSTEM | {"model": model}, "led": SYSTEM | {"family": "led", "model": model} | changes}
    decodes = [{"system": "led", "search": "unrepeat", "passes": 0}]
    return Plan(load_experiment("smoke", plugins=PLUGINS, systems=systems, decodes=decodes))


def test_what_only_training_works_with_is_no_part_of_bundles_and_searches(package):
    plan = led(init_from="marked")
    system = plan.system("led")
    assert system.filled == {"critic": "teacher"} and system.served_with == {} and ("teacher", 1) in plan.trained
    assert plan.system("marked").served_with == {"critic": "teacher"}


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, {"setting": "systems.led.init_from", "problem": "missing"}),
        ({"init_from": "teacher"}, {"setting": "systems.led.init_from"}),
        ({"init_from": "marked", "preset": "larger"}, {"setting": "systems.led.model.dim", "allowed": ("8",)}),
    ],
)
def test_a_start_that_cannot_be_continued_is_reported_in_a_sentence(package, changes, fields):
    with refuses(**fields):
        led(**changes)


def test_weights_of_the_users_own_are_a_start_too(package):
    assert led(initial_weights="mine.safetensors").initial_weights("led", 1) == "mine.safetensors"


def test_rules_hand_over_the_weights_in_a_role(package):
    system = SYSTEM | {"model": {"max_positions": teacher_positions()}}
    # What smoke has is removed, all but the teacher.
    systems = {"lvm": None, "score": None, "energy": None, "marked": system}
    systems["led"] = system | {"family": "led", "init_from": "marked"}
    decodes = [*DECODES, {"system": "led", "search": "unrepeat", "passes": 0}]
    content = {"experiment": "smoke", "plugins": PLUGINS, "systems": systems, "decodes": decodes}
    (package / "roles.yaml").write_text(yaml.safe_dump(content))
    (package / "written.smk").write_text(WRITING.format(snakefile=str(PROJECT / "Snakefile")))
    process = snakemake(
        "bundles", "--dry-run", "--configfile", "roles.yaml", snakefile=package / "written.smk", folder=package
    )
    assert process.returncode == 0, process.stderr + process.stdout
    critic = {"critic": "results/smoke/systems/teacher/seed-1/model.safetensors"}
    for stage, of_led in (("train", True), ("export_bundle", False)):
        options = {}
        for path in (package / "work/jobs" / stage).iterdir():
            document = read_json(path)
            options[Path(document["output_folder"]).parts[3]] = document
        assert options["marked"]["roles"] == critic and "base" not in options["marked"]
        assert options["led"].get("roles") == (critic if of_led else None)


def settings_of(family: str, max_steps: int) -> dict[str, Any]:
    training = {"max_steps": max_steps, "batch_tokens": 300, "validate_every": 10}
    settings = {"name": family, "family": family, "preset": "miniature", "data": "raw", "model": {"dim": 8}}
    return settings | {"objective": {}, "training": training, "bleu_tokeniser": "13a"}


@pytest.fixture(scope="module")
def bundle(package, training_words, export_words, run_stage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("marked")
    registry.use(PLUGINS)
    run_stage("train", training_words("transformer", folder / "teacher", max_steps=6))
    critic = ["--roles", f"critic={folder / 'teacher/model.safetensors'}"]
    words = training_words("marked", folder, settings=settings_of("marked", 20))
    with refuses(setting="roles", mentions=("family marked", "critic")):
        run_stage("train", words)
    run_stage("train", [*words, *critic])
    run_stage("export_bundle", [*export_words(folder / "model.safetensors", None, folder / "bundle"), *critic])
    return folder / "bundle"


def test_what_continues_a_system_starts_from_all_of_it_and_is_exported_alone(
    bundle, tiny, training_words, export_words, run_stage, tmp_path, refused
):
    teacher, marked = (bundle.parent / place / "model.safetensors" for place in ("teacher", ""))
    words = training_words("led", tmp_path, settings=settings_of("led", 0), initial=marked)
    critic = ["--roles", f"critic={teacher}"]
    run_stage("train", [*words, *critic])
    assert (tmp_path / "model.safetensors").read_bytes() == marked.read_bytes()
    run_stage("export_bundle", export_words(tmp_path / "model.safetensors", None, tmp_path / "bundle"))
    parts = read_json(tmp_path / "bundle/bundle.json")["models"].values()
    assert [part["role"] for part in parts] == ["model"]
    # Without a start, with a part of one, and with a critic of other subwords.
    words = training_words("led", tmp_path / "other", settings=settings_of("led", 5))
    refused("train", [*words, *critic], setting="initial", mentions=("family led",))
    tensors = load_tensors(marked)
    tensors.pop("positions.weight")
    (tmp_path / "part").mkdir()
    save_tensors(tmp_path / "part/part.safetensors", tensors)
    part = ["--initial", str(tmp_path / "part/part.safetensors")]
    counts = f"has {len(tensors)} of", f"{len(tensors) + 1} tensors"
    refused("train", [*words, *critic, *part], path=part[1], mentions=counts)
    other = tmp_path / "teacher/model.safetensors"
    other.parent.mkdir()
    description = read_json(teacher.with_name("config.json"))
    torch.manual_seed(0)
    fewer = build("transformer", description["model"], description["sizes"] | {"source": 30, "target": 30})
    save_tensors(other, weights_of_model(fewer))
    description |= {"sizes": description["sizes"] | {"source": 30, "target": 30}}
    description.pop("sha256")
    write_json(other.with_name("config.json"), description)
    words = [*words, "--initial", str(marked), "--roles", f"critic={other}"]
    refused("train", words, path=str(other), mentions=("30 source and 30 target",))
    # As many subwords, but others.
    save_tensors(other, load_tensors(teacher))
    description = read_json(teacher.with_name("config.json"))
    assert description["subwords"] == Subwords.load(tiny.folder).digest
    write_json(other.with_name("config.json"), description | {"subwords": "0" * 64})
    refused("train", words, path=str(other), mentions=("digest 000000000000",))


def test_it_trains_with_the_system_in_its_role_and_keeps_a_record_of_it(bundle):
    history = [json.loads(line) for line in (bundle.parent / "training.jsonl").read_text().splitlines()]
    figures = [entry for entry in history if "dev_critic_size" in entry]
    assert figures and all(entry["dev_critic_size"] > 1000 for entry in figures)
    updates = [entry for entry in history if "critic" in entry]
    assert all(entry["critic"] < 0 and entry["frozen"] == 1 for entry in updates)
    config, exported = read_json(bundle.parent / "config.json"), read_json(bundle / "bundle.json")
    assert config["sizes"]["symbols"] == ["mask", "blank"]
    for record in (config, exported):
        assert record["provenance"]["inputs"]["role critic"]["path"].endswith("teacher/model.safetensors")
    by_role = {part["role"]: part for part in exported["models"].values()}
    assert set(by_role) == {"model", "critic"} and by_role["critic"]["family"] == "transformer"
    assert exported["searches"] == ["mark"] and "symbols" not in by_role["critic"]["sizes"]


def test_symbols_have_ids_after_the_subwords_and_no_text(bundle, tiny):
    translator = Translator.load(bundle, device="cpu", threads=1)
    size = tiny.sizes["target"]
    symbols = translator.models["marked"].symbols
    assert (symbols["mask"], symbols["blank"], symbols.ids) == (size, size + 1, (size, size + 1))
    with pytest.raises(KeyError):
        symbols["nothing"]
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    settings = translator.request().settings
    hypotheses = translator.search(lines, translator.request(settings, return_scores=True))
    assert all(row[0] == size and row[-1] == size + 1 for row in hypotheses.tokens)
    assert all(score < 0 for score in hypotheses.scores)
    words = [[word for word in row if word < size] for row in hypotheses.tokens]
    assert translator.text(hypotheses.tokens) == translator.text(words)
    assert translator.text(hypotheses.tokens, "subwords") == translator.text(words, "subwords")
    assert [translator.subwords.pieces_target(row) for row in hypotheses.tokens] == [
        translator.subwords.pieces_target(row) for row in words
    ]


def test_sizes_grow_where_the_symbols_are(package, tiny):
    model = build("marked", {"dim": 8}, {"source": 30, "target": 20, "joint": False})
    assert (model.words.num_embeddings, model.output.out_features) == (30, 22)
    model = build("marked", {"dim": 8}, {"source": 20, "target": 20, "joint": True})
    assert (model.words.num_embeddings, model.output.out_features) == (22, 22)
    assert torch.isfinite(model(torch.tensor([[20, 21, 2]]), 2)).all()


def test_a_model_that_was_trained_with_other_symbols_is_reported(package):
    with pytest.raises(ConfigError, match=r"symbols is .'mask'"):
        build("marked", {"dim": 8}, {"source": 20, "target": 20, "joint": True, "symbols": ["mask"]})


def test_the_contract_tests_fill_every_role_and_see_what_a_loss_does_with_it(package, tmp_path):
    """The tests that families of the tree pass: two keep the contract, one as its package says, one breaks it."""
    environment = os.environ | {"CONTINUUM_PLUGINS": "bagged:marked", "CONTINUUM_PLUGIN_PATH": str(package)}
    names = [word for name in ("marked", "careless", "idle") for word in ("--family", name)]
    command = pytest_command(tmp_path, "-v", "-rf", *names, "tests/test_families.py")
    process = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=400)
    assert "[idle, wider] PASSED" in process.stdout and "[dat]" not in process.stdout
    failed = re.findall(r"^FAILED tests/test_families.py::(\S+)", process.stdout, re.MULTILINE)
    assert failed == ["test_extra_padding_leaves_the_loss_alone[careless]"], process.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", process.stdout)[1]) >= 20
