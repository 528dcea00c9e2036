"""What all commands share: how they are told of a configuration, and how they end."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import yaml
from stage_server import python_module

from workflow_src import cli

COMMANDS = {"estimate": ["--no-calibration", "--json"], "check": [], "clean": ["--preview", "1"]}


@pytest.fixture
def folder(folder):
    """Two configuration files, of an experiment and of more settings, as the page about clusters has them."""
    (folder / "mine.yaml").write_text(
        yaml.safe_dump({"experiment": "mine", "extends": "smoke", "recipe": {"name": "mine"}})
    )
    (folder / "more.yaml").write_text(yaml.safe_dump({"seeds": [1, 2], "runtime": {"device": "cpu"}}))
    return folder


def jobs(capsys, *words: str) -> dict[str, int]:
    cli.main(["estimate", "--no-calibration", "--json", *words])
    return {rule: counts["jobs"] for rule, counts in json.loads(capsys.readouterr().out)["rules"].items()}


def test_a_configuration_is_named_by_files_and_settings_as_for_snakemake(folder, capsys):
    one_seed = jobs(capsys, "mine.yaml")
    two_seeds = jobs(capsys, "mine.yaml", "--config", "seeds=[1, 2]")
    assert two_seeds["train_lvm"] == 2 * one_seed["train_lvm"] > 0
    assert jobs(capsys, "--configfile", "mine.yaml", "more.yaml") == two_seeds
    assert jobs(capsys, "mine.yaml", "--configfile", "more.yaml") == two_seeds
    # Settings of the command line come last.
    assert jobs(capsys, "mine.yaml", "--configfile", "more.yaml", "--config", "seeds=[3]") == one_seed
    assert jobs(capsys, "--config", "experiment=other", "extends=mine.yaml", "seeds=[1, 2]") == two_seeds
    # A file is one, wherever it stands.
    assert jobs(capsys, "--config", "mine.yaml", "seeds=[1, 2]") == two_seeds
    assert jobs(capsys, "--config", "experiment=smoke") == jobs(capsys, "smoke") == one_seed
    assert jobs(capsys) == jobs(capsys, "demo")


@pytest.mark.parametrize("command", ["plan", "estimate"])
def test_a_folder_of_results_that_is_not_there_is_refused_and_not_made(command, folder):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "mine.yaml", "--directory", "typo/deep"])
    assert "--directory is 'typo/deep'" in stop.value.code
    assert not (folder / "typo").exists()


@pytest.mark.parametrize("command", ["plan", "estimate"])
def test_to_measure_and_not_to_measure_exclude_each_other(command, folder, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "mine.yaml", "--calibrate", "--no-calibration"])
    message = capsys.readouterr().err
    assert stop.value.code == 2 and "--calibrate" in message and "--no-calibration" in message


@pytest.mark.parametrize("command", COMMANDS)
def test_a_word_after_config_has_one_meaning(command, folder, capsys):
    for wrong in ("mine", "9=2"):
        with pytest.raises(SystemExit, match=r"--config is .*NAME=VALUE"):
            cli.main([command, *COMMANDS[command], "--config", wrong])
    with pytest.raises(SystemExit, match=r"seeds is 'many'"):
        cli.main([command, "mine.yaml", *COMMANDS[command], "--config", "seeds=many"])


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["estimate", "--help"], ["estimate", "smoke", "--no-calibration"], ["plan", "smoke"]],
    ids=" ".join,
)
def test_a_reader_that_leaves_early_is_no_error(words, folder):
    """As `| head` does; here nobody reads at all."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = python_module("workflow_src.cli", *words)
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    finally:
        os.close(writer)
    # What is said of a count that takes seconds is no error.
    assert (done.returncode, done.stderr.removeprefix("counting operations of networks\n")) == (0, "")
