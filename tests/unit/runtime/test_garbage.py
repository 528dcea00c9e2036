"""How often Python searches for unreachable objects."""

from __future__ import annotations

import gc
import weakref

import pytest

from workflow_src.runtime import garbage


class Cycle:
    def __init__(self):
        self.itself = self


@pytest.fixture
def default_threshold():
    threshold = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("default_threshold")
def test_unreachable_objects_are_freed_rarely_and_those_that_existed_are_left_alone():
    before = weakref.ref(Cycle())
    garbage.collect_rarely()
    after = weakref.ref(Cycle())
    objects = [[] for _ in range(garbage.OBJECTS // 2)]
    assert after()
    objects += [[] for _ in range(garbage.OBJECTS)]
    # Unreachable before the call: looked at no more.
    assert before() and not after()
