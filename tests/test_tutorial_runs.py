"""The tutorials of docs/, whole: a reader writes their files and types their commands, each in a project of its own.

The experiments extend `smoke`: what they share with it is there, as after a run of `smoke`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tutorials
from conftest import PROJECT, copy_of_run
from stage_server import STAGE_SERVER

COMMANDS = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Tutorials by their pages, with what their runs make.
RUNS = {
    "first-family.md": ["results/parallel/report/index.html", "results/parallel/bundles/parallel/seed-1/bundle.json"],
    "first-search.md": ["results/momentum/report/index.html", "results/momentum/bundles/lvm/seed-1/bundle.json"],
    "first-analysis.md": ["results/copied/report/index.html", "results/copied/analysis/copied-words.json"],
}
# Folders of the recipe, which all experiments with it share.
SHARED = ("raw", "corpus", "subwords", "encoded", "distilled", "systems", "chosen", "translations")


@pytest.fixture
def project(smoke_run, tmp_path) -> Path:
    """A copy of the project, where a tutorial has its reader start."""
    folder = tmp_path / "continuum"
    for name in ("config", "rules", "envs", "workflow_src"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "Snakefile", folder)
    copy_of_run(smoke_run, [f"results/smoke/{name}" for name in SHARED], folder)
    return folder


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """That of an activated .venv, whose Python starts at once."""
    programs, folder = STAGE_SERVER.programs(), tmp_path / "bin"
    folder.mkdir()
    snakemake = folder / "snakemake"
    snakemake.write_text(f'#!/bin/sh\nexec {programs}/python3 {programs}/snakemake "$@"\n')
    snakemake.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"PATH": os.pathsep.join([str(folder), str(programs), os.defpath])}


@pytest.mark.runs
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUNS)
def test_a_tutorial_runs_as_it_is_written(page, project, environment):
    tutorials.write(page, project)
    commands = "".join(COMMANDS.findall((PROJECT / "docs" / page).read_text(encoding="utf-8")))
    assert commands.count("snakemake ") == 2 and "--dry-run" in commands
    process = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=project, env=environment, capture_output=True, text=True, timeout=800
    )
    assert process.returncode == 0, f"{process.stdout[-2000:]}\n{process.stderr[-3000:]}"
    assert [path for path in RUNS[page] if not (project / path).is_file()] == []
    if "continuum translate" in commands:
        assert len(process.stdout.splitlines()[-1]) > 0
