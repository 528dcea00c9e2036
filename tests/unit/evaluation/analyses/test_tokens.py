"""Edit distance, repetitions and ratios by hand."""

import pytest

from workflow_src.evaluation.analyses.tokens.measure import compare, repetitions


def test_repetitions_are_counted_by_hand():
    assert [repetitions(tokens) for tokens in ([], [1], [1, 1], [1, 1, 1, 2, 2], [1, 2, 1])] == [0, 0, 1, 3, 0]


def test_repetitions_are_counted_relative_to_the_first_outputs():
    first = [[1, 1, 1], [2, 2, 3], [4, 5, 6]]
    refined = [[1, 1, 2], [2, 3, 3], [4, 4, 6]]
    figures = compare(first, refined, 4)
    assert figures["steps"] == 4
    assert figures["repetitions"] == 1.0
    assert figures["relative_repetitions"] == 1.0
    assert (figures["edit_distance"], figures["changed"]) == (1.0, 1.0)
    assert compare([[1, 2]], [[2, 1]], 4)["edit_distance"] == 2
    # Residuals of the ratio 3 / 3: -1, 0, 1; their sum of squares times 3 / 2, its root over the total of 3.
    assert figures["relative_repetitions_error"] == pytest.approx(3**0.5 / 3)
    assert compare(first, first, 0)["relative_repetitions_error"] == 0
    assert figures["edit_distance_error"] == pytest.approx(0)


def test_without_repetitions_there_is_no_ratio():
    figures = compare([[1, 2]], [[1, 1]], 1)
    assert figures["relative_repetitions"] is None and figures["relative_repetitions_error"] is None
    assert figures["repetitions"] == 1
