"""Real signals to this very process: an update is finished, the state is saved, and training goes on from there."""

import os
import signal
import time

import pytest
from killed import timeless

from workflow_src.registry import import_object
from workflow_src.runtime import signals
from workflow_src.runtime.signals import Preempted, Preemption
from workflow_src.training import state
from workflow_src.training.dev import Validation


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def signal_at(step, number=signal.SIGTERM):
    """Wraps an objective: a signal comes amid the computation of an update (from 0)."""

    def wrap(objective):
        def call(model, batch, context):
            terms = objective(model, batch, context)
            if context.step == step:
                send(number)
            return terms

        return call

    return wrap


def quiet(model):
    return {"dev": float(next(model.parameters()).detach().sum())}


@pytest.mark.parametrize(("family", "number"), [*zip(("transformer", "lvm", "score"), signals.SIGNALS, strict=True)])
def test_the_update_is_finished_and_saved_and_training_goes_on(make_trainer, compare, family, number):
    """States are saved by nothing else: no update was done twice, and none left out."""
    settings = {"max_steps": 14, "save_every": 1000, "validate_every": 5, "validation": Validation(quiet, "dev")}
    straight = make_trainer(family, **settings)
    expected = straight.run()
    for step, saved_step in ((3, 4), (4, 5), (8, 9)):
        trainer = make_trainer(family, state="s", wrap=signal_at(step, number), **settings)
        with pytest.raises(Preempted) as stopped:
            trainer.run()
        assert str(stopped.value) == (
            f"stopped by {number.name} after update {saved_step}: the state of update {saved_step} is kept in "
            f"{trainer.states.parent}; the same command goes on from there."
        )
        assert trainer.states.load()[1]["step"] == saved_step
    last = make_trainer(family, state="s", **settings)
    assert timeless(last.run().history) == timeless(expected.history)
    assert compare.equal(straight.model, last.model)


def test_a_signal_ends_a_long_validation_at_once(make_trainer, compare, caplog):
    """Nothing is lost: the state of that update is saved, and the next start validates it."""
    settings = {"max_steps": 14, "save_every": 1000, "validate_every": 5}
    straight = make_trainer("transformer", validation=Validation(quiet, "dev"), **settings)
    expected = straight.run()

    def endless(model):
        if trainer.progress.step < 10:
            return quiet(model)
        send(signal.SIGUSR1)
        for _ in range(10**9):
            time.sleep(0.01)

    trainer = make_trainer("transformer", state="s", validation=Validation(endless, "dev"), **settings)
    began = time.monotonic()
    with pytest.raises(Preempted, match=r"SIGUSR1\D+10\D+10 "):
        trainer.run()
    assert time.monotonic() - began < 20
    assert [entry["step"] for entry in trainer.states.load()[1]["history"]] == [5]
    last = make_trainer("transformer", state="s", validation=Validation(quiet, "dev"), **settings)
    assert timeless(last.run().history) == timeless(expected.history)
    assert compare.equal(straight.model, last.model)


def test_a_signal_while_averaged_weights_are_validated_spoils_nothing(make_trainer, compare):
    """Then the model holds the average, which must not be saved as the state."""
    settings = {"max_steps": 12, "save_every": 1000, "validate_every": 4}
    straight = make_trainer("transformer", validation=Validation(quiet, "dev"), **settings)
    straight.run()
    calls = iter(range(100))

    def figures(model):
        if next(calls) == 3:
            send()
        return quiet(model)

    trainer = make_trainer("transformer", state="s", validation=Validation(figures, "dev"), **settings)
    with pytest.raises(Preempted, match=r"SIG[A-Z]+ .* 12: "):
        trainer.run()
    last = make_trainer("transformer", state="s", validation=Validation(quiet, "dev"), **settings)
    last.run()
    assert compare.equal(straight.model, last.model)


def test_a_signal_while_a_state_is_written_waits_for_its_end(make_trainer, monkeypatch):
    write = state.save_tensors

    def interrupted(path, tensors):
        send()
        write(path, tensors)

    monkeypatch.setattr(state, "save_tensors", interrupted)
    trainer = make_trainer("transformer", state="s", save_every=5)
    with pytest.raises(Preempted, match=r"SIGTERM\D+5\D+5 "):
        trainer.run()
    assert trainer.states.load()[1]["step"] == 5


def test_before_the_first_update_there_is_nothing_to_keep(make_trainer):
    trainer = make_trainer("transformer", state="s")
    trainer.preemption.received = "SIGTERM"
    with pytest.raises(
        Preempted, match=r"^stopped by SIGTERM after update 0: no state was saved before; the same command starts"
    ):
        trainer.run()
    assert trainer.states.load() is None


def test_handlers_are_given_back():
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with Preemption() as stop:
        assert [signal.getsignal(number) for number in signals.SIGNALS] == [stop._handle] * 3
        send()
        assert stop.received == "SIGTERM"
        with pytest.raises(Preempted), stop.at_once():
            pytest.fail("a signal that came before must end it at its start")
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before


def test_a_signal_while_code_is_imported_is_no_fault_of_that_code(tmp_path, monkeypatch):
    """Jobs import what they use when they first use it."""
    (tmp_path / "interrupted.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nNAME = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Preemption() as stop, pytest.raises(Preempted, match="SIGINT"), stop.at_once():
        import_object("interrupted:NAME")


def test_a_second_interrupt_ends_a_training_at_once(make_trainer):
    """Not the update that it is in, nor the state after it."""

    def wrap(objective):
        def call(model, batch, context):
            if context.step == 7:
                send(signal.SIGINT)
                send(signal.SIGINT)
                pytest.fail("the update goes on")
            return objective(model, batch, context)

        return call

    trainer = make_trainer("transformer", state="s", save_every=5, wrap=wrap)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert trainer.states.load()[1]["step"] == 5
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_of_another_kind_waits_as_the_first_does():
    """Snakemake or a scheduler may send one after Ctrl-C."""
    with Preemption() as stop:
        send(signal.SIGINT)
        send(signal.SIGTERM)
        assert stop.received == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_what_was_ignored_stays_ignored():
    """As for what `nohup` or `&` started."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Preemption() as stop:
            send(signal.SIGINT)
            assert stop.received is None
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
