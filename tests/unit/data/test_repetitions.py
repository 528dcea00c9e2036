"""Removing repetitions, against itertools.groupby and a regular expression."""

import re
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from workflow_src.data.repetitions import collapse, collapse_repetitions

numbers = st.lists(st.integers(0, 3), max_size=12)


@given(numbers, st.sets(st.integers(0, 3)))
def test_runs_become_one_unless_they_are_kept(items, keep):
    expected = [item for key, run in groupby(items) for item in (list(run) if key in keep else [key])]
    assert collapse(items, keep) == expected
    assert collapse(expected, keep) == expected
    assert collapse(items) == [key for key, _ in groupby(items)]


@given(st.lists(st.sampled_from(["a", "b", "A", "ba"]), max_size=8).map(" ".join))
def test_words_agree_with_groupby_and_regular_expression(text):
    collapsed = collapse_repetitions(text)
    assert collapsed.split() == [word for word, _ in groupby(text.split())]
    assert collapsed == re.sub(r"(?<!\S)(\S+)(?: \1(?!\S))+", r"\1", text)
    assert collapse_repetitions(collapsed) == collapsed
