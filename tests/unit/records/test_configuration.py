"""What a report says of the configuration that it was made from."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from workflow_src.records.atomic import sha256
from workflow_src.records.configuration import FILES, configuration_files, keep_files, replaced_report


@pytest.fixture
def report(tmp_path, monkeypatch) -> Path:
    """The record of a report that was made from mine.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FILES, "{}")
    for name in ("mine.yaml", "cluster.yaml", "other.yaml"):
        Path(name).write_text(f"# {name}\n")
    record = tmp_path / "provenance.json"
    configuration = {"mine.yaml": sha256("mine.yaml")}
    record.write_text(json.dumps({"provenance": {"configuration": configuration, "created": "2026-01-31T12:00:00"}}))
    return record


def test_files_count_as_they_were_when_the_run_began(report):
    keep_files([Path("mine.yaml").absolute()])
    begun = sha256("mine.yaml")
    Path("mine.yaml").write_text("seeds: [2]\n")
    assert configuration_files() == {"mine.yaml": begun}


def test_a_report_from_another_file_is_told_of(report):
    warning = replaced_report(report, ["other.yaml"])
    assert "mine.yaml on 2026-01-31" in warning and "other.yaml" in warning
    assert replaced_report(report.with_name("none.json"), ["other.yaml"]) == ""


@pytest.mark.parametrize("files", [["mine.yaml"], ["mine.yaml", "cluster.yaml"], ["moved.yaml"], ["link/mine.yaml"]])
def test_the_same_configuration_and_settings_of_a_machine_over_it_are_no_other(report, files):
    shutil.copy("mine.yaml", "moved.yaml")
    os.symlink(".", "link")
    assert replaced_report(report, files) == ""


def test_a_changed_file_and_the_one_that_others_lay_over_are_no_other(report):
    Path("mine.yaml").write_text("seeds: [2]\n")
    assert replaced_report(report, ["mine.yaml"]) == ""
    content = json.loads(report.read_text())
    content["provenance"]["configuration"]["cluster.yaml"] = sha256("cluster.yaml")
    report.write_text(json.dumps(content))
    assert replaced_report(report, ["mine.yaml"]) == replaced_report(report, ["cluster.yaml"]) == ""
