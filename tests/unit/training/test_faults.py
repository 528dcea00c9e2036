"""Faults while training: updates that would do harm are skipped, batches that are too large are cut."""

import itertools
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refusals import fields_of
from stage_words import stage_line

from workflow_src.data.batching import collate, epoch_batches
from workflow_src.errors import InputError, OutOfMemory
from workflow_src.families.build import build, build_objective
from workflow_src.nn.weights import weights_of
from workflow_src.runtime.device_memory import is_out_of_memory
from workflow_src.training import update
from workflow_src.training.update import NORMS, Gate, Part, describe, learning_rate
from workflow_src.types import LossTerms, TrainingContext

PROJECT = Path(__file__).resolve().parents[3]
NAN, INF = float("nan"), float("inf")


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def by_hand(trainer, model, objective, tiny, frozen, without=()):
    """Weights after all updates of a trainer's configuration, from a loop that knows neither skipping nor saving.

    Updates of the numbers in `without` (from 0) are computed, but not applied.
    """
    config = trainer.config
    optimiser = torch.optim.AdamW(
        model.parameters(), betas=config.betas, eps=config.epsilon, weight_decay=0, fused=True
    )
    generator = torch.Generator().manual_seed(1)
    rows = (r for epoch in itertools.count() for r in epoch_batches(tiny.train, config.batch_tokens, 1, epoch))
    model.train()
    for step in range(config.max_steps):
        batch = collate(tiny.train, next(rows))
        terms = objective(model, batch, TrainingContext(step, config.max_steps, generator, frozen))
        (terms.loss * terms.count).backward()
        torch._foreach_div_([p.grad for p in model.parameters() if p.grad is not None], terms.count)
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(config, step)
        if step not in without:
            optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return dict(weights_of(model))


def spoiled(at, factor, gradient=False):
    """Wraps an objective: at the steps `at`, loss (or its gradient alone) is multiplied by `factor`."""

    def wrap(objective):
        def call(model, batch, context):
            terms = objective(model, batch, context)
            if context.step not in at:
                return terms
            total = terms.loss * factor
            if gradient:
                total = terms.loss.detach() + (total - total.detach())
            return LossTerms(total, terms.count, terms.figures)

        return call

    return wrap


@pytest.mark.parametrize("family", ["transformer", "lvm", "score", "energy"])
def test_normal_training_is_what_a_plain_loop_does_bit_for_bit(
    make_trainer, compare, tiny, tiny_settings, frozen, family
):
    trainer = make_trainer(family, keep="last")
    settings = tiny_settings(family)
    torch.manual_seed(1)
    model = build(family, settings["model"], tiny.sizes)
    objective = build_objective(family, settings["objective"])
    expected = by_hand(trainer, model, objective, tiny, frozen)
    torch.manual_seed(1)
    twin = make_trainer(family, keep="last")
    twin.run()
    assert compare.equal(twin.model, expected)


@pytest.mark.parametrize("spoil", [(NAN, False), (INF, False), (-INF, False), (NAN, True), (INF, True)], ids=str)
def test_a_harmful_update_is_skipped_and_counted(make_trainer, compare, tiny, tiny_settings, frozen, spoil, caplog):
    """Weights, moments and Adam's count of steps go on as if it had not been applied, dropout's draws included."""
    factor, gradient = spoil
    at = {2, 7}
    wrap = spoiled(at, factor, gradient)
    settings = tiny_settings("transformer")
    trainer = make_trainer("transformer", keep="last", wrap=wrap, max_skipped=2)
    with caplog.at_level(logging.WARNING, "continuum"):
        progress = trainer.run()
    torch.manual_seed(1)
    model = build("transformer", settings["model"], tiny.sizes)
    plain = build_objective("transformer", settings["objective"])
    assert compare.equal(trainer.model, by_hand(trainer, model, plain, tiny, frozen, without=at))
    assert (progress.skipped, progress.skipped_in_row, progress.step) == (2, 0, 12)
    assert [entry["skipped"] for entry in progress.history] == [1, 2]
    assert all(torch.isfinite(torch.tensor([v for v in e.values()])).all() for e in progress.history)
    warnings = warnings_of(caplog)
    assert len(warnings) == 2 and warnings[1].startswith("warning: update 8 was skipped (loss ")
    batches = epoch_batches(tiny.train, 150, 1, 0)
    assert warnings[0].endswith(describe([Part(batches[2], 0, 2, 0)]))


def test_skipping_is_resumed_bit_for_bit(make_trainer, compare, monkeypatch):
    """The window of norms and the counts are part of the state."""
    monkeypatch.setattr(update, "NORMS", 30)
    settings = {"max_steps": 55, "explode_factor": 3.0, "keep": "last", "save_every": 7, "validate_every": 20}
    wrap = spoiled({3, 40, 41, 50}, 1000.0, gradient=True)
    straight = make_trainer("transformer", wrap=wrap, **settings)
    straight.run()
    assert straight.progress.skipped == 3

    def stop(objective):
        spoiling = wrap(objective)

        def call(model, batch, context):
            if context.step == 47:
                raise KeyboardInterrupt
            return spoiling(model, batch, context)

        return call

    with pytest.raises(KeyboardInterrupt):
        make_trainer("transformer", state="s", wrap=stop, **settings).run()
    last = make_trainer("transformer", state="s", wrap=wrap, **settings)
    last.run()
    assert compare.equal(straight.model, last.model) and last.progress.skipped == 3


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("limit", [0, 3])
def test_after_a_limit_in_a_row_training_stops_with_the_batch_and_advice(make_trainer, tiny, limit):
    settings = {"max_steps": 40, "max_skipped": limit, "validate_every": 100}
    good = make_trainer("transformer", state="s", wrap=lambda o: o, **settings | {"max_steps": 6})
    good.run()
    before = contents(good.states.folder)
    trainer = make_trainer("transformer", state="s", wrap=spoiled(range(7, 40), NAN), **settings)
    with pytest.raises(InputError) as stopped:
        trainer.run()
    number = 8 + limit
    batches = [r for epoch in range(3) for r in epoch_batches(tiny.train, 150, 1, epoch)]
    rows = ", ".join(map(str, batches[number - 1]))
    problem, fix = stopped.value.problem, stopped.value.fix
    assert problem.startswith(f"diverged: update {number} had loss nan, gradient norm nan (epoch ")
    assert f" {rows} of {tiny.train.prefix}), and {limit + 1} in a row, " in problem
    assert fix.startswith("lower training.learning_rate (0.005), set or lower training.clip_norm (1.0) or look at")
    assert fix.endswith(f"training.max_skipped is {limit}. The state of update 6 is untouched")
    assert contents(trainer.states.folder) == before
    # With other data, the state goes on.
    assert make_trainer("transformer", state="s", **settings).run().step == 40


def test_one_update_in_so_many_may_be_skipped_and_no_more(make_trainer):
    settings = {"max_steps": 60, "max_skipped": 2, "validate_every": 100}
    trainer = make_trainer("transformer", wrap=spoiled(range(0, 60, 2), NAN), **settings)
    with pytest.raises(InputError) as stopped:
        trainer.run()
    fields = {"subject": "training", "mentions": ("update 5 ", "1 in a row", "3 in all")}
    assert fields_of(stopped.value, fields) == fields
    # 2 and one of 20: the 5th at update 60.
    allowed = make_trainer("transformer", wrap=spoiled({1, 11, 30, 50, 59}, NAN), **settings)
    assert allowed.run().skipped == 5


def test_exploding_is_measured_by_the_median_of_the_last_norms(make_trainer, caplog, monkeypatch):
    """Off by default; on, from the moment that the window is full."""
    monkeypatch.setattr(update, "NORMS", 30)
    wrap = spoiled({20, 45}, 100.0, gradient=True)
    settings = {"max_steps": 50, "keep": "last", "validate_every": 1000}
    with caplog.at_level(logging.WARNING, "continuum"):
        assert make_trainer("transformer", wrap=wrap, **settings).run().skipped == 0
        assert not warnings_of(caplog)
        assert make_trainer("transformer", wrap=wrap, explode_factor=10, **settings).run().skipped == 1
    assert warnings_of(caplog)[0].startswith("warning: update 46 was skipped (loss ")


def test_the_gate_takes_the_norms_of_good_updates_only():
    gate = Gate(2.0, torch.device("cpu"))
    norms = [1.0 + (i % 7) for i in range(NORMS)]
    for norm in norms:
        assert not gate(torch.tensor(1.0), torch.tensor(norm))
    median = sorted(norms)[(NORMS - 1) // 2]
    assert gate(torch.tensor(1.0), torch.tensor(2 * median + 0.01))
    assert gate(torch.tensor(NAN), torch.tensor(1.0)) and gate(torch.tensor(1.0), torch.tensor(INF))
    assert gate.norms.tolist() == norms
    assert not gate(torch.tensor(1.0), torch.tensor(2 * median - 0.01))
    assert gate.norms.tolist() == [*norms[1:], pytest.approx(2 * median - 0.01)]


def test_a_batch_of_many_rows_is_described_by_its_first():
    part = Part(torch.arange(50).numpy(), 0, 4, 0)
    assert describe([part]).endswith(
        "epoch 1, batch 5, 50 pairs, rows (from 0) " + ", ".join(map(str, range(20))) + " …"
    )


# Memory


class _LateFailure(torch.autograd.Function):
    """Runs out of memory in the backward pass, when the gradients of later layers have been added already."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines")


def too_large(limit, error=None):
    """Wraps an objective: batches of more than `limit` pairs run out of memory; without `error`, while going back."""

    def wrap(objective):
        def call(model, batch, context):
            if batch.source.size(0) <= limit:
                return objective(model, batch, context)
            if error is not None:
                raise error
            embedding = model.source_embedding
            handle = embedding.register_forward_hook(lambda *words: _LateFailure.apply(words[2]))
            try:
                return objective(model, batch, context)
            finally:
                handle.remove()

        return call

    return wrap


ALLOCATORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("std::bad_alloc"),
    MemoryError(),
]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("error", [None, *ALLOCATORS], ids=["backward", "cuda", "cpu", "bad_alloc", "python"])
def test_halves_give_the_same_gradient(make_trainer, accumulate, error, caplog):
    """In float64 without dropout, whatever had been added when memory ran out; AdamW's steps by a large epsilon."""
    batch = {"batch_tokens": 150 * accumulate, "accumulate": accumulate}
    extra = {"max_steps": 6, "keep": "last", "epsilon": 1e-4, **batch}
    options = {"model": {"dropout": 0.0}, "prepare": lambda model: model.double(), **extra}
    uncut, cut = (
        make_trainer("transformer", **options),
        make_trainer("transformer", wrap=too_large(4, error), **options),
    )
    expected = uncut.run()
    with caplog.at_level(logging.WARNING, "continuum"):
        progress = cut.run()
    assert progress.history[-1]["split_batches"] == progress.split_batches >= 6
    assert warnings_of(caplog)[0].startswith("warning: out of memory ")
    assert " update 1 " in warnings_of(caplog)[0]
    assert progress.history[-1]["loss"] == pytest.approx(expected.history[-1]["loss"], abs=1e-12)
    for name, tensor in weights_of(uncut.model).items():
        torch.testing.assert_close(weights_of(cut.model)[name], tensor, rtol=0, atol=1e-11, msg=name)


@pytest.mark.parametrize("where", ["_mean", "_apply"], ids=["gradients of all parts", "the optimiser's step"])
def test_memory_that_runs_out_after_the_gradients_is_reported_with_settings(make_trainer, monkeypatch, where):
    trainer = make_trainer("transformer")

    def lacking(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines")

    monkeypatch.setattr(trainer.updater, where, lacking)
    with pytest.raises(OutOfMemory, match=r"while update 1 was applied .* lower training.batch_tokens"):
        trainer.run()


def test_without_splitting_the_batch_and_the_setting_are_named(make_trainer, tiny):
    trainer = make_trainer("transformer", wrap=too_large(4, ALLOCATORS[1]), split_batches=False)
    rows = epoch_batches(tiny.train, 150, 1, 0)[0]
    source, target = tiny.train.source_lengths[rows].max() + 1, tiny.train.target_lengths[rows].max()
    with pytest.raises(OutOfMemory) as stopped:
        trainer.run()
    assert str(stopped.value) == (
        f"out of memory in update 1 on a batch of {len(rows)} pairs, {source} source and {target} target subwords wide "
        f"({ALLOCATORS[1]}); lower training.batch_tokens (150), raise training.accumulate (1) or set "
        "runtime.split_batches to true."
    )


def test_a_single_pair_that_is_too_large_ends_training(make_trainer):
    trainer = make_trainer("transformer", wrap=too_large(0))
    with pytest.raises(
        OutOfMemory, match=r"on a batch of 1 pairs, .* GiB.\); lower recipe.max_length, choose a smaller"
    ):
        trainer.run()


def test_other_errors_are_not_taken_for_lacking_memory(make_trainer):
    trainer = make_trainer("transformer", wrap=too_large(4, RuntimeError("shapes do not match")))
    with pytest.raises(RuntimeError, match=r"^shapes do not match$"):
        trainer.run()
    assert not is_out_of_memory(ValueError("out of memory")) and not is_out_of_memory(RuntimeError("index 3"))


LIMITED = """
import resource, sys, torch
from workflow_src.stages import train
from workflow_src import jobs
from workflow_src.training import loop

def limited(self):
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[1]) * 2**20,) * 2)
    return run(self)

run, loop.Trainer.run = loop.Trainer.run, limited
jobs.start(train.run, train.Inputs, words=sys.argv[2:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
@pytest.mark.parametrize("split", [pytest.param("True", marks=pytest.mark.long), "False"])
def test_a_real_limit_of_memory(training_words, tmp_path, split):
    """The address space of a real process ends 90 MiB above what it has: one batch of all pairs needs more."""
    model = {"feed_forward": 8_000}
    words = training_words("transformer", tmp_path, model=model, batch_tokens=2000, max_steps=2, keep="last")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    line = stage_line("train", [*words, "--split-batches", split], tmp_path)
    command = [sys.executable, "-c", LIMITED, "90", *line]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert re.search("memory.* update [12] .* 40 pairs", done.stderr), done.stderr
    if split == "True":
        assert done.returncode == 0, done.stderr
        assert "computed in halves" in done.stderr and (tmp_path / "model.safetensors").exists()
    else:
        assert done.returncode == 1, done.stderr
        (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        advice = ("training.batch_tokens (2000)", "training.accumulate (1)", "runtime.split_batches")
        assert all(setting in error for setting in advice)
        assert "can't allocate memory" in error and not (tmp_path / "model.safetensors").exists()
