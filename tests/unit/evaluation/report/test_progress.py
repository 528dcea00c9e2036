"""Whether a training was still improving at its end, by the rule, and in the table of systems."""

from hypothesis import given
from hypothesis import strategies as st

from workflow_src.evaluation.report import progress


def history(*bleu, interval=100, key="dev_bleu"):
    return [{"step": interval * number, key: value} for number, value in enumerate(bleu, 1)]


def words_of(validations):
    return progress.gain_words(progress.last_gain(validations), progress.best_bleu(validations))


def test_next_to_no_bleu_is_no_end_of_learning():
    """A teacher of 0.04 BLEU whose curve is flat."""
    flat = history(0.0, 0.02, 0.04, 0.03, 0.03)
    assert not progress.still_improving(flat) and words_of(flat) == "hardly learnt (0.04)"
    advice = progress.advice([("teacher", flat), ("b", history(30.0, 30.0)), ("c", history(5.0, 30.0))])
    assert "teacher hardly learnt" in advice and "None was" not in advice
    assert "Raise training.max_steps of c for a better result." in advice
    # As much as reports conclude something from.
    assert words_of(history(5.0, 5.0)) == "no (+0.0)" and words_of(history(4.9, 4.9)).startswith("hardly")


def test_a_rise_in_the_last_fifth_is_an_improvement():
    rising, flat = history(5.0, 20.0, 30.0, 35.0, 37.5), history(5.0, 30.0, 36.0, 36.8, 37.5)
    assert progress.last_gain(rising) == 2.5 and progress.still_improving(rising)
    assert words_of(rising) == "yes (+2.5)"
    assert not progress.still_improving(flat) and words_of(flat) == "no (+0.7)"
    assert words_of(history(30.0, 29.98)) == "no (+0.0)"
    # A best that came earlier, whatever the last validation is.
    assert words_of(history(5.0, 38.0, 30.0, 35.0, 37.5)) == "no (−0.5)"


def test_one_bad_validation_at_the_end_hides_no_rise():
    bleu = [10.0 + number for number in range(20)]
    assert progress.still_improving(history(*bleu)) and progress.still_improving(history(*bleu, 0.0))


def test_the_mean_of_weights_is_no_progress():
    validations = history(5.0, 30.0, 36.0, 36.4, 36.5)
    assert not progress.still_improving([*validations, {"step": 500, "dev_bleu": 39.0, "averaged": 5}])


def test_what_its_validations_do_not_show_is_not_reported():
    nan, none = float("nan"), None
    for unknown in ([], history(30.0), history(1.0, 2.0, key="dev_loss"), history(nan, nan), history(none, 5.0)):
        assert progress.last_gain(unknown) is None and progress.still_improving(unknown) is None
        assert words_of(unknown) == "–"
    assert progress.advice([("lm", [])]) == ""


@given(st.lists(st.floats(0, 100), min_size=2, max_size=30))
def test_the_gain_is_that_of_the_best_over_the_best_before(bleu):
    """Against the definition, one validation at a time."""
    validations, total = history(*bleu), 100 * len(bleu)
    earlier = [entry["dev_bleu"] for entry in validations if 5 * entry["step"] <= 4 * total]
    late = [entry["dev_bleu"] for entry in validations if 5 * entry["step"] > 4 * total]
    assert progress.last_gain(validations) == max(late) - max(earlier)
    # More validations than enough, none better, change nothing.
    assert progress.last_gain([*validations, {"step": total, "dev_bleu": min(late)}]) == progress.last_gain(validations)


def test_advice_names_every_system_once():
    rising, flat = history(5.0, 30.0), history(30.0, 30.0)
    seeds = [("a", rising), ("b", flat), ("c", rising), ("a", rising), ("lm", [])]
    assert progress.advice(seeds).endswith("Raise training.max_steps of a and c for a better result.")
    assert progress.advice([*seeds, ("d", rising)]).endswith("of a, c and d for a better result.")
    assert progress.advice([("b", flat)]) == f"{progress.RULE} None was."
    assert "its last 20 % of updates is more than 1 above" in progress.RULE
