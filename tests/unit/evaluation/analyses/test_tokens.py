"""Edit distance against the textbook's recurrence; repetitions and ratios by hand."""

import functools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.evaluation.analyses.tokens.measure import compare, repetitions

SENTENCE = st.lists(st.integers(0, 70000), max_size=7) | st.lists(st.integers(0, 2), max_size=7)


def distance(a, b):
    @functools.cache
    def between(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(between(i - 1, j) + 1, between(i, j - 1) + 1, between(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return between(len(a), len(b))


@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=4))
def test_edit_distance_is_that_of_the_recurrence(pairs):
    first, refined = zip(*pairs, strict=True)
    distances = [distance(a, b) for a, b in pairs]
    figures = compare(first, refined, 1)
    assert figures["edit_distance"] == pytest.approx(statistics.fmean(distances))
    assert figures["changed"] == pytest.approx(sum(a != b for a, b in pairs) / len(pairs))
    same = compare(first, first, 0)
    assert same["edit_distance"] == same["changed"] == 0


def test_repetitions_are_counted_by_hand():
    assert [repetitions(tokens) for tokens in ([], [1], [1, 1], [1, 1, 1, 2, 2], [1, 2, 1])] == [0, 0, 1, 3, 0]


def test_repetitions_are_counted_relative_to_the_first_outputs():
    first = [[1, 1, 1], [2, 2, 3], [4, 5, 6]]
    refined = [[1, 1, 2], [2, 3, 3], [4, 4, 6]]
    figures = compare(first, refined, 4)
    assert figures["steps"] == 4
    assert figures["repetitions"] == 1.0
    assert figures["relative_repetitions"] == 1.0
    # Residuals of the ratio 3 / 3: -1, 0, 1; their sum of squares times 3 / 2, its root over the total of 3.
    assert figures["relative_repetitions_error"] == pytest.approx(3**0.5 / 3)
    assert compare(first, first, 0)["relative_repetitions_error"] == 0
    assert figures["edit_distance_error"] == pytest.approx(0)


def test_without_repetitions_there_is_no_ratio():
    figures = compare([[1, 2]], [[1, 1]], 1)
    assert figures["relative_repetitions"] is None and figures["relative_repetitions_error"] is None
    assert figures["repetitions"] == 1
