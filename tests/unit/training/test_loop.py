"""The training loop: interrupted is uninterrupted, parts are the whole, and validation only looks."""

import dataclasses
import itertools
import random
import time

import pytest
import torch
from killed import Killed, killed_after, timeless
from refusals import fields_of

from workflow_src.config.training import TrainingConfig
from workflow_src.data import encoded
from workflow_src.data.batching import collate, epoch_batches
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.mixture import Mixture
from workflow_src.errors import ArtifactError, DeclarationError
from workflow_src.families.build import build_objective
from workflow_src.nn.weights import weights_of
from workflow_src.training import loop, reporting, state
from workflow_src.training.dev import Validation
from workflow_src.training.update import learning_rate
from workflow_src.types import Batch, TrainingContext

pytestmark = pytest.mark.usefixtures("without_rehearsal")


def scripted(scores, validated=None):
    """A validation that gives these scores in turn and keeps the weights it saw."""
    values = iter(scores)

    def figures(model):
        if validated is not None:
            validated.append({name: tensor.clone() for name, tensor in weights_of(model).items()})
        return {"dev": next(values)}

    return Validation(figures, "dev")


def noisy(model):
    """A validation that would be noticed if it drew from training's generators: it has its own."""
    return {"dev": float(next(model.parameters()).detach().sum())}


@pytest.mark.parametrize(
    ("family", "accumulate", "weights"),
    [
        ("transformer", 1, None),
        ("lvm", 2, None),
        ("energy", 1, None),
        ("nat", 2, {"a": 0.5, "b": 1.5}),
    ],
)
def test_interrupted_several_times_is_bit_equal_to_uninterrupted(
    make_trainer, compare, tiny, family, accumulate, weights
):
    settings = {"max_steps": 20, "accumulate": accumulate, "validate_every": 4, "save_every": 3, "average_last": 3}
    if weights:
        settings["corpus"] = Mixture(dict.fromkeys(weights, tiny.train), weights)
    straight = make_trainer(family, validation=Validation(noisy, "dev"), **settings)
    expected = straight.run()
    chance = random.Random(f"{family}{accumulate}")
    resumed_at = []
    for _ in range(3):
        # At least one save lies between two interruptions; some parts of an update may be done already.
        interrupted = make_trainer(
            family,
            state="one",
            validation=Validation(noisy, "dev"),
            wrap=killed_after(accumulate * chance.randrange(3, 6) + chance.randrange(accumulate)),
            **settings,
        )
        with pytest.raises(Killed):
            interrupted.run()
        resumed_at.append(interrupted.progress.step)
        # Nothing outside of the saved state is there for a new process.
        torch.manual_seed(chance.randrange(10**6))

    def garble(model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)

    last = make_trainer(family, state="one", validation=Validation(noisy, "dev"), prepare=garble, **settings)
    progress = last.run()
    assert resumed_at == sorted(set(resumed_at)) and 3 <= resumed_at[0] and resumed_at[-1] < 20
    assert compare.equal(straight.model, last.model)
    assert (progress.step, progress.epoch, progress.position) == (20, expected.epoch, expected.position)
    assert progress.target_tokens == expected.target_tokens and expected.epoch >= 1
    assert timeless(progress.history) == timeless(expected.history)


def _failing_at(place, write):
    def call(path, *rest):
        if place in str(path):
            raise Killed
        return write(path, *rest)

    return call


def test_interrupted_while_saving_and_while_validating(make_trainer, compare, monkeypatch):
    straight = make_trainer("transformer")
    straight.run()
    for broken in ("write_json", "save_tensors"):
        with monkeypatch.context() as patch:
            trainer = make_trainer("transformer", state="s")
            patch.setattr(state, broken, _failing_at("000000006", getattr(state, broken)))
            with pytest.raises(Killed):
                trainer.run()
            assert trainer.progress.step == 6

    def explode(model):
        raise Killed

    trainer = make_trainer("transformer", state="s", validation=Validation(explode, "dev"))
    with pytest.raises(Killed):
        trainer.run()
    last = make_trainer("transformer", state="s")
    last.run()
    assert compare.equal(straight.model, last.model)


def test_a_finished_training_that_runs_again_changes_nothing(make_trainer, compare):
    first = make_trainer("lvm", state="s")
    first.run()

    def forbidden(objective):
        return lambda *_: pytest.fail("trained again")

    resumed = make_trainer("lvm", state="s", wrap=forbidden)
    resumed.run()
    assert compare.equal(first.model, resumed.model)


@pytest.mark.parametrize("family", ["transformer", "lvm"])
def test_the_seed_decides_and_nothing_else(make_trainer, compare, family):
    models = []
    for seed in (1, 1, 2):
        trainer = make_trainer(family, seed=seed, max_steps=4)
        trainer.run()
        models.append(trainer.model)
        torch.rand(17)
    assert compare.equal(models[0], models[1])
    assert not any(
        torch.equal(a, b) for a, b in zip(models[0].parameters(), models[2].parameters(), strict=True) if a.dim() == 2
    )


def test_validation_and_its_rhythm_change_no_training(make_trainer, compare):
    def draw_nothing(model):
        assert not model.training
        return {"dev": 0.0}

    models = []
    for interval in (1, 5, 100):
        validation = Validation(draw_nothing, "dev")
        trainer = make_trainer("lvm", validation=validation, validate_every=interval, keep="last")
        trainer.run()
        assert len(trainer.progress.history) == {1: 12, 5: 3, 100: 1}[interval]
        models.append(trainer.model)
    assert compare.equal(models[0], models[1]) and compare.equal(models[0], models[2])


def test_how_often_states_are_saved_changes_nothing(make_trainer, compare):
    models = []
    for interval in (1, 100):
        trainer = make_trainer("score", save_every=interval)
        trainer.run()
        models.append(trainer.model)
    assert compare.equal(*models)


def test_states_are_saved_by_the_clock_and_that_changes_nothing(make_trainer, compare, monkeypatch):
    """An update a minute, and nothing else that saves before the last: no more than five are lost."""
    now = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])

    def minutely(calls):
        def wrap(objective):
            def call(model, batch, context):
                if next(calls, None) is None:
                    raise Killed
                now[0] += 60.0
                return objective(model, batch, context)

            return call

        return wrap

    settings = {"max_steps": 17, "validate_every": 4, "save_every": 1000, "average_last": 3}
    saved: list[int] = []
    save = state.StateFolder.save

    def counted(folder, step, *rest):
        saved.append(step)
        save(folder, step, *rest)

    monkeypatch.setattr(state.StateFolder, "save", counted)
    straight = make_trainer("lvm", validation=Validation(noisy, "dev"), **settings)
    expected = straight.run()
    assert saved == [17]
    saved.clear()
    timed = {"state": "s", "validation": Validation(noisy, "dev"), "save_minutes": 5, **settings}
    with pytest.raises(Killed):
        make_trainer("lvm", wrap=minutely(iter(range(9))), **timed).run()
    assert saved == [5]
    resumed = make_trainer("lvm", wrap=minutely(iter(range(100))), **timed)
    history = resumed.run().history
    assert saved == [5, 10, 15, 17]
    assert compare.equal(straight.model, resumed.model)
    figures = ("step", "loss", "dev", "target_tokens")
    assert [[e.get(name) for name in figures] for e in history] == [
        [e.get(name) for name in figures] for e in expected.history
    ]


def test_the_clock_saves_no_state_amid_skipped_updates(make_trainer, monkeypatch):
    """The state of before them is what a training that diverges goes back to."""
    saved: list[int] = []
    monkeypatch.setattr(state.StateFolder, "save", lambda folder, step, *rest: saved.append(step))

    def wrap(objective):
        def call(model, batch, context):
            terms = objective(model, batch, context)
            return dataclasses.replace(terms, loss=terms.loss * (float("nan") if context.step in (2, 3) else 1.0))

        return call

    make_trainer("transformer", wrap=wrap, save_minutes=1e-9, max_steps=6, save_every=1000, validate_every=1000).run()
    assert saved == [1, 2, 5, 6]


def _union(parts: list[Batch]) -> Batch:
    def join(name):
        rows = [row for part in parts for row in getattr(part, name)]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    return Batch(join("source"), join("target"))


@pytest.mark.parametrize("clip", [None, 0.05])
def test_one_accumulated_update_is_the_update_on_the_union(make_trainer, tiny, tiny_settings, clip):
    """Against autograd on both parts joined, and AdamW's first step by hand, in float64 without dropout."""
    # Two batches of different size come first.
    settings = {"accumulate": 2, "max_steps": 1, "clip_norm": clip, "epsilon": 1e-4, "keep": "last", "warmup_steps": 0}
    settings["batch_tokens"] = 240
    options = {"model": {"dropout": 0.0}, "prepare": lambda model: model.double(), **settings}
    trainer, twin = make_trainer("transformer", **options), make_trainer("transformer", **options)
    size = trainer.task.config.batch_tokens // 2
    rows = epoch_batches(tiny.train, size, 1, 0)[:2]
    parts = [collate(tiny.train, part) for part in rows]
    assert parts[0].num_target_tokens != parts[1].num_target_tokens
    objective = build_objective("transformer", tiny_settings("transformer")["objective"])
    terms = objective(twin.model, _union(parts), TrainingContext(0, 1, 0))
    terms.loss.backward()
    gradients = {name: p.grad for name, p in twin.model.named_parameters()}
    norm = torch.sqrt(sum((g**2).sum() for g in gradients.values()))
    scale = min(1.0, clip / (float(norm) + 1e-6)) if clip else 1.0
    assert clip is None or scale < 1
    rate = learning_rate(trainer.task.config, 0)
    expected = {
        name: p.detach() - rate * scale * gradients[name] / ((scale * gradients[name]).abs() + 1e-4)
        for name, p in twin.model.named_parameters()
    }
    progress = trainer.run()
    assert progress.target_tokens == terms.count == sum(part.num_target_tokens for part in parts)
    assert progress.history[-1]["loss"] == pytest.approx(terms.loss.item(), abs=1e-12)
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=0, atol=1e-12, msg=name)


def test_parts_of_an_update_see_the_same_step_and_all_pairs_of_an_epoch_once(make_trainer, tiny):
    """Each draws numbers of its own, for dropout."""
    batches, steps, draws = [], [], []

    def watch(objective):
        def call(model, batch, context):
            batches.append(batch.indices)
            steps.append((context.step, context.total_steps))
            draws.append(torch.rand(()).item())
            return objective(model, batch, context)

        return call

    make_trainer("transformer", accumulate=3, wrap=watch, max_steps=10).run()
    assert steps == [(step, 10) for step in range(10) for _ in range(3)]
    assert len(set(draws)) == 30
    epoch = len(epoch_batches(tiny.train, 50, 1, 0))
    assert epoch < len(batches)
    assert sorted(row for rows in batches[:epoch] for row in rows) == list(range(40))


def test_keep_last_gives_the_last_weights(make_trainer, compare):
    validated = []
    trainer = make_trainer("transformer", keep="last", validation=scripted([1, 9, 2], validated), validate_every=4)
    trainer.run()
    assert len(validated) == 3 and compare.equal(trainer.model, validated[2]) and not trainer.model.training


@pytest.mark.parametrize(
    ("scores", "best"), [([1, 9, 2], 1), ([1, 1, 1], 0), ([float("nan"), 1, 2], 2), ([3, float("nan"), 1], 0)], ids=str
)
def test_keep_best_gives_the_weights_of_the_largest_score(make_trainer, compare, scores, best):
    validated = []
    trainer = make_trainer("transformer", keep="best", validation=scripted(scores, validated), validate_every=4)
    trainer.run()
    assert compare.equal(trainer.model, validated[best])
    assert trainer.progress.history[trainer.progress.chosen]["step"] == 4 * (best + 1)


@pytest.mark.parametrize("last", [1, 2, 3, 10])
def test_keep_average_gives_the_mean_of_the_last_and_validates_it(make_trainer, last):
    validated = []
    validation = scripted([1, 2, 3, 40], validated)
    trainer = make_trainer("transformer", validation=validation, validate_every=4, average_last=last)
    history = trainer.run().history
    chosen = validated[:3][-last:]
    for name, parameter in weights_of(trainer.model).items():
        mean = torch.stack([weights[name].double() for weights in chosen]).mean(0)
        torch.testing.assert_close(parameter.double(), mean, rtol=1e-6, atol=1e-7)
    averaged = [entry["averaged"] for entry in history if "averaged" in entry]
    assert averaged == ([len(chosen)] if last > 1 else []) and history[-1]["dev"] == (40 if last > 1 else 3)


def test_no_updates_leave_the_weights(make_trainer, compare):
    trainer = make_trainer("transformer", max_steps=0)
    before = {name: tensor.clone() for name, tensor in weights_of(trainer.model).items()}
    assert trainer.run().step == 0
    assert compare.equal(trainer.model, before)


def test_history_has_means_since_the_validation_before(make_trainer):
    """Over target tokens, of which one update has more than another."""
    losses, counts = [], []

    def watch(objective):
        def call(model, batch, context):
            terms = objective(model, batch, context)
            counts.append(terms.count)
            losses.append(terms.loss.item() * terms.count)
            return terms

        return call

    trainer = make_trainer("transformer", wrap=watch, validate_every=5, keep="last")
    history = trainer.run().history
    assert [entry["step"] for entry in history] == [5, 10, 12]
    for entry, (start, end) in zip(history, [(0, 5), (5, 10), (10, 12)], strict=True):
        assert entry["loss"] == pytest.approx(sum(losses[start:end]) / sum(counts[start:end]), rel=1e-6)
        assert entry["learning_rate"] == pytest.approx(learning_rate(trainer.task.config, end - 1))


def test_a_figure_of_an_objective_replaces_none_of_the_training(make_trainer):
    settings = {"max_steps": 2, "validate_every": 1, "keep": "average", "average_last": 2}
    history = make_trainer("transformer", **settings).run().history
    # Those of an average have none of updates.
    own_figures = {*history[0], *history[-1]} - {"nll", "dev"}
    assert {"loss", "skipped", "learning_rate", "averaged"} <= own_figures
    for name in sorted(own_figures):

        def wrap(objective, name=name):
            def with_figure(*arguments):
                terms = objective(*arguments)
                return dataclasses.replace(terms, figures={**terms.figures, name: 0.5})

            return with_figure

        with pytest.raises(DeclarationError) as refused:
            make_trainer("transformer", wrap=wrap, **settings).run()
        assert fields_of(refused.value, {"mentions": (name,)}) == {"mentions": (name,)}


def test_the_time_left_follows_from_the_pace_of_now(make_trainer, caplog):
    # Three updates that took a day, on a slow machine or because the process was suspended within them.
    first = make_trainer("transformer", state="one", wrap=killed_after(4), validate_every=20)
    first.progress.seconds = 86_400
    with pytest.raises(Killed):
        first.run()
    second = make_trainer("transformer", state="one", max_steps=40, validate_every=40)
    with caplog.at_level("INFO"):
        assert second.run().seconds > 86_400
    minutes_left = [float(line.split()[-3]) for line in caplog.messages if line.endswith("minutes left")]
    # At the mean pace of all updates, more than a day would be left.
    assert len(minutes_left) == 8 and max(minutes_left) < 10


def test_figures_stay_on_the_device_between_lines_of_the_log(make_trainer, monkeypatch):
    """Reading them waits for everything that a GPU has queued."""
    trainer = make_trainer("transformer", max_steps=60, validate_every=60, save_every=60)
    trainer.log_every, collect, steps = 30, trainer._collect, []
    monkeypatch.setattr(trainer, "_collect", lambda: (steps.append(trainer.progress.step), collect()))
    trainer.run()
    assert steps == [30, 60]


def test_a_corpus_without_pairs_is_refused(make_trainer, tmp_path):
    encoded.write(tmp_path / "none", [], {})
    empty = EncodedCorpus.open(tmp_path / "none")
    trainer = make_trainer("transformer", corpus=Mixture({"a": empty}, {"a": 0.5}))
    with pytest.raises(ArtifactError) as refused:
        trainer.run()
    assert refused.value.path == str(trainer.task.corpus.prefix)


def test_frozen_weights_do_not_move_and_take_no_gradient(make_trainer, frozen):
    before = {name: tensor.clone() for name, tensor in weights_of(frozen).items()}
    trainer = make_trainer("score", max_steps=3)
    trainer.run()
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights_of(frozen).items())
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in frozen.parameters())


@pytest.mark.parametrize(
    ("scores", "smallest", "stops_at", "chosen"),
    [
        ([1.0, 3.0, 2.0, 2.5, 4.0], False, 4, 2),
        ([4.0, 2.0, 3.0, 2.0, 1.0], True, 4, 2),
        ([1.0, 2.0, 1.5, 3.0, 2.5], False, 5, 4),
        ([float("nan"), 2.0, float("nan"), 1.0, 5.0], False, 4, 2),
    ],
)
def test_patience_stops_after_validations_that_are_no_better(make_trainer, compare, scores, smallest, stops_at, chosen):
    """Two in a row: the weights are those of the best one; killed and resumed, it stops at the same update."""
    settings = {"max_steps": 10, "validate_every": 2, "save_every": 1, "keep": "best", "patience": 2}
    validated: list[dict] = []
    validation = dataclasses.replace(scripted(scores, validated), smallest=smallest)
    trainer = make_trainer("transformer", validation=validation, **settings)
    progress = trainer.run()
    assert progress.step == 2 * stops_at and len(progress.history) == stops_at
    assert compare.equal(trainer.model, validated[chosen - 1]) and progress.chosen == chosen - 1
    first, rest = (dataclasses.replace(scripted(part), smallest=smallest) for part in (scores[:1], scores[1:]))
    interrupted = make_trainer("transformer", state="two", validation=first, wrap=killed_after(3), **settings)
    with pytest.raises(Killed):
        interrupted.run()
    resumed = make_trainer("transformer", state="two", validation=rest, **settings)
    assert resumed.run().step == progress.step and compare.equal(resumed.model, trainer.model)
    # Once more: there is only the validation after the last save to repeat.
    last = dataclasses.replace(scripted(scores[stops_at - 1 : stops_at]), smallest=smallest)
    again = make_trainer("transformer", state="two", validation=last, **settings)
    assert again.run().step == progress.step and compare.equal(again.model, trainer.model)


@pytest.mark.parametrize(
    ("scores", "losses", "stops_at", "chosen"),
    [
        # Nothing but the loss improves, then nothing does.
        ([0, 0, 0, 0, 0], [5, 4, 3, 2, 2.5], 5, 4),
        ([0, 0, 0, 0, 0], [5, 4, 4, 6, 1], 4, 2),
        # A first translation by chance is better than those after it, whose losses fall.
        ([0.2, 0.1, 0, 0.1, 9], [5, 4, 3, 2, 1], 5, 5),
        # The figure that selects weights comes first.
        ([1, 3, 2, 1, 9], [1, 2, 3, 4, 0], 4, 2),
    ],
)
def test_patience_and_the_choice_look_at_the_loss_too(make_trainer, compare, scores, losses, stops_at, chosen):
    """BLEU on dev is 0 in the first validations of a small corpus, while the loss halves."""
    validated: list[dict] = []
    of_scores, rest = scripted(scores, validated), iter(losses)
    validation = dataclasses.replace(
        of_scores, figures=lambda model: of_scores.figures(model) | {"dev_loss": next(rest)}
    )
    trainer = make_trainer(
        "transformer", validation=validation, max_steps=10, validate_every=2, keep="best", patience=2
    )
    assert trainer.run().step == 2 * stops_at
    assert compare.equal(trainer.model, validated[chosen - 1])


@pytest.mark.parametrize(("share", "warnings"), [(0.1, 1), (0.9, 0)])
def test_a_training_that_waits_for_the_cpu_warns_once(make_trainer, monkeypatch, caplog, share, warnings):
    """It computes a tenth of the time, because other processes have the cores."""
    monkeypatch.setattr(reporting, "PACE_SECONDS", 0.0)
    # A clock that every look at it moves on, however busy this machine is.
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(time, "thread_time", lambda: share * next(ticks))
    trainer = make_trainer("transformer", max_steps=6, validate_every=6)
    trainer.log_every = 2
    with caplog.at_level("WARNING", "continuum"):
        trainer.run()
    assert [message for message in caplog.messages if "% of the time" in message] == caplog.messages
    assert len(caplog.messages) == warnings


def test_patience_is_for_the_best_weights():
    for keep in ("last", "average"):
        with pytest.raises(ValueError, match=f"patience is 2: keep is {keep}"):
            TrainingConfig(max_steps=5, keep=keep, patience=2)
    assert TrainingConfig(max_steps=5, keep="best", patience=2).model_dump()["patience"] == 2
