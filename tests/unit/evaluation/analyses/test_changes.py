"""Changed words against brute force over all subsequences."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from workflow_src.evaluation.analyses.changes import changed_words, count_changes

words = st.lists(st.sampled_from("abc"), max_size=6)


def _longest_common(before: list[str], after: list[str]) -> int:
    def subsequences(sequence):
        return {c for n in range(len(sequence) + 1) for c in combinations(sequence, n)}

    return max(len(common) for common in subsequences(before) & subsequences(after))


@given(words, words)
def test_kept_words_are_a_longest_common_subsequence(before, after):
    kept = [word for word, changed in zip(after, changed_words(before, after), strict=True) if not changed]
    rest = iter(before)
    assert all(word in rest for word in kept)
    assert len(kept) == _longest_common(before, after)


@given(words, words)
def test_count_is_zero_exactly_for_equal_words_and_symmetric(before, after):
    one, other = " ".join(before), " ".join(after)
    assert (count_changes(one, other) == 0) == (before == after)
    assert count_changes(one, other) == count_changes(other, one)


def test_example():
    assert changed_words("the cat cat sleeps".split(), "the old cat sleeps".split()) == [False, True, False, False]
    assert count_changes("the cat cat sleeps", "the old cat sleeps") == 1
    assert count_changes("a b c", "") == 3
