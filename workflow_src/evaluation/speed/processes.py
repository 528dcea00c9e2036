"""Timing in worker processes: each has one engine and its number of threads, and gets calls over a pipe.

Thread pools of different libraries in one process disturb each other, and their sizes are fixed when a library is
loaded; a worker's environment is therefore set before it starts. `ProcessPoolExecutor` would give all its processes one
environment, and does not control which process computes a row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workflow_src.config.experiment import SpeedConfig
from workflow_src.config.resolved import Decode
from workflow_src.errors import InputError, TimingFailed
from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.speed.local import Local, RowTimes, timing_failed
from workflow_src.registry import engines

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Waiting threads spin, because waking a sleeping one takes longer than a product. They spin for a few milliseconds:
# between two products, but not while another engine's process is timed.
WAITING = {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "100000", "KMP_BLOCKTIME": "1"}


@dataclasses.dataclass
class Order:
    """The settings of the process of one engine in one precision: folders by system, and how to open them.

    Systems of `in_roles` decode nothing themselves; our own engine opens them.
    """

    engine: str
    compute_type: str | None
    device: str
    precision: str
    threads: int
    folders: dict[str, Path] = dataclasses.field(default_factory=dict)
    in_roles: tuple[str, ...] = ()

    @property
    def engine_word(self) -> str:
        return engines()[self.engine].word(self.compute_type)


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """The device of a process: its kind, its name (GPUs), and the precision."""

    device: str
    device_name: str | None
    precision: str


# Makes the timer of the process, and a description of the device, from a worker's order.
Make = Callable[[Order], tuple[Any, DeviceInfo]]


def make(order: Order) -> tuple[Local, DeviceInfo]:
    """Load the translators of an order; returns the timer and a description of the device."""
    from workflow_src.serving.folders import open_translator

    how = order.device, order.precision, order.threads
    decoding = order.engine, order.compute_type
    translators = {
        system: open_translator(folder, *how, *(() if system in order.in_roles else decoding))
        for system, folder in order.folders.items()
    }
    translator = next(translator for system, translator in translators.items() if system not in order.in_roles)
    device, precision = str(translator.device), order.compute_type or str(translator.precision)
    kind = device.split(":")[0]
    if kind != "cuda":
        return Local(translators), DeviceInfo(kind, None, precision)
    import torch

    def synchronise() -> None:
        torch.cuda.synchronize(device)

    device_info = DeviceInfo(kind, torch.cuda.get_device_name(device), precision)
    return Local(translators, synchronise, grow_batch=True), device_info


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


def _serve(make: Make, order: Order, connection: Any) -> None:
    """Run the worker: make the timer, then answer calls until the pipe closes.

    An answer has a kind: `done` with a value, or `failed` with an error. Before it may come `batch`, with the size of
    batch that is tried next, so that it is known where the process ends by itself.
    """
    try:
        timer, device = make(order)
        if isinstance(timer, Local):
            timer.report_batch = lambda batch: connection.send(("batch", batch))
        connection.send(("done", device))
    except Exception as failure:
        connection.send(("failed", _sent(failure, order.engine_word)))
        return
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            connection.send(("done", getattr(timer, method)(*arguments)))
        except Exception as failure:
            connection.send(("failed", _sent(failure, order.engine_word)))


def _sent(failure: Exception, engine: str) -> Exception:
    """The error that `Worker` raises for `failure`: others than our own cannot always be pickled."""
    return failure if isinstance(failure, InputError) else timing_failed(failure, engine)


class Worker:
    """A process that times rows; `device` describes its device after `wait`.

    `make(order)` runs in the process and must be a function of a module. Methods raise the worker's InputError, and
    TimingFailed for any other error and where the process ends by itself.
    """

    device: DeviceInfo

    def __init__(self, make: Make, order: Order):
        self._make, self._order = make, order
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready = False
        self._connection, theirs = context.Pipe()
        with _environment(self._order.threads):
            self._process = context.Process(target=_serve, args=(self._make, self._order, theirs), daemon=True)
            self._process.start()
        theirs.close()

    def wait(self) -> None:
        """Wait until the process has its timer."""
        self.device = self._answer()
        self._ready = True

    def restart(self) -> None:
        """A fresh process in place of this one: after some errors a GPU computes nothing more for a process."""
        self.close()
        self._start()
        self.wait()

    def time_row(self, row: Decode, lines: list[str], speed: SpeedConfig, largest_batch: int) -> RowTimes:
        return self._call("time_row", row, lines, speed, largest_batch, row=row.key)

    def time_alternating(self, rows: list[Decode], lines: list[str], repeats: int) -> list[list[list[float]]]:
        return self._call("time_alternating", rows, lines, repeats)

    def lengths(self, lines: list[str], system: str) -> list[int]:
        return self._call("lengths", lines, system)

    def close(self) -> None:
        """End the process, at once if nobody has waited for it."""
        self._connection.close()
        if not self._ready:
            self._process.terminate()
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()

    def _call(self, method: str, *arguments: Any, row: Key | None = None) -> Any:
        with contextlib.suppress(BrokenPipeError):
            self._connection.send((method, arguments))
        return self._answer(row)

    def _answer(self, row: Key | None = None) -> Any:
        kind, batch = "batch", None
        value: Any = None
        while kind == "batch":
            batch = value
            try:
                kind, value = self._connection.recv()
            except (EOFError, ConnectionResetError):
                self._process.join(10)
                reason = (
                    f"its process ended by itself (exit code {self._process.exitcode}); a fault is shown above, a "
                    "killed process (-9) mostly lacks memory"
                )
                raise TimingFailed(self._order.engine_word, reason, row=row, batch=batch) from None
        if kind == "failed":
            raise value
        return value
