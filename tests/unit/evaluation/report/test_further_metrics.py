"""Metrics that an experiment adds: columns, conclusions, and files that a reader without them reads."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import reports
from titles import BLEU, CHRF

from workflow_src.config import Plan, load
from workflow_src.evaluation.document import Caption, Cell
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.significance import PairedDifference
from workflow_src.evaluation.report import captions, comparison, results, tables
from workflow_src.evaluation.report.captions import rival_words
from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.markdown import markdown
from workflow_src.evaluation.report.results import Mean
from workflow_src.registry import default_metrics, main_metric, metrics
from workflow_src.spec import Metric

TER = metrics()["ter"]
MEASURED = (*default_metrics(), TER)
MANIFEST = dataclasses.replace(reports.manifest(), metrics=MEASURED)


def row(system: str, name: str, bleu: float, ter: float, **fields) -> dict:
    """A row with TER; its interval is a point to each side, and p against the baseline 0.25."""
    return reports.row(system, name, bleu, ter=ter, ter_ci=(ter - 1, ter + 1), ter_p=0.25, **fields)


def test_a_further_metric_has_columns_with_its_interval_and_its_p_value():
    rows = [row("teacher", "greedy", 40.0, 51.0), row("lvm", "prior-mean", 30.0, 62.5, removed="subwords")]
    table = reports.groups(rows, MANIFEST, "subwords")
    shown = tables.block(table, MANIFEST, Caption(""))
    assert shown.heads[1:] == [BLEU, CHRF, TER.title, "p, TER"]
    assert shown.rows[-1][3:] == [Cell("62.5", "[61.5, 63.5]"), "0.250"]
    # Of several seeds there is a deviation, and no p-value.
    further_rows = [
        row("teacher", "greedy", 41.0, 49.0, seed=2),
        row("lvm", "prior-mean", 31.0, 62.5, removed="subwords", seed=2),
    ]
    table = reports.groups([*rows, *further_rows], MANIFEST, "subwords")
    shown = tables.block(table, MANIFEST, Caption(""))
    assert shown.heads[1:] == [BLEU, CHRF, TER.title] and shown.rows[1][3] == Cell("50.0", "± 1.4")


def test_a_column_says_where_the_first_of_several_references_counts():
    rows = [row("teacher", "greedy", 40.0, 51.0)]
    alone = dataclasses.replace(TER, references="first")
    recipe = reports.RECIPE | {"dataset": reports.dataset(test=3, news=1)}
    plan = Plan(load(reports.configuration({("teacher", "greedy"): {"search": "greedy"}}, recipe=recipe)))
    manifest = dataclasses.replace(Manifest.of(plan, {}.__getitem__), metrics=(*default_metrics(), alone))
    shown = tables.block(reports.groups(rows, manifest, "subwords"), manifest, Caption(""))
    assert shown.heads[1:] == [BLEU, CHRF, f"{TER.title}, first reference", "p, TER"]
    assert captions.reference_words(manifest, "test").endswith(f"sacreBLEU. {TER.title}: the first one alone.")
    # On another set a source has one.
    assert manifest.on("news").head(alone) == TER.title and captions.reference_words(manifest, "news") == ""


@pytest.mark.parametrize(
    ("ter", "error", "as_good", "interval"),
    [(50.0, 0.1, True, (1.8, 2.2)), (55.0, 0.1, False, (-3.2, -2.8)), (52.4, 0.5, False, (-1.4, 0.6))],
)
def test_where_less_is_better_a_higher_figure_is_worse(ter, error, as_good, interval):
    """Of two rows with the same BLEU, where TER decides: 52 against another figure."""
    deciding = dataclasses.replace(TER, decides=True)
    rows = [row("teacher", "greedy", 40.0, 52.0), row("lvm", "prior-mean", 40.0, ter)]
    keys = [tuple(of[name] for name in ("system", "decode", "seed")) for of in rows]
    lines = [SimpleNamespace(decode=MANIFEST.decode(*key[:2])) for key in keys]
    difference = PairedDifference(ter - 52.0, error, 0.0)
    pairs = {(keys[1], keys[0]): {"bleu": PairedDifference(0.0, 0.0, 0.0), "ter": difference}}
    proof = Evidence.of(reports.results(rows).figures, pairs, 0.5, (), (main_metric(), deciding))
    assert proof.as_good(lines[1], lines[0]) is as_good
    intervals = proof.intervals(lines[1], lines[0])
    assert intervals[main_metric()] == (0, 0) and intervals[deciding] == pytest.approx(interval, abs=0.05)


def test_results_are_read_without_the_plug_in_of_a_metric(tmp_path):
    """Files say which metrics they have; one that is not declared here keeps its name."""
    names = [*(metric.name for metric in default_metrics()), "mine"]
    scored = reports.row("teacher", "greedy", 40.0, mine=0.5, mine_p=0.1, metrics=["mine"])
    reports.results([scored], metrics=names).write(tmp_path)
    loaded = results.read_results(tmp_path)
    assert [metric.name for metric in loaded.metrics] == names
    assert results.means(loaded.figures)["teacher", "greedy"]["mine"].value == 0.5
    assert "mine" in markdown(comparison.compare([loaded]))


@pytest.mark.parametrize(
    ("better", "figure", "reason"),
    [
        ("higher", 59, "“lvm” has less than 60 points"),
        ("higher", 60, None),
        ("lower", 61, "“lvm” has more than 60 points"),
        ("lower", 60, None),
        ("lower", 5, None),
    ],
)
def test_nothing_is_concluded_about_a_row_that_is_worse_than_the_least_figure(better, figure, reason):
    metric = Metric("points", "points", better=better, least=60, decides=True)
    (group,) = reports.groups([row("lvm", "prior-mean", 30.0, 60.0)], MANIFEST, "none")
    (line,) = group.lines
    line = dataclasses.replace(line, means={"points": Mean(figure), "against_fastest": Mean(1.0)})
    pairs = reports.evidence([row("teacher", "greedy", 30.0, 60.0), row("lvm", "prior-mean", 30.0, 60.0)]).pairs
    scored = reports.row("teacher", "greedy", 40.0, points=60.0, metrics=["points"])
    of_another_corpus = Metric("valid", "valid outputs", decides=True)
    figures = reports.results([scored]).figures
    proof = Evidence.of(figures, pairs, 0.5, (), (metric, of_another_corpus))
    assert proof.too_bad(line) == reason
    words = rival_words(proof)
    assert "lose less than 0.5 points" in words and "60 points" in words and "valid outputs" not in words
