"""How often Python searches for unreachable objects."""

from __future__ import annotations

import weakref

from workflow_src.runtime import garbage


class Cycle:
    def __init__(self):
        self.itself = self


def test_unreachable_objects_are_freed_and_those_that_existed_are_left_alone():
    before = weakref.ref(Cycle())
    garbage.collect_rarely()
    after = weakref.ref(Cycle())
    objects: list[list] = []
    while after() and len(objects) <= 2 * garbage.OBJECTS:
        objects.append([])
    assert after() is None
    # Unreachable before the call: looked at no more.
    assert before()
