"""The summary: which rows stand beside each other, and what is concluded from them."""

from __future__ import annotations

import dataclasses

import pytest
import reports
from reports import manifest, row
from titles import BEAM_4, BLEU, GREEDY

from workflow_src.evaluation.report.summary import Fact, beaten_words, block, summary
from workflow_src.registry import main_metric

TEACHER = (("teacher", "greedy", 39.0, 7.0), ("teacher", "beam-4", 41.0, 11.0))
DECODES = reports.DECODES | {
    ("lvm", "int8"): {"search": "prior-mean", "engine": "onnxruntime-int8"},
    ("student", "greedy"): {"search": "greedy"},
    ("student", "beam-4-ctranslate2-int8"): {"search": "beam", "beam": 4, "engine": "ctranslate2-int8"},
}
FASTEST, GAIN, BEST = "the fastest row as good as", "the largest gain at equal quality", "the best non-autoregressive"


def facts_of(*rows, **options) -> list[Fact]:
    """The facts about rows (system, name, BLEU, milliseconds[, validity])."""
    timed_rows = [
        row(*values[:3], latency_ms=values[3], validity=values[4] if len(values) > 4 else None) for values in rows
    ]
    proof = reports.evidence(timed_rows, **options)
    return summary(reports.groups(timed_rows, manifest(DECODES), "none", proof), proof)


def first(*rows, **options) -> tuple[str, list[str], str]:
    """The title of the first fact, the names of its rows, and its note."""
    fact = facts_of(*rows, **options)[0]
    return fact.title, [line.name for line in fact.lines], fact.note


def test_the_fastest_row_as_good_as_every_autoregressive_one_comes_first():
    """40.9 is as good as 41.0 where the standard error is 0.05; 36.0 is lower than both."""
    rows = [*TEACHER, ("lvm", "prior-mean", 41.5, 3.0), ("lvm", "delta-1", 40.9, 2.5), ("lvm", "delta-2", 36.0, 1.0)]
    title, names, note = first(*rows)
    assert title.startswith(f"With PyTorch, {FASTEST}")
    assert names == ["delta-1", "beam-4"] and note == beaten_words(2, 0, 2)
    # Seven pairs with an autoregressive row: 1/140 of each interval is outside, 2.690 standard errors from its middle.
    assert facts_of(*rows)[0].intervals[main_metric()] == pytest.approx((-0.2345, 0.0345), abs=1e-3)


def test_few_sentences_make_nothing_equal():
    """The same figures with a large error."""
    rows = [*TEACHER, ("lvm", "prior-mean", 41.5, 3.0), ("lvm", "delta-1", 40.9, 2.5)]
    title, names, note = first(*rows, error=2.0)
    assert BEST in title and "not shown" in title
    assert names == ["prior-mean", "beam-4"] and note == beaten_words(0, 2, 2)


def test_the_more_rows_are_looked_at_the_more_a_difference_needs():
    """0.3 below with a standard error of 0.09: 2.2 of them above the margin, which is enough for one row, not for 9."""
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 40.7, 1.0)]
    others = [("lvm", name, 30.0, 5.0) for name in ("delta-1", "delta-2", "delta-4")]
    others += [("lvm-raw", name, 30.0, 5.0) for name in ("prior-mean", "delta-1", "delta-2", "delta-4")]
    assert FASTEST in first(*rows, error=0.09)[0]
    assert "not shown" in first(*rows, *others, error=0.09)[0]


def test_a_row_that_is_slower_than_the_best_autoregressive_one_does_not_lead():
    rows = [("teacher", "greedy", 47.0, 1.0), ("teacher", "beam-4", 48.0, 1.8), ("lvm", "prior-mean", 49.0, 5.0)]
    title, _, note = first(*rows)
    assert BEST in title and "as good as the best" in title and note == beaten_words(0, 0, 2)


def test_where_none_is_as_good_as_all_the_largest_gain_at_equal_quality_comes_first():
    rows = [*TEACHER, ("lvm", "prior-mean", 38.8, 2.0), ("lvm", "delta-1", 38.9, 4.0)]
    title, names, note = first(*rows)
    assert GAIN in title and "3.5 times" in title
    assert names == ["prior-mean", "greedy"] and note == beaten_words(1, 0, 2)


def test_fewer_valid_outputs_are_not_as_good():
    """48.1 against 48.0 BLEU, 44.1 % valid outputs against 50.4 %."""
    rows = [("teacher", "beam-4", 48.0, 5.6, 0.504), ("lvm", "prior-mean", 48.1, 1.8, 0.441)]
    title, _, note = first(*rows)
    assert "lower than" in title and note == beaten_words(0, 0, 1)
    assert FASTEST in first(rows[0], ("lvm", "prior-mean", 48.1, 1.8, 0.503))[0]
    # Where the test set cannot tell it of one figure, it cannot tell it of the row.
    assert first(rows[0], ("lvm", "prior-mean", 49.9, 1.8, 0.503), error=0.5)[2] == beaten_words(0, 1, 1)


def test_the_margin_is_the_experiments():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 40.2, 1.0)]
    assert first(*rows)[2] == beaten_words(0, 0, 1) and first(*rows, margin=1.0)[2] == beaten_words(1, 0, 1)


def test_a_row_as_slow_as_its_rival_does_not_beat_it():
    assert first(*TEACHER, ("lvm", "prior-mean", 39.0, 11.0))[2] == beaten_words(0, 0, 2)


def test_engines_of_different_kinds_are_not_compared():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "int8", 41.5, 0.5)]
    title, _, note = first(*rows)
    assert title.startswith("On different engines, ") and note == beaten_words(0, 0, 1)
    title, names, note = first(*rows, ("teacher", "beam-4-ctranslate2-int8", 41.0, 2.0))
    assert title.startswith(f"With optimised engines (int8), {FASTEST}")
    assert names == ["int8", "beam-4-ctranslate2-int8"] and note == beaten_words(1, 0, 2)


def test_nothing_is_concluded_below_5_bleu_and_beside_a_best_rival_that_was_still_learning():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 42.0, 1.0), ("lvm", "delta-1", 42.5, 2.0)]
    (fact,) = facts_of(*rows, unfinished=["teacher"])
    assert BEST in fact.title and "as good" not in fact.title and not fact.intervals
    assert fact.lines[0].name == "delta-1" and "“teacher” was still learning" in fact.note
    assert "training.max_steps" in fact.note
    (fact,) = facts_of(("teacher", "beam-4", 1.0, 11.0), ("lvm", "prior-mean", 1.5, 1.0))
    assert f"“teacher” has less than 5 {BLEU}" in fact.note
    # Without times the better one is said.
    (fact,) = facts_of(("teacher", "beam-4", 41.0, None), ("lvm", "prior-mean", 36.0, None))
    assert "lower than" in fact.title


def test_a_row_that_was_still_learning_may_be_as_good_but_not_lower():
    """41.5 and 36.0 beside 41.0: what was half trained has won, and may win yet."""
    assert FASTEST in first(*TEACHER, ("lvm", "prior-mean", 41.5, 3.0), unfinished=["lvm"])[0]
    (fact,) = facts_of(*TEACHER, ("lvm", "prior-mean", 36.0, 12.0), unfinished=["lvm"])
    assert "beside" in fact.title and "lower" not in fact.title and not fact.intervals
    assert "“lvm” was still learning" in fact.note


def test_an_autoregressive_row_that_was_still_learning_hides_no_better_one():
    """The student has 39.0 after a short training, and the teacher 41.0."""
    rows = [("student", "greedy", 39.0, 1.0), ("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 41.5, 3.0)]
    title, names, note = first(*rows, unfinished=["student"])
    assert FASTEST in title and names == ["prior-mean", "beam-4"] and note == beaten_words(1, 0, 2)
    # The best one was still learning on one kind of engine: the other one's rows are compared.
    rows = [*rows[1:], ("student", "beam-4-ctranslate2-int8", 41.0, 2.0), ("lvm", "int8", 41.5, 0.5)]
    title, names, note = first(*rows, unfinished=["student"])
    assert title.startswith("With PyTorch, ") and note.startswith(beaten_words(1, 0, 1))
    assert "other 1: “student” was still learning" in note


def test_what_refinement_gains_is_the_last_fact_of_the_table():
    rows = [("lvm", "prior-mean", 33.0, 1.0), ("lvm", "delta-4", 35.5, 4.0, 0.5)]
    facts = facts_of(*TEACHER, *rows)
    assert [line.name for line in facts[-1].lines] == ["delta-4", "prior-mean", "beam-4"]
    shown = block(facts)
    assert shown.heads[1] == BLEU and shown.heads[-1] == "ms"
    figures = [["35.5", "50.0", "4.00"], ["33.0", "–", "1.00"], ["41.0", "–", "11.0"]]
    assert [list(row[1:]) for row in shown.rows[-3:]] == figures and shown.rows[-1][0] == f"teacher, {BEAM_4}"
    (measured, *_) = facts_of(("teacher", "greedy", 28.0, 7.0), ("lvm", "prior-mean", 24.0, 1.0))
    difference = block([measured]).rows[-1]
    assert difference[1:] == ["[−4.1, −3.9]", "–"] and block([measured]).rows[2][0] == f"teacher, {GREEDY}"


def test_every_seed_must_be_as_good():
    """Seed 2 is lower: the line is not as good, whatever its mean."""
    rows = [
        row(*key, bleu, seed=seed)
        for key, bleus in ((("teacher", "beam-4"), (41.0, 41.0)), (("lvm", "prior-mean"), (42.0, 40.0)))
        for seed, bleu in enumerate(bleus, 1)
    ]
    proof = reports.evidence(rows)
    lines = {line.name: line for group in reports.groups(rows, manifest(seeds=(1, 2)), "none") for line in group.lines}
    prior, beam = lines["prior-mean"], lines["beam-4"]
    assert not proof.as_good(prior, beam) and not proof.as_good(beam, prior)
    low, high = proof.intervals(prior, beam)[main_metric()]
    assert low < -1 and high > 1
    # It is not lower either, with a mean above the other's and one seed in favour of each.
    assert not proof.lower(prior, beam) and not proof.lower(beam, prior)
    level = [values | {"bleu": 41.0} for values in rows]
    assert reports.evidence(level).as_good(prior, beam)
    # A seed that was not compared shows nothing.
    some = {key: value for key, value in reports.evidence(level).pairs.items() if key[0][2] == 1}
    assert not dataclasses.replace(reports.evidence(level), pairs=some).as_good(prior, beam)
