"""The summary: its first point, and cases without points."""

from __future__ import annotations

import reports
from reports import manifest, row
from titles import BEAM_4, BLEU, CTRANSLATE2, DELTA_1, GREEDY, VALID

from workflow_src.evaluation.report import evidence
from workflow_src.evaluation.report.summary import beaten_words, summary
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN

TEACHER = (("teacher", "greedy", 39.0, 7.0), ("teacher", "beam-4", 41.0, 11.0))
DECODES = reports.DECODES | {("lvm", "int8"): {"search": "prior-mean", "engine": "onnxruntime-int8"}}


def points(*rows, **options) -> list[str]:
    """The points of rows (system, name, BLEU, milliseconds[, validity])."""
    timed_rows = [
        row(*values[:3], latency_ms=values[3], validity=values[4] if len(values) > 4 else None) for values in rows
    ]
    proof = reports.evidence(timed_rows, **options)
    return summary(reports.groups(timed_rows, manifest(DECODES), "none", proof), proof)


BEST, FASTEST = "the best non-autoregressive row is ", "the fastest non-autoregressive row as good as every "
UNTOLD = "neither shown to be as good as nor to be lower than"


def test_the_fastest_row_as_good_as_every_autoregressive_one_comes_first():
    """40.9 is as good as 41.0 where the standard error is 0.05; 36.0 is lower than both."""
    rows = [*TEACHER, ("lvm", "prior-mean", 41.5, 3.0), ("lvm", "delta-1", 40.9, 2.5), ("lvm", "delta-2", 36.0, 1.0)]
    first, beaten, _ = points(*rows)
    assert first.startswith(f"With PyTorch, {FASTEST}") and beaten == beaten_words(2, 0, 2)
    for shown in (f"“lvm”, {DELTA_1} (40.9 {BLEU} in 2.5 ms)", f"“teacher”, {BEAM_4} (41.0 {BLEU} in 11 ms)"):
        assert shown in first
    # Four other rows: 0.0125 of each interval are outside, 2.498 standard errors from its middle.
    assert f"between −0.2 and +0.0 {BLEU}" in first


def test_few_sentences_make_nothing_equal():
    """The same figures with a large error."""
    rows = [*TEACHER, ("lvm", "prior-mean", 41.5, 3.0), ("lvm", "delta-1", 40.9, 2.5)]
    first, beaten, *_ = points(*rows, error=2.0)
    assert first.startswith(f"With PyTorch, {BEST}“lvm”, {PRIOR_MEAN.title} (41.5 {BLEU} in 3 ms), {UNTOLD}")
    assert f"“teacher”, {BEAM_4} (41.0 {BLEU} in 11 ms); difference between " in first
    assert beaten == beaten_words(0, 2, 2)


def test_the_more_rows_are_looked_at_the_more_a_difference_needs():
    """0.3 below with a standard error of 0.09: 2.2 of them above the margin, which is enough for one row, not for 9."""
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 40.7, 1.0)]
    others = [("lvm", name, 30.0, 5.0) for name in ("delta-1", "delta-2", "delta-4")]
    others += [("lvm-raw", name, 30.0, 5.0) for name in ("prior-mean", "delta-1", "delta-2", "delta-4")]
    assert FASTEST in points(*rows, error=0.09)[0]
    assert UNTOLD in points(*rows, *others, error=0.09)[0]


def test_a_row_that_is_slower_than_the_best_autoregressive_one_does_not_lead():
    rows = [("teacher", "greedy", 47.0, 1.0), ("teacher", "beam-4", 48.0, 1.8), ("lvm", "prior-mean", 49.0, 5.0)]
    first, beaten = points(*rows)
    assert BEST in first and "as good as the best" in first and beaten == beaten_words(0, 0, 2)


def test_where_none_is_as_good_as_all_the_largest_gain_at_equal_quality_comes_first():
    rows = [*TEACHER, ("lvm", "prior-mean", 38.8, 2.0), ("lvm", "delta-1", 38.9, 4.0)]
    first, beaten, *_ = points(*rows)
    assert (
        f"is “lvm”, {PRIOR_MEAN.title} (38.8 {BLEU} in 2 ms), 3.5 times as fast as “teacher”, {GREEDY} (39.0" in first
    )
    assert f"between −0.3 and −0.1 {BLEU}" in first and beaten == beaten_words(1, 0, 2)


def test_fewer_valid_outputs_are_not_as_good():
    """48.1 against 48.0 BLEU, 44.1 % valid outputs against 50.4 %."""
    rows = [("teacher", "beam-4", 48.0, 5.6, 0.504), ("lvm", "prior-mean", 48.1, 1.8, 0.441)]
    assert points(*rows)[1] == beaten_words(0, 0, 1)
    equal = points(rows[0], ("lvm", "prior-mean", 48.1, 1.8, 0.503))[0]
    assert f"48.1 {BLEU} with 50.3 % {VALID} in 1.8 ms" in equal and FASTEST in equal
    # Where the test set cannot tell it of one figure, it cannot tell it of the row.
    assert beaten_words(0, 1, 1) in points(rows[0], ("lvm", "prior-mean", 49.9, 1.8, 0.503), error=0.5)


def test_the_margin_is_the_experiments():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 40.2, 1.0)]
    assert beaten_words(0, 0, 1) in points(*rows) and beaten_words(1, 0, 1) in points(*rows, margin=1.0)


def test_engines_of_different_kinds_are_not_compared():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "int8", 41.5, 0.5)]
    facts, beaten = points(*rows)
    assert facts.startswith("On different engines, ") and beaten == beaten_words(0, 0, 1)
    first, beaten = points(*rows, ("teacher", "beam-4-ctranslate2-int8", 41.0, 2.0))
    assert first.startswith(f"With optimised engines (int8), {FASTEST}") and beaten == beaten_words(1, 0, 2)
    assert f"{BEAM_4}, {CTRANSLATE2} int8 (41.0 {BLEU} in 2 ms)" in first


def test_nothing_is_concluded_below_5_bleu_and_from_trainings_cut_short_beside_the_tables_facts():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 42.0, 1.0), ("lvm", "delta-1", 42.5, 2.0)]
    for name in ("teacher", "lvm"):
        (facts,) = points(*rows, unfinished=[name])
        assert f"{BEST}“lvm”, {DELTA_1}" in facts and "as good" not in facts and "difference" not in facts
        assert facts.endswith(f"nothing is concluded: “{name}” was still learning when its training ended.")
    (facts,) = points(("teacher", "beam-4", 1.0, 11.0), ("lvm", "prior-mean", 1.5, 1.0))
    assert facts.endswith(f"nothing is concluded: “teacher” has less than 5 {BLEU}.")


def test_what_refinement_gains_is_the_last_point():
    rows = [*TEACHER, ("lvm", "prior-mean", 33.0, 1.0), ("lvm", "delta-4", 35.5, 4.0)]
    sentences = points(*rows)
    assert len(sentences) == 3
    shown = [f"“lvm”, delta, L = 4 (35.5 {BLEU} in 4 ms)", f"“lvm”, {PRIOR_MEAN.title} (33.0 {BLEU} in 1 ms)"]
    shown.append(f"“teacher”, {BEAM_4} (41.0 {BLEU} in 11 ms)")
    assert [sentences[-1].index(text) for text in shown] == sorted(sentences[-1].index(text) for text in shown)


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
    level = [values | {"bleu": 41.0} for values in rows]
    assert reports.evidence(level).as_good(prior, beam)
    # A seed that was not compared shows nothing.
    some = {key: value for key, value in reports.evidence(level).pairs.items() if key[0][2] == 1}
    assert not evidence.Evidence.of(reports.results(level).figures, some, 0.5).as_good(prior, beam)
