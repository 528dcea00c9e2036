"""Faults while training: updates that would do harm are skipped, and batches that are too large are found first."""

import itertools
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import fields_of
from stage_words import stage_line

from workflow_src.data.batching import collate, epoch_batches, largest_batches
from workflow_src.data.mixture import Mixture
from workflow_src.errors import InputError, OutOfMemory
from workflow_src.families.build import build, build_objective
from workflow_src.losses.draws import seed_of
from workflow_src.nn.weights import weights_of
from workflow_src.runtime.device_memory import is_out_of_memory
from workflow_src.training import update
from workflow_src.training.dev import Validation
from workflow_src.training.update import Part, describe, learning_rate
from workflow_src.types import LossTerms, TrainingContext

PROJECT = Path(__file__).resolve().parents[3]
NAN, INF = float("nan"), float("inf")


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def by_hand(trainer, model, objective, tiny, frozen, without=()):
    """Weights after all updates of a trainer's configuration, from a loop that knows neither skipping nor saving.

    Updates of the numbers in `without` (from 0) are computed, but not applied.
    """
    config = trainer.task.config
    optimiser = torch.optim.AdamW(
        model.parameters(), betas=config.betas, eps=config.epsilon, weight_decay=0, fused=True
    )
    rows = (r for epoch in itertools.count() for r in epoch_batches(tiny.train, config.batch_tokens, 1, epoch))
    model.train()
    for step in range(config.max_steps):
        batch = collate(tiny.train, next(rows))
        torch.manual_seed(seed_of(1, step, 0))
        terms = objective(model, batch, TrainingContext(step, config.max_steps, seed_of(1, step), frozen))
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
            if gradient:
                # The loss stays finite.
                terms.loss.register_hook(lambda upstream: upstream * factor)
                return terms
            return LossTerms(terms.loss * factor, terms.count, terms.figures)

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


def test_skipping_is_resumed_bit_for_bit(make_trainer, compare):
    """The counts are part of the state."""
    settings = {"max_steps": 55, "keep": "last", "save_every": 7, "validate_every": 20}
    wrap = spoiled({3, 40, 41, 50}, NAN, gradient=True)
    straight = make_trainer("transformer", wrap=wrap, **settings)
    straight.run()
    assert straight.progress.skipped == 4

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
    assert compare.equal(straight.model, last.model) and last.progress.skipped == 4


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


def shapes(corpus, batches):
    """Pairs of positions, as attention has them, positions, and pairs of source positions of each batch."""
    for rows in batches:
        source, target = (int(lengths[rows].max() + 1) for lengths in (corpus.source_lengths, corpus.target_lengths))
        yield len(rows) * (source + target) ** 2, len(rows) * (source + target), len(rows) * source**2


@pytest.mark.parametrize(("family", "accumulate"), [("transformer", 1), ("lvm", 2), ("energy", 1)])
def test_the_largest_batches_come_first_and_change_nothing(
    make_trainer, compare, monkeypatch, tiny, family, accumulate
):
    computed = []

    def watched(objective):
        def call(model, batch, context):
            computed.append((context.step, np.array(batch.indices)))
            return objective(model, batch, context)

        return call

    settings = {"batch_tokens": 150 * accumulate, "accumulate": accumulate, "model": {"dropout": 0.1}, "keep": "last"}
    trainer = make_trainer(family, wrap=watched, **settings)
    trainer.run()
    first = len(computed) - 12 * accumulate
    assert [step for step, _ in computed[first:]] == [step for step in range(12) for _ in range(accumulate)]
    tried, trained = (
        [max(sizes) for sizes in zip(*shapes(tiny.train, [rows for _, rows in part]), strict=True)]
        for part in (computed[:first], computed[first:])
    )
    assert 1 <= first <= 3 and all(most >= size for most, size in zip(tried, trained, strict=True))
    monkeypatch.setattr(update.Updater, "rehearse", lambda self: None)
    unrehearsed = make_trainer(family, **settings)
    unrehearsed.run()
    assert compare.equal(trainer.model, unrehearsed.model)


class Sides:
    """A corpus of pairs with these lengths."""

    def __init__(self, source, target):
        self.source_lengths, self.target_lengths = np.array(source), np.array(target)

    def __len__(self):
        return len(self.source_lengths)

    def epoch_rows(self, seed, epoch):
        return np.arange(len(self))

    def most_rows(self):
        return None


@pytest.mark.parametrize("seed", range(5))
def test_no_epoch_has_a_larger_batch_than_those_that_are_tried(seed):
    draw = np.random.default_rng(seed)
    corpus = Sides(*(draw.integers(0, [5, 9, 30][seed % 3], (2, 60)) + draw.integers(0, 2, 60) * 10))
    batches = [[tuple(sorted(rows)) for rows in epoch_batches(corpus, 120, 1, epoch)] for epoch in range(300)]
    most = [max(sizes) for sizes in zip(*shapes(corpus, map(list, itertools.chain(*batches))), strict=True)]
    tried = largest_batches(corpus, 120)
    largest = [max(sizes) for sizes in zip(*shapes(corpus, tried), strict=True)]
    # Of few pairs, some of 300 epochs have the largest batches that can be.
    assert largest == most
    longer = np.maximum(corpus.source_lengths, corpus.target_lengths)
    of_an_epoch = {tuple(sorted(longer[list(rows)])) for rows in batches[0]}
    assert all(tuple(sorted(longer[rows])) in of_an_epoch for rows in tried)


@pytest.mark.parametrize("seed", range(6))
def test_no_epoch_of_a_mixture_has_a_larger_batch_than_those_that_are_tried(seed):
    draw = np.random.default_rng(seed)
    texts = {name: Sides(*draw.integers(1, 40, (2, size))) for name, size in (("a", 20), ("b", 10))}
    mixture = Mixture(texts, {"a": 0.7, "b": 1.5})
    epochs = [mixture.epoch_rows(1, epoch) for epoch in range(200)]
    often = np.max([np.bincount(rows, minlength=len(mixture)) for rows in epochs], axis=0)
    assert np.bincount(mixture.most_rows()).tolist() == often.tolist() and set(often) == {2}
    batches = [batch for epoch, rows in enumerate(epochs) for batch in epoch_batches(mixture, 90, 1, epoch, rows=rows)]
    most, tried = (
        [max(sizes) for sizes in zip(*shapes(mixture, part), strict=True)]
        for part in (batches, largest_batches(mixture, 90))
    )
    assert all(least <= size <= 1.3 * least for least, size in zip(most, tried, strict=True))


@pytest.mark.parametrize("error", [None, *ALLOCATORS], ids=["backward", "cuda", "cpu", "bad_alloc", "python"])
def test_a_batch_that_is_too_large_ends_training_before_the_first_update(make_trainer, tiny, error):
    trainer = make_trainer("transformer", wrap=too_large(4, error), state="s")
    rows = largest_batches(tiny.train, 150)[0]
    assert len(rows) > 4
    with pytest.raises(OutOfMemory) as stopped:
        trainer.run()
    shape = f"{len(rows)} pairs, {tiny.train.source_lengths[rows].max() + 1} source and "
    assert shape in stopped.value.problem and "largest batch" in stopped.value.problem
    assert stopped.value.fix == "lower training.batch_tokens (150) or raise training.accumulate (1)"
    assert trainer.progress.step == 0 and trainer.states.load() is None


def test_a_dev_set_that_needs_too_much_memory_ends_training_before_the_first_update(make_trainer):
    def lacking(_model):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    validation = Validation(lambda _model: {"dev": 0.0}, "dev", rehearse=lacking)
    trainer = make_trainer("transformer", state="s", validation=validation)
    with pytest.raises(OutOfMemory, match="while validating before the first update"):
        trainer.run()
    assert trainer.progress.step == 0 and trainer.states.load() is None


def test_memory_that_runs_out_later_is_reported_with_the_update(make_trainer, without_rehearsal):
    """Another process may have taken it meanwhile."""
    trainer = make_trainer("transformer", wrap=too_large(4, ALLOCATORS[0]))
    with pytest.raises(OutOfMemory) as stopped:
        trainer.run()
    assert "in update 1 on a batch of " in stopped.value.problem and "139 GiB" in stopped.value.problem


@pytest.mark.parametrize("where", ["gradients of all parts", "the optimiser's step"])
def test_memory_that_runs_out_after_the_gradients_is_reported_with_settings(make_trainer, monkeypatch, where):
    trainer = make_trainer("transformer")

    def lacking(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines")

    updater = trainer.updater
    steps = {
        "gradients of all parts": (updater.task.group, "mean_gradients"),
        "the optimiser's step": (updater.optimiser, "step"),
    }
    owner, method = steps[where]
    monkeypatch.setattr(owner, method, lacking)
    with pytest.raises(OutOfMemory, match=r"while update 1 was applied .* lower training.batch_tokens"):
        trainer.run()


def test_a_single_pair_that_is_too_large_ends_training(make_trainer):
    trainer = make_trainer("transformer", wrap=too_large(0), batch_tokens=1)
    with pytest.raises(OutOfMemory, match=r"batch of 1 pairs, .* GiB.\); lower recipe.max_length, choose a smaller"):
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
def test_a_real_limit_of_memory(training_words, tmp_path):
    """The address space of a real process ends 90 MiB above what it has: one batch of all pairs needs more."""
    model = {"feed_forward": 8_000}
    words = training_words("transformer", tmp_path, model=model, batch_tokens=2000, max_steps=2, keep="last")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", LIMITED, "90", *stage_line("train", words, tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    advice = ("training.batch_tokens (2000)", "training.accumulate (1)")
    assert all(setting in error for setting in advice) and "largest batch" in error and " 40 pairs" in error
    assert "can't allocate memory" in error and not (tmp_path / "model.safetensors").exists()
