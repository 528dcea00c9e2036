"""A cache that does not grow without end."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Bounded(dict[Key, Value]):
    """A dict of at most `most` entries: a further one replaces the oldest.

    Threads may share it if they read entries with `get`: another thread may have replaced an entry that was just there.
    """

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        while len(self) > self.most:
            # A copy: another thread may add an entry meanwhile.
            oldest, *_ = list(self)
            self.pop(oldest, None)
