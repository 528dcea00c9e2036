"""The graph of jobs that Snakemake gives, whose parts are not documented."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workflow_src.errors import ConfigError, InputError
from workflow_src.runtime.snakemake_parts import job_graph

SNAKEFILE = """
import os

os.environ["SET_BY_RULES"] = "yes"
ANSWER = 42

rule all:
    input: "b.txt"

rule first:
    output: "{name}.txt"
    wildcard_constraints: name="a"
    params: settings=lambda wildcards: wildcards.name
    benchmark: "{name}.tsv"
    resources: mem_mb=7
    shell: "touch {output}"

rule second:
    input: "a.txt"
    output: "b.txt"
    shell: "touch {output}"
"""


@pytest.fixture
def snakefile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    return tmp_path / "Snakefile"


def test_the_graph_has_every_job_with_what_it_needs_and_why_it_runs(snakefile, tmp_path):
    with job_graph(snakefile, {}, directory=tmp_path) as (jobs, names):
        by_rule = {job.rule: job for job in jobs}
        first, second = by_rule["first"], by_rule["second"]
        assert set(by_rule) == {"all", "first", "second"} and all(job.runs for job in jobs)
        assert [job.rule for job in jobs if job.has_work and not job.inputs] == ["first"]
        assert second.inputs == {first: {"a.txt"}} and not by_rule["all"].has_work
        assert first.wildcards == {"name": "a"} and first.resources["mem_mb"] == 7
        assert (first.benchmark, second.benchmark) == (Path("a.tsv"), None)
        assert first.settings_function is not None and second.settings_function is None
        assert first.reason.missing_output == {"a.txt"} and not first.has_run
        assert names["ANSWER"] == 42 and os.environ["SET_BY_RULES"] == "yes"
    assert "SET_BY_RULES" not in os.environ and not (tmp_path / "a.txt").exists()


def test_jobs_of_files_that_are_there_run_where_they_are_forced(snakefile, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    running = {}
    for forced in ((), ("second",)):
        with job_graph(snakefile, {}, directory=tmp_path, targets=["b.txt"], forcerun=forced) as (jobs, _):
            running[forced] = {job.rule for job in jobs if job.runs}
    assert running == {(): set(), ("second",): {"second"}}


def test_what_snakemake_refuses_is_an_error_of_input(snakefile, tmp_path):
    with pytest.raises(ConfigError) as refused, job_graph(snakefile, {}, directory=tmp_path, targets=["secnd"]):
        pass
    assert (refused.value.value, refused.value.nearest) == ("secnd", "second")
    snakefile.write_text("rule all:\n    input: 'missing.txt'\n")
    with pytest.raises(InputError, match=r"missing\.txt"), job_graph(snakefile, {}, directory=tmp_path):
        pass
    assert "SET_BY_RULES" not in os.environ
