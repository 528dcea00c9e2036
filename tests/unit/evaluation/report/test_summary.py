"""The summary: its first point, and cases without points."""

from __future__ import annotations

import pytest
import reports
from reports import manifest, row
from titles import BEAM, BEAM_4, BLEU, CTRANSLATE2, DELTA, DELTA_1, GREEDY, VALID

from workflow_src.evaluation.report import evidence
from workflow_src.evaluation.report.summary import NO_TRADE, beaten_words, summary
from workflow_src.evaluation.report.tables import groups
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN

TEACHER = (("teacher", "greedy", 39.0, 7.0), ("teacher", "beam-4", 41.0, 11.0))
DECODES = reports.DECODES | {("lvm", "int8"): {"search": "prior-mean", "engine": "onnxruntime", "compute_type": "int8"}}


def points(*rows, different=(), validity=None, **options) -> list[str]:
    """The points of rows (system, name, BLEU, milliseconds[, validity])."""
    timed_rows = [
        row(*values[:3], latency_ms=values[3], validity=values[4] if len(values) > 4 else None) for values in rows
    ]
    proof = reports.evidence(timed_rows, different, **options | ({} if validity is None else {"validity": validity}))
    return summary(groups(timed_rows, manifest(DECODES), "none", proof), proof, None)


def summary_text(*rows, **options) -> str:
    return " ".join(points(*rows, **options))


def test_the_fastest_row_as_good_as_every_autoregressive_one_comes_first():
    # 40.9 is not significantly below 41.0; 36.0 is significantly below both.
    rows = [*TEACHER, ("lvm", "prior-mean", 41.5, 3.0), ("lvm", "delta-1", 40.9, 2.5), ("lvm", "delta-2", 36.0, 1.0)]
    lower = [("delta-2", "greedy"), ("delta-2", "beam-4")]
    sentences = points(*rows, different=lower)
    assert len(sentences) == 3
    assert sentences[0] == (
        f"The fastest non-autoregressive row as good as every autoregressive one, with PyTorch: “lvm”, {DELTA_1}, "
        f"40.9 {BLEU} in 2.5 ms a sentence, beside “teacher”, {BEAM_4}, 41.0 {BLEU} in 11 ms (p = 0.5)."
    )
    assert sentences[1].startswith("Of two autoregressive rows that were timed, two have a faster")


def test_a_row_that_is_slower_than_the_best_autoregressive_one_does_not_lead():
    rows = [("teacher", "greedy", 47.0, 1.0), ("teacher", "beam-4", 48.0, 1.8), ("lvm", "prior-mean", 49.0, 5.0)]
    sentences = points(*rows)
    assert sentences == [NO_TRADE, beaten_words(0, 2)]


def test_a_row_that_the_test_finds_lower_is_not_as_good():
    """24.0 beside 28.0 with p = 0.001, though a slower row has no fewer BLEU than greedy search."""
    rows = [("teacher", "greedy", 28.0, 7.0), ("lvm", "prior-mean", 24.0, 1.0)]
    sentences = points(*rows, different=[("prior-mean", "greedy")])
    assert (
        sentences[0]
        == "No non-autoregressive row is faster than an autoregressive one and as good, on the same kind of engine."
    )
    assert sentences[1] == beaten_words(0, 1)


def test_where_none_is_as_good_as_all_the_largest_gain_at_equal_quality_comes_first():
    rows = [*TEACHER, ("lvm", "prior-mean", 38.8, 2.0), ("lvm", "delta-1", 38.9, 4.0)]
    lower = [("prior-mean", "beam-4"), ("delta-1", "beam-4")]
    text = summary_text(*rows, different=lower)
    assert text.startswith(
        f"The largest gain at equal quality, with PyTorch: “lvm”, {PRIOR_MEAN.title}, 38.8 {BLEU} in 2 ms a sentence, "
        f"beside “teacher”, {GREEDY}, 39.0 {BLEU} in 7 ms (p = 0.5); 3.5 times as fast."
    )
    assert beaten_words(1, 2) in text


def test_fewer_valid_outputs_are_not_as_good():
    """48.1 against 48.0 BLEU, 44.1 % valid outputs against 50.4 %."""
    rows = [("teacher", "beam-4", 48.0, 5.6, 0.504), ("lvm", "prior-mean", 48.1, 1.8, 0.441)]
    assert points(*rows, validity=0.001)[0] == NO_TRADE
    equal = summary_text(*rows, validity=0.3)
    assert f"48.1 {BLEU} with 44.1 % valid outputs in 1.8 ms" in equal and f"(p = 0.5, of {VALID} = 0.3)" in equal


def test_engines_of_different_kinds_are_not_compared():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "int8", 41.5, 0.5)]
    assert points(*rows)[0] == NO_TRADE
    other_engine = ("teacher", "beam-4-ctranslate2-int8", 41.0, 2.0)
    text = summary_text(*rows, other_engine)
    assert text.startswith(
        "The fastest non-autoregressive row as good as every autoregressive one, with optimised engines (int8): “lvm”"
    )
    assert f"{BEAM_4}, {CTRANSLATE2} int8, 41.0 {BLEU} in 2 ms" in text
    assert beaten_words(1, 2) in text


def test_nothing_is_concluded_below_5_bleu_from_trainings_cut_short_or_few_sentences():
    rows = [("teacher", "beam-4", 41.0, 11.0), ("lvm", "prior-mean", 42.0, 1.0), ("lvm", "delta-1", 42.5, 2.0)]
    start = "Nothing is concluded about equal quality: "
    assert points(*rows, unfinished=["teacher"]) == [f"{start}“teacher” was still learning when its training ended."]
    assert points(*rows, unfinished=["lvm"]) == [f"{start}“lvm” was still learning when its training ended."]
    low = [("teacher", "beam-4", 1.0, 11.0), ("lvm", "prior-mean", 1.0, 1.0)]
    assert points(*low) == [f"{start}“teacher” has less than 5 {BLEU}."]
    assert summary_text(*rows, sentences=8).startswith(f"{start}8 test sentences hardly")


def test_rows_that_are_beaten_are_counted_in_words():
    assert beaten_words(0, 2).startswith("Of two autoregressive rows that were timed, none has")
    assert beaten_words(1, 2).startswith("Of two autoregressive rows that were timed, one has")


def test_a_row_as_slow_as_its_rival_does_not_beat_it():
    assert beaten_words(0, 2) in points(*TEACHER, ("lvm", "prior-mean", 39.0, 11.0))


def test_without_times_there_is_no_trade():
    assert "autoregressive rows" not in summary_text(
        ("teacher", "beam-4", 41.0, None), ("lvm", "prior-mean", 41.5, None)
    )


def test_what_refinement_gains_is_the_last_point():
    rows = [*TEACHER, ("lvm", "prior-mean", 33.0, 1.0), ("lvm", "delta-4", 35.5, 4.0)]
    timed_rows = [row(*values[:3], latency_ms=values[3], speedup=11.0 / values[3]) for values in rows]
    proof = reports.evidence(timed_rows)
    sentences = summary(groups(timed_rows, manifest(DECODES), "none", proof), proof, None)
    assert sentences[-1] == (
        f"Refined by {DELTA} with four steps: 35.5 {BLEU}, 2.5 {BLEU} more than the {PRIOR_MEAN.title} and 5.5 less "
        f"than {BEAM} search, in 0.36 of its time."
    )


def log(*bleus, interval=100):
    return [{"step": interval * number, "dev_bleu": bleu} for number, bleu in enumerate(bleus, 1)]


@pytest.mark.parametrize(
    ("history", "cut"),
    [
        # The last fifth of the updates: those after step 800 of 1,000.
        (log(10, 20, 25, 28, 29, 29.5, 29.7, 29.8, 30.2, 30.8), False),
        (log(10, 20, 25, 28, 29, 29.5, 29.7, 29.8, 30.2, 30.9), True),
        # Two validations: what the second half added.
        (log(20, 20.5), False),
        (log(20, 24), True),
        # A training whose BLEU falls again is not improving.
        (log(10, 30, 29, 28, 27), False),
        # Too short; not trained; counted at once.
        (log(3), True),
        ([{"step": 0, "dev_bleu": 30.0}], False),
        ([{"step": 0, "perplexity": 30.0}], False),
        ([], False),
    ],
)
def test_a_training_was_cut_short_where_its_last_fifth_still_added_bleu(history, cut):
    assert evidence.cut_short(history) is cut


def test_p_values_of_several_seeds_are_all_asked():
    """Seed 2 is significantly lower: the line is not as good, whatever its mean."""
    rows = [
        row(*key, bleu, seed=seed)
        for key, bleu in ((("teacher", "beam-4"), 41.0), (("lvm", "prior-mean"), 40.0))
        for seed in (1, 2)
    ]
    proof = reports.evidence(rows)
    lines = {line.name: line for group in groups(rows, manifest(seeds=(1, 2)), "none") for line in group.lines}
    prior, beam = lines["prior-mean"], lines["beam-4"]
    assert proof.as_good(prior, beam) and proof.as_good(beam, prior)
    spoiled = {key: {"bleu": 0.04} if key[0][2] == 2 else value for key, value in proof.pairs.items()}
    proof = evidence.Evidence.of(rows, spoiled, (), 1000)
    assert not proof.as_good(prior, beam) and proof.as_good(beam, prior)
