"""Grids: cells by hand, captions, and cells without a measurement."""

import dataclasses

import reports
import titles
from reports import manifest, row

from workflow_src.config.plan.grids import GridCell, GridInfo
from workflow_src.evaluation.report import grids

GRID = GridInfo(
    "Operators",
    "lvm",
    "objective.input_operator",
    "model.width",
    ("SX", "ST"),
    ("1", "2"),
    ((GridCell("lvm", ("other",)), None), (GridCell("score"), GridCell("lvm-raw", ("unmeasured", "teacher")))),
    (("55 (20.2)", "–"), ("–", "1 (0)")),
)
BLEU = {"bleu": 20.0, "bleu_tokenised": 21.0, "bleu_intl_lowercase": 22.04}
UNDER_TEACHER = BLEU | {"scorer": "teacher", "energy_per_sentence": 9.04}
UNDER_OTHER = BLEU | {"scorer": "other", "energy_per_sentence": 9.04}
AT_LENGTHS = [
    UNDER_TEACHER | {"system": "lvm", "name": "delta-1"},
    UNDER_OTHER | {"system": "lvm", "name": "delta-1", "energy_per_sentence": 55.54},
    UNDER_TEACHER | {"system": "lvm", "name": "delta-2"},
    UNDER_TEACHER | {"system": "score", "name": "score-1", "energy_per_sentence": None},
]
ROWS = [
    row("lvm-raw", "prior-mean", 30.0, bleu_intl_lowercase=33.0, removed="subwords"),
    row("lvm-raw", "prior-mean", 10.0, bleu_intl_lowercase=10.0, removed="none"),
    row("lvm-raw", "prior-mean", 31.0, bleu_intl_lowercase=34.5, removed="subwords", seed=2),
    row("lvm-raw", "delta-1", 50.0, bleu_intl_lowercase=53.0, removed="subwords"),
]


def grid_table(at_lengths, **report):
    report_manifest = dataclasses.replace(manifest(seeds=(1, 2), expected_source="A paper", **report), grids=(GRID,))
    heading, beside = grids.tables(
        report_manifest, "dev", at_lengths, reports.groups(ROWS, report_manifest, "subwords")
    )
    assert heading.text == "Operators"
    return beside.blocks


def test_cells_have_energy_and_bleu_at_the_references_lengths_or_bleu_of_the_first_row():
    grid, published = grid_table(AT_LENGTHS, expected_convention="intl-lowercase")
    assert grid.heads == ["input operator \\ width", "1", "2"]
    assert grid.rows == [["SX", "55.5 (22.0)", "–"], ["ST", "– (22.0)", "33.8"]]
    assert published.rows == [["SX", "55 (20.2)", "–"], ["ST", "–", "1 (0)"]]
    assert published.heads == grid.heads and published.caption.line == "Published (A paper)."
    assert (
        f"on dev: energy in nats a sentence under other or teacher, and in brackets {titles.BLEU} (international, low"
        in grid.caption.notes["Cells"]
    )
    alone = f"A figure alone is {titles.BLEU} (international, lowercase) of a system's first row"
    assert alone in grid.caption.notes["Cells"]


def test_without_energies_cells_have_the_bleu_of_the_main_table():
    grid, _ = grid_table([])
    assert grid.rows == [["SX", "–", "–"], ["ST", "–", "30.5"]]
    note = grid.caption.notes["Cells"]
    assert "energy" not in note and f"Figures are {titles.BLEU} (sacreBLEU) of a system" in note


def test_a_grid_says_what_is_done_about_repetitions_of_its_own_systems():
    """A CTC loss means repetitions, and autoregressive outputs are scored as they are, whatever other rows have."""
    decodes = {("ctc", "ctc-greedy"): {"search": "ctc-greedy"}, ("teacher", "greedy"): {"search": "greedy"}}
    some = manifest(decodes)
    rows = [row("ctc", "ctc-greedy", 30.0, means_repetitions=True), row("teacher", "greedy", 30.0)]
    for system, words in (("ctc", "repetitions are kept"), ("teacher", "")):
        grid = dataclasses.replace(GRID, rows=("SX",), columns=("1",), cells=((GridCell(system),),), published=None)
        _, beside = grids.tables(dataclasses.replace(some, grids=(grid,)), "test", [], reports.groups(rows, some, None))
        (shown,) = beside.blocks
        note = shown.caption.notes["Cells"]
        assert shown.rows == [["SX", "30.0"]]
        assert ("repeti" in note or "repeat" in note) == bool(words) and words in note
