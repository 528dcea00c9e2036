"""The table of `continuum plan` on a terminal of 80 columns."""

from __future__ import annotations

import dataclasses
import io
import re
from collections import Counter

import networkx as nx
import rich.console

from workflow_src.cli.plan import Node, Overview, Reason
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


def test_a_plan_for_gpus_says_how_many_jobs_share_one():
    def caption(jobs: int) -> str:
        empty = Overview("m", "m", (), nx.DiGraph(), {}, SIZES)
        return hours_caption(dataclasses.replace(empty, jobs_per_gpu=jobs))

    assert "5 jobs" in caption(5) and "share" not in caption(1)
