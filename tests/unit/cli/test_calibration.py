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
from workflow_src.config.resources import gpus
from workflow_src.errors import InputError
from workflow_src.evaluation.speed.load import OtherLoad

MEASURED = {"training": 1e9, "decoding": 1e8, "start": 2.0}


def test_a_machine_is_measured_once(folder, monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(calibration, "_measure", lambda: measured.append(1) or MEASURED)
    assert calibration.saved_rates() is None
    # Also for another experiment, with networks of other sizes.
    other = ["experiment=other", "extends=smoke", "only=[teacher]", "systems={teacher: {preset: small}}"]
    for settings in (["experiment=smoke"], other):
        planned = overview(Request(config=settings, everything=True, measure="once"))
        assert planned.measured and planned.core_hours > 0
    assert len(measured) == 1 and "seconds" in capsys.readouterr().err
    assert overview(Request(config=["experiment=smoke"])).measured
    overview(Request(config=["experiment=smoke"], measure="anew"))
    assert len(measured) == 2
    content = json.loads(calibration.FILE.read_text())
    damaged_files = [content | {"machine": {"processor": "another"}}, content | {"format": 0}, content | {"rates": {}}]
    for damaged in ([], *damaged_files):
        calibration.FILE.write_text(json.dumps(damaged))
        assert calibration.saved_rates() is None
    calibration.FILE.write_text("{")
    assert calibration.saved_rates() is None


def test_a_measuring_beside_other_processes_is_said_in_every_estimate(folder, monkeypatch):
    monkeypatch.setattr(calibration, "_measure", lambda: MEASURED)
    for cores, warned in ((0.0, False), (1.7, True)):
        monkeypatch.setattr(OtherLoad, "__exit__", lambda load, *_, cores=cores: setattr(load, "cores", cores))
        calibration.calibrate()
        kept = list(facts(overview(Request(config=["experiment=smoke"]))))
        assert any("warning: other processes used 1.7 cores" in line for line in kept) == warned


def test_rates_that_cannot_be_kept_are_used_with_a_warning(folder, monkeypatch, capsys):
    monkeypatch.setattr(calibration, "_measure", lambda: MEASURED)
    calibration.FILE.parent.write_text("no folder")
    assert calibration.calibrate().training == MEASURED["training"]
    assert "warning: the calibration is not kept" in capsys.readouterr().err


def test_hours_of_a_plan_are_those_of_its_jobs(folder, monkeypatch):
    monkeypatch.setattr("workflow_src.cli.plan.saved_rates", lambda: Rates(**MEASURED))
    planned = overview(Request(config=["experiment=smoke"]))
    working = [node for node in planned.nodes.values() if node.operations is not None]
    assert {(node.stage, node.system) for node in working} >= {("train", "teacher"), ("distil", "teacher")}
    for node in working:
        rate = 1e9 if node.stage == "train" else 1e8
        jobs = len(node.work)
        assert node.core_hours == pytest.approx((2 * jobs + node.operations / rate) / 3600)
    assert planned.core_hours == pytest.approx(sum(node.core_hours for node in working))


def test_durations_are_in_a_fitting_unit():
    hours = (None, 0, 0.0001, 0.001, 0.2, 5.42, 321.4)
    assert [duration(each) for each in hours] == ["", "", "< 1 s", "4 s", "12 min", "5.4 h", "321 h"]


def test_a_measuring_that_fails_is_one_sentence(folder, monkeypatch):
    monkeypatch.setattr(calibration.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match=r"exit code 1.*--no-calibration"):
        calibration.calibrate()
    assert not calibration.FILE.exists()


def test_gpus_are_those_that_jobs_would_ask_for(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert [gpus(device) for device in ("auto", "cpu", "cuda", "cuda:1")] == [0, 0, 1, 1]
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/nvidia-smi")
    assert [gpus(device) for device in ("auto", "cpu")] == [1, 0]


def test_it_measures_training_decoding_and_the_start(folder, monkeypatch):
    monkeypatch.setattr(calibration, "SECONDS", 0.2)
    monkeypatch.setattr(sys, "executable", str(STAGE_SERVER.programs() / "python"))
    began = time.monotonic()
    rates = calibration.calibrate()
    assert time.monotonic() - began < 60
    # From a slow core beside other work to a fast one.
    assert all(1e8 < rate < 1e13 for rate in (rates.training, rates.decoding)) and 0 < rates.start < 60
    assert calibration.saved_rates() == rates
