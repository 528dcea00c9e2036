"""Timing in worker processes: each has one engine and its number of threads, and gets calls over a pipe.

Thread pools of different libraries in one process disturb each other, and their sizes are fixed when a library is
loaded; a worker's environment is therefore set before it starts. `ProcessPoolExecutor` would give all its processes one
environment, and does not control which process computes a row.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

from workflow_src.errors import InputError
from workflow_src.evaluation.speed.rows import DeviceInfo, Order, SpeedRow, Timing
from workflow_src.evaluation.speed.timing import RowTimes

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Waiting threads spin, because waking a sleeping one takes longer than a product. They spin for a few milliseconds:
# between two products, but not while another engine's process is timed.
WAITING = {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "100000", "KMP_BLOCKTIME": "1"}
# Makes the timer of the process, and a description of the device, from a worker's order.
Make = Callable[[Order], tuple[Any, DeviceInfo]]


@contextlib.contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Set the environment of processes that start in this context."""
    variables = dict.fromkeys(THREAD_VARIABLES, str(threads)) | (WAITING if threads > 1 else {})
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _refusal(failure: Exception) -> ValueError:
    """The error that `Worker` raises for `failure`: errors of input keep their fields.

    Others become a ValueError with their text, because not all can be pickled.
    """
    return failure if isinstance(failure, InputError) else ValueError(str(failure))


def _serve(make: Make, order: Order, connection: Any) -> None:
    """Run the worker: make the timer, then answer calls until the pipe closes."""
    # Libraries raise RuntimeError where memory or another library is missing.
    try:
        timer, device = make(order)
        connection.send(("done", device))
    except (ValueError, OSError, RuntimeError) as failure:
        connection.send(("refused", _refusal(failure)))
        return
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            connection.send(("done", getattr(timer, method)(*arguments)))
        except (ValueError, OSError, RuntimeError) as failure:
            connection.send(("refused", _refusal(failure)))


class Worker:
    """A process that times rows; `about` describes its device after `wait`.

    `make(order)` runs in the process and must be a function of a module. Methods raise the worker's error, a
    ValueError, and InputError when the process ends by itself.
    """

    device: DeviceInfo

    def __init__(self, make: Make, order: Order):
        context = multiprocessing.get_context("spawn")
        self.name, self._ready = order.engine, False
        self._connection, theirs = context.Pipe()
        with _environment(order.threads):
            self._process = context.Process(target=_serve, args=(make, order, theirs), daemon=True)
            self._process.start()
        theirs.close()

    def wait(self) -> None:
        """Wait until the process has its timer."""
        self.device = self._answer()
        self._ready = True

    def warm(self, row: SpeedRow, lines: list[str]) -> None:
        self._call("warm", row, lines)

    def time_row(self, row: SpeedRow, lines: list[str], speed: Timing) -> RowTimes:
        return self._call("time_row", row, lines, speed)

    def time_alternating(self, rows: list[SpeedRow], lines: list[str], speed: Timing) -> list[list[list[float]]]:
        return self._call("time_alternating", rows, lines, speed)

    def lengths(self, lines: list[str]) -> list[int]:
        return self._call("lengths", lines)

    def close(self) -> None:
        """End the process, at once if nobody has waited for it."""
        self._connection.close()
        if not self._ready:
            self._process.terminate()
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()

    def _call(self, method: str, *arguments: Any) -> Any:
        with contextlib.suppress(BrokenPipeError):
            self._connection.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            kind, value = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(10)
            raise InputError(
                f"the process that measures {self.name}",
                f"ended by itself (exit code {self._process.exitcode})",
                "a fault is shown above, a killed process (-9) mostly lacks memory",
            ) from None
        if kind == "refused":
            self.close()
            raise value
        return value
