"""The summary: which trade it names first, and how many autoregressive rows are beaten."""

from __future__ import annotations

from tests.reports import manifest, row
from workflow_src.evaluation.report.summary import summary
from workflow_src.evaluation.report.tables import groups


def told(*rows) -> str:
    """The summary of rows (system, name, BLEU, milliseconds)."""
    made = [row(system, name, bleu, latency_ms=ms) for system, name, bleu, ms in rows]
    return " ".join(summary(groups(made, manifest(), "none"), None))


TEACHER = (("teacher", "greedy", 39.0, 7.0), ("teacher", "beam-4", 41.0, 11.0))


def test_the_fastest_row_as_good_as_every_autoregressive_one_comes_first():
    text = told(
        *TEACHER, ("lvm", "prior-mean", 41.5, 3.0), ("lvm", "delta-1", 41.0, 2.5), ("lvm", "delta-2", 40.9, 1.0)
    )
    start = (
        "The fastest row that is as good as every autoregressive one: “lvm”, delta, L = 1 reaches 41.0 BLEU in 2.5 ms"
    )
    assert text.startswith(start)
    assert "The best autoregressive row (“teacher”, beam 4) reaches 41.0 BLEU in 11 ms." in text
    # 40.9 in 1 ms against beam 4 in 11 ms.
    assert "The largest gain at equal quality: “lvm”, delta, L = 2 reaches 40.9 BLEU in 1 ms a sentence, 11.00" in text
    assert "Of 2 autoregressive rows that were timed, 2 have" in text


def test_where_none_is_as_good_the_largest_gain_at_equal_quality_comes_first():
    # 40.0 in 4.0 ms: beam 4 is as good, 2.75 times; 38.0 in 2.0 ms: greedy is as good, 3.5 times.
    text = told(*TEACHER, ("lvm", "prior-mean", 38.0, 2.0), ("lvm", "delta-1", 40.0, 4.0))
    start = (
        "The largest gain at equal quality: “lvm”, prior mean reaches 38.0 BLEU in 2 ms a sentence, 3.50 times as fast"
    )
    assert text.startswith(start)
    assert "at least as good (teacher, greedy)." in text
    # Greedy search has delta beside it, beam search has none.
    assert "Of 2 autoregressive rows that were timed, 1 have" in text


def test_a_row_as_slow_as_its_rival_does_not_beat_it():
    assert "2 autoregressive rows that were timed, 0 have" in told(*TEACHER, ("lvm", "prior-mean", 39.0, 7.0))


def test_without_times_there_is_no_trade():
    assert "autoregressive rows" not in told(("teacher", "beam-4", 41.0, None), ("lvm", "prior-mean", 41.5, None))
