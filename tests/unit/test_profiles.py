"""Snakemake takes the settings of the default profile; tests on a Slurm cluster use the other one."""

from __future__ import annotations

from conftest import PROJECT, dry_run


def test_snakemake_takes_the_default_profile(tmp_path):
    profile = PROJECT / "config/profiles/default"
    process = dry_run("--profile", str(profile), "--config", "experiment=smoke", folder=tmp_path)
    assert process.returncode == 0, process.stderr
