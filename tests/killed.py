"""A training that ends in the middle of an update, as one that is killed."""

from __future__ import annotations

from collections.abc import Callable


class Killed(Exception):
    pass


def killed_after(calls: int) -> Callable:
    """Wraps an objective: the call after so many calls raises Killed."""

    def wrap(objective):
        calls_left = iter(range(calls))

        def call(model, batch, context):
            if next(calls_left, None) is None:
                raise Killed
            return objective(model, batch, context)

        return call

    return wrap
