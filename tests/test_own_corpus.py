"""docs/your-own-corpus.md as it is written: its file and its commands, on small texts with planted faults."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import planted
import pytest
import yaml
from configurations import read_configuration
from conftest import PROJECT, dry_run, scheduled, snakemake

from workflow_src import cli
from workflow_src.config import Plan
from workflow_src.data.toy import grammar

PAGE = (PROJECT / "docs/your-own-corpus.md").read_text(encoding="utf-8")
(CONFIGURATION,) = re.findall(r"^`mine.yaml`:\n\n```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MORE = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[-1]
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
PAIRS, FAULTY = 1000, 0.3
# The smallest systems in place of those of `recommended`: they learn nothing.
TINY = """
systems:
  teacher: {preset: miniature, training: &tiny {preset: smoke, max_steps: 30, validate_every: 15, save_every: 15}}
  teacher-long: {preset: miniature, training: *tiny}
  one-pass: {preset: miniature, training: *tiny}
decodes:
  - {system: teacher-long, search: beam, beam: 2, splits: [dev, test]}
  - {system: one-pass, search: ctc-greedy, splits: [dev, test]}
speed: {sentences: 5, warmup: 1, repeats: 2, batch: 5}
# Threads of several jobs that share few cores wait for each other in loops.
runtime: {training_threads: 1}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working directory of a reader, with all files that the page's configuration names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(CONFIGURATION, encoding="utf-8")
    recipe = yaml.safe_load(CONFIGURATION)["recipe"]
    corpus = grammar.generate({"train": PAIRS + 200, "dev": 40, "test": 80, "seed": 1})
    noisy, _ = planted.plant(corpus["train"][:PAIRS], [*planted.FAULTS], FAULTY, seed=1)
    held_out = [recipe["dataset"]["dev"], *recipe["dataset"]["test"].values()]
    lines = [corpus["dev"], corpus["test"][:40], corpus["test"][40:]]
    for parts, pairs in zip([recipe["dataset"]["train"], *held_out], [noisy, *lines], strict=True):
        _write(parts, pairs)
    _write(recipe["monolingual"], [pair[:1] for pair in corpus["train"][PAIRS:]])
    return tmp_path


def _write(parts: list[dict], rows: list[tuple[str, ...]]) -> None:
    (part,) = parts
    for path, side in zip(part["texts"].values(), zip(*rows, strict=True), strict=True):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")


def commands(name: str) -> list[list[str]]:
    """Words of the page's commands that begin with a name, without it."""
    prefix = name.split()
    return [words[len(prefix) :] for words in COMMANDS if words[: len(prefix)] == prefix]


def test_the_page_has_the_commands_that_are_tested():
    tested = ["continuum check", "continuum clean", "continuum estimate", "snakemake"]
    assert [words for words in COMMANDS if words[0] == "snakemake" or words[1] != "translate"] == [
        [*name.split(), *words] for name in tested for words in commands(name)
    ]


def test_the_configuration_is_valid_and_the_preview_shows_the_faults(folder, capsys):
    (words,) = commands("continuum check")
    cli.main(["check", *words])
    assert "is valid" in capsys.readouterr().out
    (words,) = commands("continuum clean")
    cli.main(["clean", *words])
    kept_pairs = int(
        re.search(r"of the first 1,000 pairs, ([\d,]+) are kept", capsys.readouterr().out, re.IGNORECASE)[1]
    )
    # Two kinds of faults are repaired; of three kinds no filter of the page is asked for.
    assert 1 - FAULTY <= kept_pairs / PAIRS < 1 - FAULTY / 2
    (words,) = commands("continuum estimate")
    cli.main(["estimate", *words, "--no-calibration", "--json"])
    assert json.loads(capsys.readouterr().out)


def test_more_systems_train_no_system_of_the_first_file_anew(folder):
    Path("more.yaml").write_text(MORE, encoding="utf-8")
    mine, more = (read_configuration(name).systems for name in ("mine.yaml", "more.yaml"))
    assert more.keys() - mine.keys() == {"graph", "one-pass-bigrams"}
    assert {name: more[name] for name in mine} == mine
    assert Plan(read_configuration("more.yaml")).loaded.systems.keys() == more.keys()


def test_the_run_has_jobs_for_every_text(folder):
    (words,) = commands("snakemake")
    words[words.index("--profile") + 1] = str(PROJECT / words[words.index("--profile") + 1])
    process = dry_run(*words, "--quiet", "rules", folder=folder)
    assert process.returncode == 0, process.stderr
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", process.stdout + process.stderr, re.MULTILINE))
    assert {"clean", "distill", "clean_monolingual", "normalise_monolingual", "report"} <= jobs.keys()


@pytest.mark.runs
def test_a_run_ends_with_a_bundle_that_translates_documents(folder, capsys):
    (folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
    process = snakemake(
        "--cores", "2", "--configfile", "mine.yaml", "tiny.yaml", folder=folder, seconds=900, forked=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert all((folder / path).exists() for path in re.findall(r"`(results/[\w./-]+)`", PAGE))
    (words,) = commands("continuum translate")
    documents, translated = (Path(words[words.index(option) + 1]) for option in ("--input", "--output"))
    documents.mkdir()
    texts = {"one.txt": "Der Hund schläft. Die Katze isst.\n\nPeter rief sie an.\n", "two.txt": "Öffne <b>%1</b>.\n"}
    for name, text in texts.items():
        (documents / name).write_text(text, encoding="utf-8")
    cli.main(["translate", *words])
    counts = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in translated.iterdir()}
    assert counts == {"one.txt": 3, "two.txt": 1}
    cli.main(["verify", "results/mine"])
    assert capsys.readouterr().out.startswith("results/mine: ")
    # Once they were read, own texts may be moved away.
    Path("my").rename("archived")
    words = ("--configfile", "mine.yaml", "tiny.yaml")
    assert scheduled(*words, folder=folder) == {}
    (subwords,) = Path("results/mine/subwords").glob("*.model")
    subwords.rename("lost.model")
    process = dry_run(*words, folder=folder)
    assert str(subwords) in process.stdout + process.stderr
