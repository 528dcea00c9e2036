"""Places of lines: what was added comes back, in as few runs as there are."""

from hypothesis import given
from hypothesis import strategies as st

from workflow_src.data.raw import Places

NAMES = st.sampled_from([("a.de", "a.en"), ("b.de", "b.en"), ("t.tsv", "t.tsv")])


@given(st.lists(st.tuples(NAMES, st.integers(1, 6))))
def test_places_come_back(entries):
    places = Places()
    for names, number in entries:
        places.add(names, number)
    copy = Places(places.runs)
    assert [copy.of(row) for row in range(len(entries))] == entries
    breaks = [
        row
        for row, (names, number) in enumerate(entries)
        if row == 0 or (names, number - 1) != (entries[row - 1][0], entries[row - 1][1])
    ]
    assert [run[0] for run in places.runs] == breaks
