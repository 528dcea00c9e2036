"""Places of labels: apart from points, from each other, inside of the frame."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_src.evaluation.report.placement import MARKER, Label, nearest, place

FRAME = (0.0, 0.0, 500.0, 300.0)
points = st.tuples(st.floats(20, 480), st.floats(20, 280))


def touch(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def around(point):
    return (point[0] - MARKER, point[1] - MARKER, point[0] + MARKER, point[1] + MARKER)


@settings(deadline=None, max_examples=30)
@given(st.lists(points, min_size=1, max_size=9), st.floats(10, 90))
def test_labels_touch_neither_points_nor_each_other(places, width):
    boxes = place([Label(point, width, 9.0) for point in places], places, [], FRAME)
    assert not any(touch(one, other) for one, other in itertools.combinations(boxes, 2))
    assert not any(touch(box, around(point)) for box in boxes for point in places)
    assert all(FRAME[0] <= b[0] and FRAME[1] <= b[1] and b[2] <= FRAME[2] and b[3] <= FRAME[3] for b in boxes)


def test_a_label_alone_stands_beside_its_point_and_a_short_one_above():
    (box,) = place([Label((100.0, 100.0), 40.0, 8.0)], [(100.0, 100.0)], [], FRAME)
    assert box == (107.0, 96.0, 147.0, 104.0)
    (box,) = place([Label((100.0, 100.0), 4.0, 8.0, above=True)], [(100.0, 100.0)], [], FRAME)
    assert box[1] > 100 and box[0] < 100 < box[2]
    # At the right edge there is no room to its right.
    (box,) = place([Label((490.0, 100.0), 40.0, 8.0)], [(490.0, 100.0)], [], FRAME)
    assert box[2] == 483.0


def test_a_label_that_fits_nowhere_else_begins_or_ends_with_the_frame():
    for x in (20.0, 250.0, 480.0):
        (box,) = place([Label((x, 150.0), 450.0, 9.0)], [(x, 150.0)], [], FRAME)
        assert FRAME[0] <= box[0] and box[2] <= FRAME[2] and not touch(box, around((x, 150.0)))


def test_lines_are_avoided_where_that_costs_little():
    line = [(x, 99.0, x + 2, 101.0) for x in range(104, 200, 3)]
    (box,) = place([Label((100.0, 100.0), 40.0, 8.0)], [(100.0, 100.0)], line, FRAME)
    assert not any(touch(box, piece) for piece in line)


def test_a_leader_begins_where_its_label_is_nearest():
    assert nearest((10.0, 10.0, 20.0, 20.0), (0.0, 15.0)) == (10.0, 15.0)
    assert nearest((10.0, 10.0, 20.0, 20.0), (30.0, 0.0)) == (20.0, 10.0)


@pytest.mark.parametrize("away", [(0.0, 6.0), (6.0, 0.0), (3.0, -7.0)])
def test_of_two_points_close_by_each_has_the_nearer_label(away):
    points = [(200.0, 150.0), (200.0 + away[0], 150.0 + away[1])]
    boxes = place([Label(point, 60.0, 9.0) for point in points], points, [], FRAME)
    for number, (x, y) in enumerate(points):
        distances = [np.hypot(*(np.array(nearest(box, (x, y))) - (x, y))) for box in boxes]
        assert distances[number] <= distances[1 - number] + 1e-6
