"""Counts of pairs that are left out, in words: none is ever hidden."""

from hypothesis import given
from hypothesis import strategies as st

from workflow_src.data.drops import REASONS, left_out, words

REASON = st.sampled_from([*REASONS, "a reason of later"])


@given(st.dictionaries(REASON, st.integers(0, 10**6)))
def test_every_count_is_reported_once(dropped):
    counted = [int(part.split(" ")[0].replace(",", "")) for part in words(dropped).split(", ") if part != "none"]
    assert sorted(counted) == sorted(count for count in dropped.values() if count)
    assert left_out(dropped) == (f" (left out: {words(dropped)})" if counted else "")


def test_reasons_come_in_the_order_in_which_pairs_meet_them():
    assert words({"limit": 1, "empty": 2000, "markup": 3}) == "3 markup, 2,000 empty, 1 beyond limits"
