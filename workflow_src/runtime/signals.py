"""Stopping before the end: on Ctrl-C, on SIGTERM and SIGUSR1, which schedulers send before they end a job, or with a
peer.

No torch here: every stage imports these errors.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# EX_TEMPFAIL of sysexits.h: nothing is wrong, the same command goes on later.
EXIT_CODE = 75
Handler = Callable[[int, FrameType | None], object] | int | None


class Preempted(BaseException):
    """A signal stopped training; the message says where the next start goes on.

    Like KeyboardInterrupt, it may come at any line: code that takes any Exception for a fault of its own lets it pass.
    """

    exit_code = EXIT_CODE


class PeerFailed(Exception):
    """Another process of this training ended; its own error says why."""

    # EX_UNAVAILABLE of sysexits.h.
    exit_code = 69


class Preemption:
    """While entered, a signal only sets `received`, so that an update is finished before anything else happens.

    Under `at_once`, where nothing can be lost, a signal raises Preempted at the next line of Python. A second SIGINT
    raises KeyboardInterrupt wherever it comes. Signals that this process was started to ignore stay ignored.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._interruptible = False
        self._interrupted = False
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Preemption:
        # Only the main thread can install a handler.
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._handle) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        self.received = signal.Signals(number).name
        if self._interruptible:
            self._interruptible = False
            raise Preempted(self.received)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal interrupt the code in here."""
        self._interruptible = True
        try:
            if self.received:
                raise Preempted(self.received)
            yield
        finally:
            self._interruptible = False
