"""Snakemake takes the settings of every profile."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import yaml
from conftest import PROJECT, dry_run

FOLDER = PROJECT / "config/profiles"
PROFILES = sorted(path.parent.name for path in FOLDER.glob("*/config.yaml"))


@pytest.mark.parametrize("profile", PROFILES)
def test_snakemake_takes_a_profile(profile, tmp_path):
    executor = yaml.safe_load((FOLDER / profile / "config.yaml").read_text()).get("executor")
    plugin = f"snakemake_executor_plugin_{executor.replace('-', '_')}" if executor else "snakemake"
    if find_spec(plugin) is None:
        pytest.skip(f"{plugin} is not installed")
    process = dry_run("--profile", str(FOLDER / profile), "--config", "experiment=smoke", folder=tmp_path)
    assert process.returncode == 0, process.stderr
