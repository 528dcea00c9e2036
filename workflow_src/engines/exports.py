"""Exports and computations of a process take turns: PyTorch's exporter changes `nn.Module` for all threads.

Computations of several threads run at once. An export waits for those of other threads, and they wait for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from workflow_src.runtime import forks


class _OfThread(threading.local):
    """The number of computations of a thread, one inside of another."""

    nested = 0


class Exports:
    """The turns of a process. A computation may begin another one, or an export, which then waits for others alone."""

    def __init__(self) -> None:
        self.after_fork()
        forks.renew_in_children(self)

    def after_fork(self) -> None:
        self._changed, self._of_thread = threading.Condition(), _OfThread()
        self._computing = self._waiting = 0
        self._exporter: int | None = None

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """A computation, which no export of another thread disturbs."""
        own = self._of_thread
        with self._changed:
            if not own.nested and self._exporter != threading.get_ident():
                self._changed.wait_for(lambda: self._exporter is None and not self._waiting)
            self._computing += 1
            own.nested += 1
        try:
            yield
        finally:
            with self._changed:
                self._computing -= 1
                own.nested -= 1
                if self._waiting:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def exporting(self) -> Iterator[None]:
        """An export, during which no other thread computes."""
        if self._exporter == threading.get_ident():
            yield
            return
        # What this thread computes stands still meanwhile.
        nested = self._of_thread.nested
        with self._changed:
            self._waiting += 1
            self._computing -= nested
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._exporter is None and not self._computing)
            self._waiting -= 1
            self._exporter = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._exporter = None
                self._computing += nested
                self._changed.notify_all()


EXPORTS = Exports()
