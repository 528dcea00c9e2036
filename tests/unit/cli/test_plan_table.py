"""The table of `continuum plan` on a terminal of 80 columns."""

from __future__ import annotations

import dataclasses
import io
import re
from collections import Counter

import networkx as nx
import pytest
import rich.console

from workflow_src.cli.plan import Cost, Node, Overview, Reason
from workflow_src.cli.show import as_table, hours_caption
from workflow_src.cli.sizes import CountedSizes

SIZES = CountedSizes(None, 9.0)
REASONS = [
    "systems.score.training.learning_rate 0.002 → 0.25",
    "missing results/smoke/translations/teacher-long/seed-1/beam-4-ctranslate2/test.txt and 12 more",
]


def test_eighty_columns_cut_no_word_in_two():
    nodes = {("data", ""): Node("data", "", rules=Counter(["normalise"]))}
    for number, text in enumerate(REASONS):
        node = Node(
            "train",
            f"lanmt-annealed-{number}",
            Counter(["train_lvm"]),
            Counter(["train_lvm"]),
            Counter([Reason("setting", text)]),
        )
        nodes[node.stage, node.system] = node
    overview = Overview("mine", "mine", (), nx.DiGraph(), nodes, SIZES, measured=True)
    written = io.StringIO()
    rich.console.Console(file=written, width=80).print(as_table(overview))
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    # Long names are cut after dots and slashes alone.
    parts = {part for text in REASONS for part in re.split(r"(?<=/)|(?<=[a-z]\.)| ", text)}
    assert {part for part in parts if not any(part in word for word in words)} == set()
    assert {"lanmt-annealed-0", "lanmt-annealed-1", "core-hours", "corpus,"} <= words


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize(("measured", "hours"), [(True, ["3.0 h"]), (False, ["1.0 h to 2.0 h"])])
def test_hours_are_of_a_core_where_it_was_measured_and_else_of_a_gpu(measured, hours, everything):
    jobs = Counter(["train_teacher"])
    node = Node("train", "teacher", jobs, jobs, costs=[Cost(None, (1.0, 2.0), 3.0)], parameters=2_000)
    overview = Overview(
        "m", "m", (), nx.DiGraph(), {("train", "teacher"): node}, SIZES, measured, everything=everything
    )
    written = io.StringIO()
    rich.console.Console(file=written, width=80).print(as_table(overview))
    rows = {line.split()[0]: line for line in written.getvalue().splitlines() if line.split()}
    assert re.findall(r"[0-9.]+ h(?: to [0-9.]+ h)?$", rows["train"].rstrip()) == hours
    assert ("2 k" in rows["train"]) == everything == ("all" in rows)
    assert not everything or rows["all"].rstrip().endswith(hours[0])


def test_a_plan_for_gpus_says_how_many_jobs_share_one():
    def caption(jobs: int) -> str:
        empty = Overview("m", "m", (), nx.DiGraph(), {}, SIZES)
        return hours_caption(dataclasses.replace(empty, jobs_per_gpu=jobs))

    assert "5 jobs" in caption(5) and "share" not in caption(1)
