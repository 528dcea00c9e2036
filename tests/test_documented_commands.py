"""Commands of README, docs and config pages, typed as they stand: each is run, or listed with why not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT, dry_run
from stage_server import STAGE_SERVER, python_code, python_module
from test_docs import PAGES

from workflow_src import cli
from workflow_src.cli import calibration
from workflow_src.data.toy import grammar

PAGES_OF_COMMANDS = [*PAGES, PROJECT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`((?:continuum|snakemake|make|python) [^`]+)`(?!`)")
COMMAND = re.compile(r"^(?:continuum|snakemake|make|python3?|pip|bash|source|pre-commit) ")
# Pages whose commands run as they stand in a test of their own, whole workflows included.
ELSEWHERE = {
    "first-family.md": "test_tutorial_runs.py",
    "first-search.md": "test_tutorial_runs.py",
    "first-analysis.md": "test_tutorial_runs.py",
    "your-own-corpus.md": "test_own_corpus.py",
}
# Why a command is not run here, by how it begins.
NOT_RUN = {
    "make": "sets up .venv, or runs all tests",
    "pip": "installs packages",
    "source": "is of a shell",
    "pre-commit": "installs a hook",
    "bash .ci/run": "runs all tests",
    "continuum translate": "reads a bundle: tests/test_usage.py and tests/unit/serving",
    "continuum verify": "reads finished results: tests/test_verify.py",
    "continuum compare": "reads finished results: tests/unit/evaluation",
    "continuum leaderboard": "reads finished results: tests/unit/evaluation",
    "continuum export-arpa": "reads a bundle: tests/unit/serving/test_language_model.py",
    "snakemake --profile config/profiles/slurm": "needs Slurm's plug-in: tests/test_slurm.py",
    "snakemake --executor": "needs the plug-in of another scheduler",
    "snakemake --unlock": "ends with an unlocked folder: tests/test_interrupted.py",
    "snakemake --report": "reads finished results: tests/test_whole_runs.py",
    "snakemake --software-deployment-method": "needs Conda",
    "python tests/benchmarks/papers_size.py": "takes minutes, and a GPU where it is named: tests/benchmarks",
    "snakemake --containerize": "writes a Dockerfile: tests/test_workflow.py",
    "python -m pytest": "runs tests",
    "python tests/test_rule_settings.py": "writes a file of the project anew",
    "python tests/test_defaults.py": "writes a file of the project anew",
    "python -m workflow_src.config.schema": "writes a file of the project anew",
}
# What stands for a name of the reader's in a command.
PLACEHOLDER = re.compile(r"\b(?:FILE|FOLDER|NAME|EXPERIMENT|BUNDLE|RESULTS|STAGE|PATH)\b|…")


def commands(page: Path) -> list[str]:
    """Commands of a page in blocks of code and in its sentences, without comments and placeholders."""
    text = page.read_text(encoding="utf-8")
    shell = [block for _, language, block in BLOCK.findall(text) if language in ("", "bash")]
    blocks = "\n".join(shell).replace("\\\n", " ")
    lines = [line for line in blocks.splitlines() if COMMAND.match(line)]
    lines += [" ".join(span.split()) for span in INLINE.findall(BLOCK.sub("", text))]
    complete = [line for line in lines if not PLACEHOLDER.search(line)]
    return list(dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for line in complete))


def reason(command: str) -> str | None:
    """Why a command is not run, None where it is."""
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


# A command that stands on several pages is run once.
PAGE_OF_COMMAND = {
    command: page
    for page in PAGES_OF_COMMANDS
    if page.name not in ELSEWHERE
    for command in commands(page)
    if reason(command) is None
}
TO_RUN = [pytest.param(command, id=f"{page.name}-{command}") for command, page in PAGE_OF_COMMAND.items()]


def test_commands_are_found_and_every_reason_is_of_one():
    everything = [command for page in PAGES_OF_COMMANDS for command in commands(page)]
    run = {tuple(shlex.split(parameters.values[0])[:2]) for parameters in TO_RUN}
    assert {("continuum", name) for name in ("estimate", "plan", "check", "clean")} <= run
    assert ("snakemake", "--profile") in run and len(TO_RUN) > 20
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in everything)] == []
    for page, test in ELSEWHERE.items():
        assert page in (PROJECT / "tests" / test).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """The folder of a reader who has the two texts of README's example."""
    folder = tmp_path_factory.mktemp("reader")
    for side, code in enumerate(("de", "en")):
        lines = (
            f"{pair[side]}\n" for pair in grammar.generate({"train": 6000, "dev": 1, "test": 1, "seed": 1})["train"]
        )
        (folder / f"my.{code}").write_text("".join(lines), encoding="utf-8")
    page = (PROJECT / "README.md").read_text(encoding="utf-8")
    (mine,) = re.findall(r"^```yaml\n(# mine\.yaml\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (folder / "mine.yaml").write_text(mine, encoding="utf-8")
    (folder / "config").symlink_to(PROJECT / "config")
    return folder


@pytest.fixture(autouse=True)
def environment():
    """Variables stay as they are: `plan` reads the Snakefile, which sets some for jobs."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def folder(texts, monkeypatch) -> Path:
    """The same, as the working directory, with a measuring of this machine that takes a second."""
    monkeypatch.chdir(texts)
    monkeypatch.setattr(calibration, "SECONDS", 0.3)
    return texts


def script(path: str, *words: str) -> list[str]:
    """The command `python PATH WORDS` for a script of the project, without the time that importing torch takes."""
    file = str(PROJECT / path)
    code = (
        f"import os, runpy, sys; sys.argv[0] = {file!r}; sys.path.insert(0, os.path.dirname(sys.argv[0]));"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return python_code(code, *words)


@pytest.mark.parametrize("command", TO_RUN)
def test_a_command_of_a_page_runs(command, folder, capsys, monkeypatch):
    program, *words = shlex.split(command)
    if program == "continuum":
        monkeypatch.setattr(sys, "executable", str(STAGE_SERVER.programs() / "python"))
        if words[0] == "clean":
            # The page describes the filter: README's example has none.
            words = [*words, "--config", "recipe={clean: {length: {}, ratio: {}}}"]
        cli.main(words)
        assert capsys.readouterr().out
        return
    if program == "python":
        of_project = words[0].startswith("tests/")
        command = script(*words) if of_project else python_module(*words[1:])
    if absent := [word for word in words if word.startswith(("results/", "logs/"))]:
        # Files of a run are not here: it ends at the first one that is missing, and not before.
        process = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert process.returncode != 0 and absent[0] in process.stderr and "usage:" not in process.stderr
        return
    if program == "python":
        shown = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert shown.returncode == 0 and shown.stdout
        return
    assert program == "snakemake"
    process = dry_run(*words, "--quiet", "rules", folder=folder)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("words", [[], *([name] for name in ("estimate", "plan", "check", "clean", "compare"))])
def test_help_and_version_end_well(words, capsys):
    for option in ["--help", *(["--version"] if not words else [])]:
        with pytest.raises(SystemExit) as stop:
            cli.main([*words, option])
        assert not stop.value.code and "continuum" in capsys.readouterr().out
