"""After a fork: a child has memory and locks of its parent, but none of its threads.

Libraries that hand work to threads, such as OpenMP and CTranslate2, wait for them for ever in a child, and so do their
destructors.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Protocol


class Renewable(Protocol):
    """An object with threads or locks."""

    def after_fork(self) -> None:
        """Prepare the object for use in a forked child. Called in the child, before anything else runs in it."""


_RENEWABLE: weakref.WeakSet[Renewable] = weakref.WeakSet()
_threads_before: int | None = None


def renew_in_children(renewable: Renewable) -> None:
    """Call the object's `after_fork` in every process that is forked while the object lives."""
    _RENEWABLE.add(renewable)


def keep(thing: Any) -> None:
    """Never free an object, whose destructor would wait for threads that a forked child does not have."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def threads_before() -> int | None:
    """The number of threads that PyTorch had where this process was forked from one with a renewable object, else None.

    The child has one, because OpenMP would wait for the others.
    """
    return _threads_before


def _renew() -> None:
    global _threads_before
    renewable_objects = list(_RENEWABLE)
    if renewable_objects and _threads_before is None:
        import torch

        _threads_before = torch.get_num_threads()
        torch.set_num_threads(1)
    for renewable in renewable_objects:
        renewable.after_fork()


os.register_at_fork(after_in_child=_renew)
