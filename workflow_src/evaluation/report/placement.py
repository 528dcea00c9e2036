"""Where labels of points stand in a picture, so that they touch neither points nor each other. Everything in points."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

# Left, bottom, right, top.
Box = tuple[float, float, float, float]
Point = tuple[float, float]

# From a point to a label beside it, and to one above or below; half of the width of a marker.
BESIDE, ABOVE, MARKER = 7.0, 5.0, 4.0
# A label farther from its point than this is joined with it.
NEAR = 12.0
# What a label costs that touches a point, a label, or the frame; a piece of a line; what its leader crosses; and one
# that is nearer to another point than to its own. One point of distance costs 1.
TOUCHED, CROSSED_LINE, CROSSED_LABEL, CROSSED_POINT, MISTAKEN = 1000.0, 8.0, 60.0, 25.0, 30.0
# Labels are placed again, one after the other, as long as one finds a better place, at most so often.
ROUNDS = 12


@dataclasses.dataclass(frozen=True)
class Label:
    """A label to be placed: the point that it names and its size. `above`: rather above or below than beside it."""

    point: Point
    width: float
    height: float
    above: bool = False


def candidates(label: Label, frame: Box) -> np.ndarray:
    """Places for a label (N, 4) as boxes within the frame, if any is, and those beside its point."""
    x, y = label.point
    up = [0.0, *(sign * away for away in np.arange(9, 100, 5.5) for sign in (1, -1))]
    found = []
    for dy, shift in itertools.product(up, (0.0, 10.0, 22.0, 40.0)):
        gap = (BESIDE if abs(dy) < 8 else ABOVE) + shift
        lefts = [x + gap, x - gap - label.width]
        if abs(dy) >= 8 and shift == 0:
            lefts.append(x - label.width / 2)
            # A long label fits where it begins or ends with the frame.
            lefts.append(min(max(x - label.width / 2, frame[0]), frame[2] - label.width))
        bottom = y + dy - label.height / 2
        found += [(left, bottom, left + label.width, bottom + label.height) for left in lefts]
    boxes = np.array(found)
    inside = (boxes[:, :2] >= np.array(frame[:2])).all(1) & (boxes[:, 2:] <= np.array(frame[2:])).all(1)
    return boxes[inside] if inside.any() else boxes[:2]


def overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which of boxes (N, 4) touch which of others (M, 4): (N, M)."""
    a, b = boxes[:, None], others[None]
    return (a[..., :2] < b[..., 2:]).all(-1) & (b[..., :2] < a[..., 2:]).all(-1)


def nearest(box: Sequence[float], point: Point) -> Point:
    """The point of a box that is nearest to another point: where its leader begins."""
    x, y = np.clip(point[0], box[0], box[2]), np.clip(point[1], box[1], box[3])
    return float(x), float(y)


def crossed(start: np.ndarray, end: Point, boxes: np.ndarray) -> np.ndarray:
    """How many boxes (M, 4) the straight lines from starts (N, 2) to an end cross, looked at in 24 places: (N,)."""
    if not len(boxes):
        return np.zeros(len(start))
    share = np.linspace(0, 1, 24)[None, :, None]
    places = start[:, None] * (1 - share) + np.array(end) * share
    a, b = places[:, :, None], boxes[None, None]
    return ((a > b[..., :2]) & (a < b[..., 2:])).all(-1).any(1).sum(-1)


def place(labels: Sequence[Label], points: Iterable[Point], lines: Sequence[Box], frame: Box) -> list[Box]:
    """A box for each label, where it touches no point, no other label, and as little as may be of the lines.

    `points` are the centres of all markers, `lines` small boxes along the lines that are drawn. Labels touch only where
    the frame has no room for all of them within reach of their points.
    """
    markers = _boxes([(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in points])
    alone = [_cost_alone(label, candidates(label, frame), markers, _boxes(lines)) for label in labels]
    # The first round goes from the widest, which are the hardest to fit.
    order = sorted(range(len(labels)), key=lambda index: -labels[index].width)
    chosen: dict[int, int] = {}
    for _ in range(ROUNDS):
        before = dict(chosen)
        for index in order:
            boxes, starts, cost = alone[index]
            others = [other for other in chosen if other != index]
            taken = _boxes([alone[other][0][chosen[other]] for other in others])
            total = cost + TOUCHED * overlaps(boxes, taken).sum(1)
            total = total + CROSSED_LABEL * crossed(starts, labels[index].point, taken)
            for other in others:
                total = total + CROSSED_LABEL * overlaps_leader(boxes, alone[other][1][chosen[other]], labels[other])
            chosen[index] = int(total.argmin())
        if chosen == before:
            break
    return [tuple(map(float, alone[index][0][chosen[index]])) for index in range(len(labels))]


def overlaps_leader(boxes: np.ndarray, start: np.ndarray, label: Label) -> np.ndarray:
    """Which boxes (N, 4) the leader of another label crosses: (N,)."""
    share = np.linspace(0, 1, 24)[:, None]
    places = start * (1 - share) + np.array(label.point) * share
    a, b = places[None], boxes[:, None]
    return ((a > b[..., :2]) & (a < b[..., 2:])).all(-1).any(1)


def _boxes(boxes: Sequence[Sequence[float]]) -> np.ndarray:
    return np.array(boxes, dtype=float).reshape(-1, 4)


def _to_others(label: Label, boxes: np.ndarray, markers: np.ndarray) -> np.ndarray:
    """How far boxes (N, 4) are from the centre of the nearest marker (M, 4) that is not the label's own: (N,)."""
    centres = (markers[:, :2] + markers[:, 2:]) / 2
    others = centres[np.abs(centres - np.array(label.point)).max(1) > 1e-6]
    if not len(others):
        return np.full(len(boxes), np.inf)
    inside = np.clip(others[None], boxes[:, None, :2], boxes[:, None, 2:])
    return np.hypot(*np.moveaxis(inside - others[None], -1, 0)).min(1)


def _cost_alone(
    label: Label, boxes: np.ndarray, markers: np.ndarray, lines: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of a label, where their leaders begin (N, 2), and what each costs (N,) without other labels."""
    starts = np.array([nearest(box, label.point) for box in boxes])
    away = np.hypot(*(starts - np.array(label.point)).T)
    own = np.array(
        [[label.point[0] - MARKER, label.point[1] - MARKER, label.point[0] + MARKER, label.point[1] + MARKER]]
    )
    foreign = markers[~overlaps(markers, own).any(1)] if len(markers) else markers
    cost = away + TOUCHED * overlaps(boxes, markers).sum(1) + CROSSED_LINE * overlaps(boxes, lines).sum(1)
    cost = cost + np.where(away > NEAR, 10 + CROSSED_POINT * crossed(starts, label.point, foreign), 0)
    cost = cost + MISTAKEN * (_to_others(label, boxes, markers) < away - 1)
    beside = starts[:, 1] == label.point[1]
    return boxes, starts, cost + 3 * (beside if label.above else ~beside)


def apart(positions: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved as little as can be, so that neighbours are `gap` apart or more in the same order.

    The sum of squared moves is the least there is. They stay within [low, high] if they fit, else they begin at `low`.
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # Without their gaps the places must not fall: neighbours that would are pooled at their mean.
    pools: list[tuple[float, int]] = []
    for place, index in enumerate(order):
        total, count = positions[index] - place * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    levels = [total / count for total, count in pools for _ in range(count)]
    highest = high - (len(positions) - 1) * gap
    found = [0.0] * len(positions)
    for place, index in enumerate(order):
        found[index] = max(low, min(highest, levels[place])) + place * gap
    return found


def columns(spans: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Which of these spans overlap, directly or by others between them: their numbers in groups, from left to right."""
    groups: list[list[int]] = []
    end = float("-inf")
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        if spans[i][0] >= end:
            groups.append([])
        groups[-1].append(i)
        end = max(end, spans[i][1])
    return [sorted(group) for group in groups]
