"""Hours of one core: what is measured, kept and counted; that they are right is seen by a training that is timed."""

from __future__ import annotations

import json
import sys
import time

import pytest
from stage_server import STAGE_SERVER

from workflow_src.cli import calibration
from workflow_src.cli.calibration import Rates
from workflow_src.cli.plan import Request, overview
from workflow_src.cli.show import duration, facts
from workflow_src.cli.work import Work, core_hours, sizes, work_of
from workflow_src.config import Plan, load_experiment
from workflow_src.config.costs import decoding_operations, operations_a_position
from workflow_src.config.resources import gpus
from workflow_src.errors import InputError
from workflow_src.evaluation.speed import timing


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(load_experiment("smoke"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def times(request: dict) -> dict:
    """Every position takes 1 ms and every sentence 10 ms."""
    decoding = {"seconds": 0.01, "length": 7.0, "source_length": 12}
    return {
        name: {"position": 0.001} | ({"decoding": decoding} if request["systems"][name]["search"] else {})
        for name in request["measured"]
    }


def test_rates_are_operations_by_the_times_that_were_measured(plan, folder, monkeypatch):
    monkeypatch.setattr(calibration, "_measure", times)
    rates = calibration.calibrate(plan)
    for name in ("teacher", "lvm", "score"):
        system = plan.system(name)
        assert rates.training[name] == pytest.approx(1000 * operations_a_position(system, plan))
        work = work_of(plan, system.family.training_rule, {"system": name}, sizes(plan))
        steps, tokens = system.training.max_steps, system.training.batch_tokens
        assert core_hours(rates, work) == pytest.approx(steps * tokens * 0.001 / 3600)
    # An autoregressive output is as long as it is; of others, what was cut off was computed too.
    for name, length in (("teacher", 7), ("lvm", 12)):
        decode = next(d for d in plan.loaded.decodes if d.system == name)
        expected = decoding_operations(plan, plan.system(name), decode.combinations()[0], 1, length) / 0.01
        assert rates.decoding[name] == pytest.approx(expected)
    assert "lm" not in rates.training
    # What was not measured has the rate of the others.
    assert min(rates.training.values()) <= rates.rate_of("lm", True) <= max(rates.training.values())
    assert Rates({}, {}).rate_of("lm", True) is None and core_hours(Rates({}, {}), Work("lm", True, 0.0)) == 0


def test_what_was_measured_is_kept_for_this_machine_and_these_sizes(plan, folder, monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(calibration, "_measure", lambda request: measured.append(request["measured"]) or times(request))
    assert calibration.saved_rates(plan) is None
    first = calibration.calibrate(plan)
    assert calibration.saved_rates(plan) == calibration.calibrate(plan, 30.0) == first and len(measured) == 1
    assert "about 30 seconds" in capsys.readouterr().err
    # Other budgets and learning rates do not change a rate; another width does, of this system alone.
    training = {"max_steps": 10_000, "learning_rate": 0.5}
    assert calibration.saved_rates(Plan(load_experiment("smoke", systems={"teacher": {"training": training}}))) == first
    wider = calibration.saved_rates(Plan(load_experiment("smoke", recipe={"subwords": {"vocabulary_size": 444}})))
    assert wider.training == {} and wider.usual == first.usual and wider.rate_of("lvm", False) == first.usual[1]
    calibration.calibrate(Plan(load_experiment("smoke", systems={"teacher": {"model": {"feed_forward": 48}}})))
    assert measured[1:] == [["teacher"]]
    calibration.calibrate(plan, measure_all=True)
    assert len(measured) == 3 and len(measured[2]) > 1
    content = json.loads(calibration.FILE.read_text())
    for damaged in (json.dumps(content | {"machine": {"processor": "another"}}), "{", "[]"):
        calibration.FILE.write_text(damaged)
        assert calibration.saved_rates(plan) is None


def test_a_measuring_beside_other_processes_is_said_in_every_estimate(plan, folder, monkeypatch):
    monkeypatch.setattr(calibration, "_measure", times)
    for cores, warned in ((0.0, False), (1.7, True)):
        monkeypatch.setattr(timing.OtherLoad, "__exit__", lambda load, *_, cores=cores: setattr(load, "cores", cores))
        calibration.calibrate(plan, measure_all=True)
        kept = list(facts(overview(Request(config=["experiment=smoke"]))))
        assert any("warning: other processes used 1.7 cores" in line for line in kept) == warned


def test_hours_are_operations_by_rates(plan, folder, monkeypatch):
    rates = Rates({name: 1e9 for name in plan.loaded.systems}, {name: 1e8 for name in plan.loaded.systems})
    monkeypatch.setattr("workflow_src.cli.plan.saved_rates", lambda plan: rates)
    planned = overview(Request(config=["experiment=smoke"]))
    working = [node for node in planned.nodes.values() if node.work]
    assert {(node.stage, node.system) for node in working} >= {("train", "teacher"), ("distil", "teacher")}
    for node in working:
        rate = 1e9 if node.stage == "train" else 1e8
        assert node.core_hours == pytest.approx(node.operations / rate / 3600)
    assert planned.core_hours == pytest.approx(sum(node.core_hours for node in working))


def test_durations_are_in_a_fitting_unit():
    assert [duration(hours) for hours in (None, 0, 0.001, 0.2, 5.42, 321.4)] == [
        "not known",
        "0 s",
        "4 s",
        "12 min",
        "5.4 h",
        "321 h",
    ]


def test_a_measuring_that_fails_is_one_sentence(plan, folder, monkeypatch):
    monkeypatch.setattr(calibration.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match=r"exit code 1.*--no-calibration"):
        calibration.calibrate(plan)
    assert not calibration.FILE.exists()


def test_gpus_are_those_that_jobs_would_ask_for(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert [gpus(device) for device in ("auto", "cpu", "cuda", "cuda:1")] == [0, 0, 1, 1]
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/nvidia-smi")
    assert [gpus(device) for device in ("auto", "cpu")] == [1, 0]


@pytest.mark.slow
def test_every_family_is_measured(folder, monkeypatch):
    """All families and their searches, in a second each; and updates take about as long as they are said to take."""
    monkeypatch.setattr(calibration, "SECONDS", 0.5)
    monkeypatch.setattr(sys, "executable", str(STAGE_SERVER.programs() / "python"))
    began = time.process_time()
    for name in ("smoke", "smoke-families"):
        plan = Plan(load_experiment(name))
        rates = calibration.calibrate(plan)
        trained = {system.name for system in plan.loaded.systems.values() if not system.family.fit}
        assert rates.training.keys() == trained and all(rate > 1e6 for rate in rates.training.values())
        alone = {d.system for d in plan.loaded.decodes if not plan.systems_in_roles(d)}
        assert rates.decoding.keys() == alone & trained and all(rate > 1e5 for rate in rates.decoding.values())
    assert time.process_time() - began < 30
