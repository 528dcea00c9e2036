"""Trainers of miniature models on the made-up corpus."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from workflow_src.config.training import TrainingConfig
from workflow_src.data.lines import read_lines
from workflow_src.families.build import build, build_objective
from workflow_src.nn.weights import weights_of
from workflow_src.runtime.device import choose
from workflow_src.runtime.processes import Group
from workflow_src.training import reporting
from workflow_src.training.dev import Dev, Validation
from workflow_src.training.loop import Trainer
from workflow_src.training.state import StateFolder
from workflow_src.training.update import Task, Updater


@pytest.fixture(autouse=True)
def of_a_busy_machine(monkeypatch):
    """No warning that other processes want the cores: tests compare the warnings of trainings."""
    monkeypatch.setattr(reporting, "PACE_SECONDS", math.inf)


@pytest.fixture
def without_rehearsal(monkeypatch):
    """The first call of an objective is that of the first update: tests count them."""
    monkeypatch.setattr(Updater, "rehearse", lambda self: None)


@pytest.fixture(scope="session")
def runtime():
    return choose("cpu", "float32")


@pytest.fixture(scope="session")
def dev(tiny, runtime):
    """The dev set, with BLEU of its first five sentences."""
    references = list(read_lines(tiny.corpus / "dev.reference.en"))
    return Dev(tiny.dev, references, tiny.subwords.decode_target, runtime, 5)


@pytest.fixture(scope="session")
def frozen(tiny, tiny_settings):
    """A latent-variable model as the base of refiners; untrained serves."""
    settings = tiny_settings("lvm")
    with torch.random.fork_rng():
        torch.manual_seed(77)
        return build("lvm", settings["model"], tiny.sizes)


@pytest.fixture
def make_trainer(tiny, tiny_settings, runtime, frozen, tmp_path):
    """`make(family, seed, state, ...)`: a trainer as the stage makes it, the model at `.model`."""
    numbers = iter(range(10**6))

    def make(
        family,
        seed=1,
        state=None,
        validation=None,
        wrap=None,
        prepare=None,
        model=None,
        group=None,
        save_minutes=1e6,
        runtime=runtime,
        corpus=None,
        objective=None,
        **training,
    ) -> Trainer:
        settings = tiny_settings(family, model=model, objective=objective, **{"save_every": 3} | training)
        torch.manual_seed(seed)
        network = build(family, settings["model"], tiny.sizes)
        if prepare:
            prepare(network)
        objective = build_objective(family, settings["objective"])
        task = Task(
            network,
            wrap(objective) if wrap else objective,
            tiny.train if corpus is None else corpus,
            TrainingConfig.model_validate(settings["training"]),
            seed,
            runtime,
            group or Group(),
            frozen if family in ("score", "energy") else None,
        )
        validation = validation or Validation(lambda model: {"dev": 0.0}, "dev")
        states = None
        if task.group.first:
            states = StateFolder(tmp_path / (state or f"state-{next(numbers)}"), "a fingerprint")
        return Trainer(task, validation, states, log_every=5, save_minutes=save_minutes)

    return make


@pytest.fixture
def compare():
    """How two models, or weights by name, differ."""

    def equal(one, other) -> bool:
        one, other = (dict(weights_of(x)) if isinstance(x, torch.nn.Module) else x for x in (one, other))
        assert one.keys() == other.keys()
        return all(torch.equal(one[name], other[name]) for name in one)

    return SimpleNamespace(equal=equal)
