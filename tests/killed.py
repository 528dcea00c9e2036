"""A training that ends in the middle of an update, as one that is killed, and histories to compare with its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


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


def timeless(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries of a history without what depends on the clock."""
    return [{k: v for k, v in entry.items() if k not in ("minutes", "tokens_per_second")} for entry in history]
