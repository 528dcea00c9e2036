"""Whether a training was still improving at its end, by the rule, and in the table of systems."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.evaluation.report import trained


def history(*bleu, interval=100, key="dev_bleu"):
    return [{"step": interval * number, key: value} for number, value in enumerate(bleu, 1)]


def test_next_to_no_bleu_is_no_end_of_learning():
    """A teacher of 0.04 BLEU whose curve is flat."""
    flat = history(0.0, 0.02, 0.04, 0.03, 0.03)
    assert trained.gain_words(flat) == "hardly learnt (0.04)"
    # As much as reports conclude something from.
    assert trained.gain_words(history(5.0, 5.0)) == "no (+0.0)" and trained.gain_words(history(4.9, 4.9)).startswith(
        "hardly"
    )


def test_a_rise_in_the_last_fifth_is_an_improvement():
    rising, flat = history(5.0, 20.0, 30.0, 35.0, 37.5), history(5.0, 30.0, 36.0, 36.8, 37.5)
    assert trained.last_gain(rising) == 2.5
    assert trained.gain_words(rising) == "yes (+2.5)"
    assert trained.gain_words(flat) == "no (+0.7)"
    assert trained.gain_words(history(30.0, 29.98)) == "no (+0.0)"
    # A best that came earlier, whatever the last validation is.
    assert trained.gain_words(history(5.0, 38.0, 30.0, 35.0, 37.5)) == "no (−0.5)"


def test_the_mean_of_weights_is_no_progress():
    validations = history(5.0, 30.0, 36.0, 36.4, 36.5)
    assert not trained.cut_short([*validations, {"step": 500, "dev_bleu": 39.0, "averaged": 5}])


def test_what_its_validations_do_not_show_is_not_reported():
    nan, none = float("nan"), None
    for unknown in ([], history(30.0), history(1.0, 2.0, key="dev_loss"), history(nan, nan), history(none, 5.0)):
        assert trained.last_gain(unknown) is None
        assert trained.gain_words(unknown) == "–"


@given(st.lists(st.floats(0, 100), min_size=2, max_size=30))
def test_the_gain_is_that_of_the_best_over_the_best_before(bleu):
    """Against the definition, one validation at a time."""
    validations, total = history(*bleu), 100 * len(bleu)
    earlier = [entry["dev_bleu"] for entry in validations if 5 * entry["step"] <= 4 * total]
    late = [entry["dev_bleu"] for entry in validations if 5 * entry["step"] > 4 * total]
    assert trained.last_gain(validations) == max(late) - max(earlier)
    # More validations than enough, none better, change nothing.
    assert trained.last_gain([*validations, {"step": total, "dev_bleu": min(late)}]) == trained.last_gain(validations)


@pytest.mark.parametrize(
    ("validations", "cut"),
    [
        # The last fifth of the updates: those after step 800 of 1,000.
        (history(10, 20, 25, 28, 29, 29.5, 29.7, 29.8, 30.2, 30.8), False),
        (history(10, 20, 25, 28, 29, 29.5, 29.7, 29.8, 30.2, 30.9), True),
        # Two validations: what the second half added.
        (history(20, 20.5), False),
        (history(20, 24), True),
        # A training whose BLEU falls again is not improving.
        (history(10, 30, 29, 28, 27), False),
        # Too short; not trained; counted at once.
        (history(3), True),
        ([{"step": 0, "dev_bleu": 30.0}], False),
        ([{"step": 0, "perplexity": 30.0}], False),
        ([], False),
    ],
)
def test_a_training_was_cut_short_where_its_last_fifth_still_added_bleu(validations, cut):
    assert trained.cut_short(validations) is cut
