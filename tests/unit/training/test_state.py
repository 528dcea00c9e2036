"""Training state: the last two are kept, what is damaged is passed over, and what is another's is not loaded."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from workflow_src.errors import ArtifactError
from workflow_src.training import state
from workflow_src.training.state import (
    FORMAT,
    StateFolder,
    pack_optimiser,
    unpack_optimiser,
)


def tensors(number):
    return {"model.a": torch.full((20, 20), float(number)), "random.cpu": torch.arange(9, dtype=torch.uint8)}


@pytest.fixture
def folder(tmp_path):
    """States of steps 10, 20 and 30 were saved."""
    states = StateFolder(tmp_path / "state", "mine")
    for step in (10, 20, 30):
        states.save(step, tensors(step), {"step": step, "history": [{"x": 0.1}]})
    return states.folder


@pytest.fixture
def parent(folder):
    return folder.parent


def test_the_last_two_are_kept_and_the_newest_is_loaded(folder):
    names = [f"step-{step:09d}.{ending}" for step in (20, 30) for ending in ("json", "safetensors")]
    assert sorted(path.name for path in folder.iterdir()) == names
    loaded, values = StateFolder(folder.parent, "mine").load()
    assert values == {"step": 30, "history": [{"x": 0.1}]}
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors(30).items())


def test_a_new_folder_has_no_state(tmp_path):
    assert StateFolder(tmp_path / "a" / "b", "mine").load() is None


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


DAMAGE = {
    "truncated": lambda weights, record: weights.write_bytes(weights.read_bytes()[:-100]),
    "empty": lambda weights, record: weights.write_bytes(b""),
    "flipped bit": lambda weights, record: flip(weights, -50),
    "flipped bit in the header": lambda weights, record: flip(weights, 12),
    "missing": lambda weights, record: weights.unlink(),
    "record truncated": lambda weights, record: record.write_bytes(record.read_bytes()[:-20]),
    "record with another number": lambda weights, record: record.write_text(
        record.read_text().replace('"step": ', '"step": 1')
    ),
    "record without its checksum": lambda weights, record: record.write_text(
        record.read_text().replace("digest", "digesu")
    ),
    "record empty": lambda weights, record: record.write_bytes(b""),
    "record of something else": lambda weights, record: record.write_text("[]"),
    "record without values": lambda weights, record: record.write_text(
        json.dumps({key: value for key, value in json.loads(record.read_text()).items() if key != "values"})
    ),
}


def damage(folder, step, how):
    weights = folder / f"step-{step:09d}.safetensors"
    DAMAGE[how](weights, weights.with_suffix(".json"))


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_newest_state_falls_back_to_the_older_one(folder, how, caplog):
    damage(folder, 30, how)
    with caplog.at_level(logging.WARNING, "continuum"):
        loaded, values = StateFolder(folder.parent, "mine").load()
    assert values["step"] == 20 and torch.equal(loaded["model.a"], tensors(20)["model.a"])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"warning: training state {folder}/step-000000030.safetensors cannot be used (")
    assert warning.endswith("; trying an older one")


def test_a_state_that_a_disk_does_not_give_for_a_moment_stays(folder, monkeypatch):
    def read_text(*_, **__):
        raise OSError(5, "Input/output error")

    names = sorted(os.listdir(folder))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input"):
        patch.setattr(Path, "read_text", read_text)
        StateFolder(folder.parent, "mine").load()
    assert sorted(os.listdir(folder)) == names
    assert StateFolder(folder.parent, "mine").load()[1]["step"] == 30


def test_tensors_without_their_record_do_not_count(folder, caplog):
    """A job killed between the two files: nothing is wrong, so nothing is said."""
    (folder / "step-000000030.json").unlink()
    assert StateFolder(folder.parent, "mine").load()[1]["step"] == 20
    assert not caplog.records


@pytest.mark.parametrize("how", DAMAGE)
def test_when_all_are_damaged_training_starts_afresh_and_new_states_stay(folder, how):
    for step in (20, 30):
        damage(folder, step, how)
    states = StateFolder(folder.parent, "mine")
    assert states.load() is None
    for step in (10, 20):
        states.save(step, tensors(step), {"step": step})
        # Damaged states of later steps must not push out the ones saved now.
        assert StateFolder(folder.parent, "mine").load()[1]["step"] == step
    assert len(list(folder.glob("step-*.safetensors"))) == 2


def test_another_identity_has_a_folder_of_its_own_and_going_back_goes_on(parent):
    states = StateFolder(parent, "another")
    assert states.load() is None
    states.save(5, tensors(5), {"step": 5})
    assert StateFolder(parent, "mine").load()[1]["step"] == 30
    assert StateFolder(parent, "another").load()[1]["step"] == 5


def test_of_other_identities_the_one_that_was_used_last_is_kept_and_older_ones_are_counted(parent, caplog):
    """A disk does not fill, and files of a user beside the folders stay."""
    (parent / "notes").mkdir()
    (parent / "notes.txt").write_text("mine")
    StateFolder(parent, "second").save(5, tensors(5), {"step": 5})
    with caplog.at_level("INFO", "continuum"):
        StateFolder(parent, "third").save(6, tensors(6), {"step": 6})
    assert "removed 1 folders" in caplog.text and str(parent) in caplog.text
    assert StateFolder(parent, "second").load()[1]["step"] == 5
    assert StateFolder(parent, "third").load()[1]["step"] == 6
    assert StateFolder(parent, "mine").load() is None
    assert (parent / "notes.txt").exists() and (parent / "notes").exists()


def test_a_state_that_training_went_on_from_was_used_last(parent):
    StateFolder(parent, "second").save(5, tensors(5), {"step": 5})
    StateFolder(parent, "mine").load()
    StateFolder(parent, "third")
    assert StateFolder(parent, "mine").load()[1]["step"] == 30
    assert StateFolder(parent, "second").load() is None


def test_a_system_that_was_written_is_written_again_from_its_last_state_by_the_same_code_alone(parent, monkeypatch):
    StateFolder(parent, "mine").finish()
    assert StateFolder(parent, "mine").load()[1]["step"] == 30
    with monkeypatch.context() as edited:
        edited.setattr(state, "code_digest", lambda: "e" * 64)
        assert StateFolder(parent, "mine").load() is None
    assert StateFolder(parent, "mine").load()[1]["step"] == 30


def test_a_training_that_has_not_finished_goes_on_with_edited_code(parent, monkeypatch):
    monkeypatch.setattr(state, "code_digest", lambda: "e" * 64)
    assert StateFolder(parent, "mine").load()[1]["step"] == 30


def test_code_that_was_edited_while_a_training_ran_is_other_code(parent, monkeypatch):
    running = StateFolder(parent, "mine")
    monkeypatch.setattr(state, "code_digest", lambda: "e" * 64)
    running.finish()
    assert StateFolder(parent, "mine").load() is None


def test_what_a_training_was_done_on_is_kept(parent):
    states = StateFolder(parent, "mine")
    assert states.finished_on() is None
    states.finish({"device": "cuda:0"})
    assert StateFolder(parent, "mine").finished_on() == {"device": "cuda:0"}


def test_what_a_training_was_done_on_is_forgotten_where_a_part_of_it_is_done_again(folder, parent):
    states = StateFolder(parent, "mine")
    states.finish({"device": "cuda:0"})
    damage(states.folder, 30, "truncated")
    assert states.load()[1]["step"] == 20 and states.finished_on() is None


def test_states_of_another_format_are_not_loaded(parent, monkeypatch):
    monkeypatch.setattr(state, "FORMAT", FORMAT + 1)
    assert StateFolder(parent, "mine").load() is None


def test_a_lock_of_another_user_is_reported_in_a_sentence(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(state.os, "open", refused)
    with pytest.raises(ArtifactError) as error:
        StateFolder(tmp_path / "mine", "mine")
    assert error.value.path == str(tmp_path / "mine.lock")


HOLDER = """
import sys, time
from workflow_src.training.state import StateFolder
StateFolder(sys.argv[1], "mine")
print("mine", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def holder(folder):
    """Another process that has the folder for some seconds."""
    started = []

    def start(seconds: float) -> subprocess.Popen:
        words = [sys.executable, "-c", HOLDER, str(folder.parent), str(seconds)]
        running = subprocess.Popen(words, cwd=Path(state.__file__).parents[2], stdout=subprocess.PIPE, text=True)
        started.append(running)
        assert running.stdout.readline() == "mine\n"
        return running

    # What the fixture `folder` holds is this process's; the other one must get it first.
    _let_go(folder.parent)
    yield start
    for running in started:
        running.kill()
        running.wait()


def _let_go(folder: Path) -> None:
    os.close(state._lock_files.pop(folder.resolve().with_name(folder.name + ".lock")))


def test_one_process_at_a_time_has_the_folder(folder, holder, monkeypatch):
    running = holder(60)
    monkeypatch.setattr(state, "WAIT", 0.2)
    before = sorted(folder.iterdir())
    with pytest.raises(ArtifactError) as refused:
        StateFolder(folder.parent, "another")
    assert refused.value.path == str(folder.parent) and f"process {running.pid} on " in refused.value.problem
    assert refused.value.fix.endswith(f"delete {folder.parent.resolve()}.lock")
    assert sorted(folder.iterdir()) == before
    running.kill()
    running.wait()
    assert StateFolder(folder.parent, "mine").load()[1]["step"] == 30


def test_one_that_is_about_to_end_is_waited_for(folder, holder, caplog):
    running = holder(3)
    with caplog.at_level("INFO", "continuum"):
        assert StateFolder(folder.parent, "mine").load()[1]["step"] == 30
    assert f"waiting for process {running.pid} on " in caplog.text and running.wait(10) == 0


def test_what_a_killed_save_left_is_removed_by_the_next(folder):
    partial = folder / ".step-000000040.safetensors.abc.partial"
    partial.write_bytes(b"x" * 1000)
    StateFolder(folder.parent, "mine").save(40, tensors(40), {"step": 40})
    assert not partial.exists() and len(list(folder.iterdir())) == 4


def _trained(steps, optimiser=None, model=None):
    if model is None:
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter) / (number + 1))
    optimiser = optimiser or torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9), fused=True)
    for _ in range(steps):
        model(torch.linspace(0, 1, 12).view(3, 4)).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    return model, optimiser


def test_optimiser_round_trip_goes_on_bit_for_bit(tmp_path):
    straight, _ = _trained(7)
    model, optimiser = _trained(4)
    states = StateFolder(tmp_path, "f")
    states.save(4, pack_optimiser(optimiser), {})
    packed, _ = states.load()
    assert {name.split(".")[2] for name in packed} == {"step", "exp_avg", "exp_avg_sq"} and len(packed) == 12
    fresh = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9), fused=True)
    unpack_optimiser(fresh, packed)
    _trained(3, fresh, model)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), straight.parameters(), strict=True))


def test_a_state_before_the_first_update_has_an_empty_optimiser():
    model, optimiser = _trained(0)
    assert pack_optimiser(optimiser) == {}
    unpack_optimiser(optimiser, {"model.x": torch.ones(1)})
    _trained(1, optimiser, model)
