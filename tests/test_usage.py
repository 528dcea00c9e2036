"""The command that a report recommends gives the translations shown beside it; so do those of other rows."""

from __future__ import annotations

import html
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import PROJECT
from stage_server import STAGE_SERVER

from workflow_src.config import Plan, load_experiment
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.evaluation.quality.choosing import read_choice
from workflow_src.evaluation.quality.details import read_details
from workflow_src.records.atomic import read_json
from workflow_src.registry import engines
from workflow_src.serving.bundle import read_bundle
from workflow_src.serving.options import translate_command

PLAN = Plan(load_experiment("smoke"))
# One of each kind: the command names a search, an engine, systems beside the bundle, and what dev chose.
DECODES = {(row.search, row.engine_word, bool(row.tune), *row.others): row for row in PLAN.loaded.decodes}
TEN = 10


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def run_shell(command: str, folder: Path) -> list[str]:
    environment = {**os.environ, "PATH": f"{STAGE_SERVER.programs()}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT)}
    process = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


@pytest.fixture(scope="module")
def page(smoke_run) -> str:
    return (smoke_run / PLAN.report / "index.html").read_text(encoding="utf-8").split('<section id="use">')[1]


def test_the_recommended_command_gives_the_translations_beside_it(page, smoke_run):
    rows = [
        [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
        if "<td" in row
    ]
    source, reference = PLAN.corpus("test", "source"), PLAN.reference("test")
    assert [row[0] for row in rows] == lines(smoke_run / source)[:TEN]
    assert [row[1] for row in rows] == lines(smoke_run / reference)[:TEN]
    command, repeated = (html.unescape(text) for text in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page))
    assert repeated.startswith(f"head -n 10 {source} | continuum translate --bundle results/smoke/bundles/")
    assert run_shell(repeated, smoke_run) == [row[2] for row in rows]
    assert command == repeated.partition(" | ")[2].removesuffix(" --no-split") + " < in.txt > out.txt"


def test_the_default_of_the_recommended_bundle_is_the_row(page, smoke_run):
    """Its default search with its default settings: dev chose both."""
    folder = re.search(r"Its bundle is in <code>(.*?)</code>", page)[1]
    description = read_json(smoke_run / folder / "bundle.json")
    system, _, row = re.search(r"Recommended: <b>(.*?)</b>", page)[1].partition(" ")
    assert description["system"] == system and description["default_from"]["row"] == row
    decode = next(decode for decode in PLAN.loaded.decodes if decode.key == (system, row))
    chosen = read_choice(smoke_run / PLAN.chosen(decode, 1)).chosen
    defaults = description["search_defaults"][description["defaults"]["search"]]
    assert {name: defaults[name] for name in chosen} == chosen


@pytest.mark.parametrize("decode", DECODES.values(), ids=lambda decode: f"{decode.system}-{decode.name}")
def test_a_row_has_a_command_that_repeats_it(decode, smoke_run):
    chosen = read_choice(smoke_run / PLAN.chosen(decode, 1)).chosen if decode.tune else {}
    export = engines()[decode.engine].exports
    folder = PLAN.finished_bundle(decode.system, 1, export)
    role_bundles = {role: PLAN.finished_bundle(name, 1) for role, name in decode.others.items()}
    description = read_bundle(smoke_run / folder)
    command = translate_command(folder, description, decode.with_values(chosen), role_bundles, device="cpu")
    path = smoke_run / PLAN.translation(decode, 1, "test")
    expected = lines(path)
    if PLAN.loaded.removal(decode) == "subwords":
        expected = [line[WITHOUT_REPEATED_SUBWORDS] for line in read_details(path.with_suffix(".jsonl"))]
    # Reports translate whole lines, however long.
    output = run_shell(f"head -n {TEN} {PLAN.corpus('test', 'source')} | {command} --no-split", smoke_run)
    assert output == expected[:TEN] and any(output)
