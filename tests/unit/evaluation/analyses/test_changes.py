"""Changed words against brute force over all subsequences."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from workflow_src.evaluation.analyses.inputs import count_changes
from workflow_src.evaluation.document import changed_words

words = st.lists(st.sampled_from("abc"), max_size=6)


def _longest_common(before: list[str], after: list[str]) -> int:
    def subsequences(sequence):
        return {c for n in range(len(sequence) + 1) for c in combinations(sequence, n)}

    return max(len(common) for common in subsequences(before) & subsequences(after))


@given(words, words)
def test_kept_words_are_a_longest_common_subsequence(before, after):
    unchanged = [word for word, changed in zip(after, changed_words(before, after), strict=True) if not changed]
    rest = iter(before)
    assert all(word in rest for word in unchanged)
    assert len(unchanged) == _longest_common(before, after)


@given(words, words)
def test_count_is_of_words_outside_of_a_longest_common_subsequence(before, after):
    expected = max(len(before), len(after)) - _longest_common(before, after)
    assert count_changes(" ".join(before), " ".join(after)) == expected
