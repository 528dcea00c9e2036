"""Metrics that an experiment adds: columns, conclusions, and files that a reader without them reads."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import reports
from titles import BLEU, CHRF

from workflow_src.config import Plan, load
from workflow_src.errors import InputError
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.significance import PairedDifference
from workflow_src.evaluation.report import captions, comparison, results, tables
from workflow_src.evaluation.report.captions import rival_words
from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.markdown import markdown
from workflow_src.registry import default_metrics, main_metric, metrics
from workflow_src.spec import Metric

TER = metrics()["ter"]
MEASURED = (*default_metrics(), TER)
MANIFEST = dataclasses.replace(reports.manifest(), metrics=MEASURED)


def row(system: str, name: str, bleu: float, ter: float, **fields) -> results.Row:
    """A row with TER; its interval is a point to each side, and p against the baseline 0.25."""
    content = reports.row(system, name, bleu, **fields).model_dump()
    content |= {"ter": ter, "ter_ci": (ter - 1, ter + 1), "ter_p_value": 0.25}
    return results.row_type(MEASURED).model_validate(content)


def test_a_further_metric_has_columns_with_its_interval_and_its_p_value():
    rows = [row("teacher", "greedy", 40.0, 51.0), row("lvm", "prior-mean", 30.0, 62.5, removed="subwords")]
    table = tables.groups(rows, MANIFEST, "subwords")
    columns = tables.columns(table, MANIFEST)
    assert [column.heading for column in columns] == ["BLEU", "chrF", "TER", "p"]
    assert [column.cell_or_dash(table[1].lines[0]) for column in columns[2:]] == [
        ("62.5", "[61.5, 63.5]"),
        ("0.250", ""),
    ]
    # Of several seeds there is a deviation, and no p-value.
    further_rows = [
        row("teacher", "greedy", 41.0, 49.0, seed=2),
        row("lvm", "prior-mean", 31.0, 62.5, removed="subwords", seed=2),
    ]
    table = tables.groups([*rows, *further_rows], MANIFEST, "subwords")
    columns = tables.columns(table, MANIFEST)
    assert [column.heading for column in columns] == ["BLEU", "chrF", "TER"]
    assert columns[2].cell_or_dash(table[0].lines[0]) == ("50.0", "± 1.4")
    # Intervals are in columns of their own at the end, and a metric behind the tests of the main one.
    heads = tables.csv_text(rows).splitlines()[0].split(",")
    assert heads.index("control_p_value") < heads.index("ter") < heads.index("latency_ms")
    assert heads[-4:] == ["bleu_low", "bleu_high", "ter_low", "ter_high"]


def test_a_column_says_where_the_first_of_several_references_counts():
    rows = [row("teacher", "greedy", 40.0, 51.0)]
    alone = dataclasses.replace(TER, references="first")
    recipe = reports.RECIPE | {"dataset": reports.dataset(test=3, news=1)}
    plan = Plan(load(reports.configuration({("teacher", "greedy"): {"search": "greedy"}}, recipe=recipe)))
    manifest = dataclasses.replace(Manifest.of(plan, {}.__getitem__), metrics=(*default_metrics(), alone))
    heads = [column.heading for column in tables.columns(tables.groups(rows, manifest, "subwords"), manifest)]
    assert heads == [BLEU, CHRF, f"{TER.title}, first reference", "p"]
    assert captions.reference_words(manifest, "test").endswith(f"sacreBLEU. {TER.title}: the first one alone.")
    # On another set a source has one.
    assert manifest.on("news").head(alone) == TER.title and captions.reference_words(manifest, "news") == ""


@pytest.mark.parametrize(
    ("ter", "error", "as_good", "words"),
    [
        (50.0, 0.1, True, "between +1.8 and +2.2"),
        (55.0, 0.1, False, "between −3.2 and −2.8"),
        (52.4, 0.5, False, "between −1.4 and +0.6"),
    ],
)
def test_where_less_is_better_a_higher_figure_is_worse(ter, error, as_good, words):
    """Of two rows with the same BLEU, where TER decides: 52 against another figure."""
    deciding = dataclasses.replace(TER, decides=True)
    rows = [row("teacher", "greedy", 40.0, 52.0), row("lvm", "prior-mean", 40.0, ter)]
    keys = [(key_row.system, key_row.name, key_row.seed) for key_row in rows]
    lines = [SimpleNamespace(decode=MANIFEST.decode(*key[:2])) for key in keys]
    difference = PairedDifference(ter - 52.0, error, 0.0)
    pairs = {(keys[1], keys[0]): {"bleu": PairedDifference(0.0, 0.0, 0.0), "ter": difference}}
    proof = Evidence.of(rows, pairs, 0.5, metrics=(main_metric(), deciding))
    assert proof.as_good(lines[1], lines[0]) is as_good
    assert proof.interval_words(lines[1], lines[0]) == f"between +0.0 and +0.0 {BLEU} and {words} {TER.title}"


def test_results_are_read_without_the_plug_in_of_a_metric(tmp_path):
    """Files say which metrics they have; one that is not declared here keeps its name."""
    scored = {**reports.row("teacher", "greedy", 40.0).model_dump(), "mine": 0.5, "mine_ci": None, "mine_p_value": 0.1}
    names = [*(metric.name for metric in default_metrics()), "mine"]
    content = reports.results("one", "toy", [scored]) | {"metrics": names}
    results.write_results(tmp_path / "results.json", content)
    loaded = results.read_results(tmp_path / "results.json")
    assert loaded.metrics == tuple(names) and loaded.rows[0].figure(Metric("mine", "mine")) == 0.5
    assert "mine" in markdown(comparison.document(comparison.compare([loaded]), None))
    with pytest.raises(InputError, match=r"rows\[0\]\.mine: "):
        results.validate(reports.results("one", "toy", [scored]), "here")


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
    (group,) = tables.groups([row("lvm", "prior-mean", 30.0, 60.0)], MANIFEST, "none")
    (line,) = group.lines
    line = dataclasses.replace(line, figures=line.figures | {"points": figure, "against_fastest": 1.0})
    pairs = reports.evidence([row("teacher", "greedy", 30.0, 60.0), row("lvm", "prior-mean", 30.0, 60.0)]).pairs
    proof = Evidence.of((), pairs, 0.5, metrics=(metric,))
    assert proof.why_inconclusive(line) == reason
    words = rival_words([dataclasses.replace(group, lines=(line,))], proof)
    assert "lose less than 0.5 points" in words
    assert f"empty {'below' if better == 'higher' else 'above'} 60 points" in words
